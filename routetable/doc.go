// Package routetable is the live, ordered table of routes: pattern → address, asserted by an origin.
//
// Read Table.Apply first (every edit is an Op in it), then Snapshot.LookupInto (what an address finds), then Snapshot.Resolve (where
// that leads). The rest serves these three:
//
//	route.go, columns.go    a row and its columns; a column as text
//	op.go, verbs.go         edits and what they answer
//	ops.go, edit.go         how an edit is done: on drafts of the patterns touched, then one new snapshot
//	table.go, snapshot.go   the one writer and the immutable table that readers hold
//	pattern.go, wild.go     dialects of patterns; the matcher of "*" and "%"
//	expand.go               "$1" in addresses, and whether the result may be used
//	hop.go                  addresses taken apart, canonical text
//	when.go                 predicates over message properties
//	index.go, pmap.go       which patterns fit an address (index is the only user of pmap)
//	node.go, lookup.go      groups, match modes, fallback, the routing address
//	resolve.go, cycle.go    names that lead to names
//	history.go, command.go  who changed what, and when
//	undo.go, diff.go, rollback.go   earlier revisions: how they are remembered, compared, brought back
//	explain.go, lint.go     for people
//	file.go, yaml.go, arrow.go, expect.go   table files and their own tests
//
// There is no network and no log here. A Route, Group or Match that the table gave out is shared and must not be written to.
//
// # Where Messenger decides otherwise
//
// Patterns, expansion and the parsing of addresses are those of Apache Qpid Proton's Messenger 0.37, whose observed behaviour is in
// testdata/messenger. All of its translations hold here under match first, as the result of Explain, and its addresses are taken apart
// in the same way, but for these differences, which are meant (refusedHere in messenger_test.go lists the addresses):
//
//   - a pattern escapes "*", "%" and "\" by "\"; "${1}" is a group
//   - a group number that overflows is a group that is not there; Messenger's wraps
//   - an address is refused where its host or port is empty, its port is no number up to 65535 (so there are no service names), or it
//     is an IPv6 address without brackets (fe80::1%eth0, ::1), or its host holds "@", "[" or "]" (u@v@host, which has no
//     canonical text, and of which v is more likely a user than a host)
//   - scheme and host fold case: AMQPS is TLS, and 05672 is 5672
//   - reserved schemes win over host and port: topic:5672 is a name
//   - a null row discards; Messenger's sends to the last address used
//
// # Decisions that the design leaves open
//
//   - A glob: pattern has no groups but $0; $1 in its row is empty and warned about. It does not match addresses over 4 KiB.
//   - Of relay:, rpc:, comp: and node: names the first matching group is used, of web: names the first matching row.
//   - In match mode first the optional rows that stand before the winning pattern's first counting row are used too, those behind it not.
//   - An add compares only the columns that it names with a row that is there; a group's balance is inherited where it is not named.
//   - An insert takes its anchor's order where none is named. After a pattern means after its last row.
//   - A replace keeps the row's id, origin, position, note and name; every other column that is not named is reset, order too.
//   - A system row is neither configured nor learned: verbs without an origin do not touch it, and it is not stored.
//   - A load with an origin (file:NAME) replaces the rows of that origin alone; a row that another configured origin asserts already
//     stays that one's, with a warning.
//   - A rollback gives rows the positions that they had. Where rows were renumbered since, or a learned row has taken a position, it numbers
//     all anew, and learned rows stay behind the configured row that they stand behind, of those that keep their places.
//   - An entry of the history that is older than 30 days goes with the next change, not by itself.
//   - An inner row is optional where it or a row outside is; the outer timeout and retry override where they are set.
//   - Text of a capture never supplies a reserved scheme or "null", dynamic-host or not.
//   - Userinfo is masked whole: amqp://***@host.
package routetable
