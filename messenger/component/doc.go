// Package component writes components: programs that take events of a broker of components over a gRPC stream, and answer them.
//
// Read Connect in component.go first. A component connects, and has a handler called with each request that a route of its own takes; in it, Call asks
// other components. The values of events are JSON text on this wire (dialect D4).
package component
