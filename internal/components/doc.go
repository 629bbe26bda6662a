// Package components is the broker of components: programs that take events over gRPC streams, and get those that the rules of their routes fit.
//
// Read Match in match.go first: which route an event goes to. A rule (rule.go) becomes rows of the route table, a pattern of the address web:<environment>/<deployment>/<path> with
// the rule as predicate, and the table finds the row.
package components
