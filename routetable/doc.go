// Package routetable is the live, ordered table of routes: pattern → address, asserted by an origin.
//
// Read Table.Plan first (every edit goes through it), then Snapshot.LookupInto (what an address finds), then Snapshot.Resolve (where that
// leads). The rest serves these three:
//
//	route.go, columns.go, group.go  a row and its columns; a column as text; what a lookup gives
//	op.go, verbs.go         edits and what they answer
//	table.go, turn.go       the table, its watchers; the line of edits, and batches of them that go to disk together
//	ops.go, edit.go         how an edit is done: ops, verb by verb, on a snapshot under way that nobody sees yet
//	bulk.go                 many rows at once, on all processors
//	snapshot.go             the immutable table that readers hold
//	record.go, arena.go     a row as bytes without pointers, and the chunks that hold them
//	parray.go, hmap.go, order.go    persistent array, multimap and tree: records by slot, slots by hash, rows in table order
//	index.go, outline.go    which rows may fit an address
//	compact.go              the same in a table of few rows
//	cache.go                rows made of records; what addresses led to, and whether that still holds
//	pattern.go, wild.go, glob.go    dialects of patterns; their matchers
//	lookup.go, expand.go    groups, match modes, fallback, the routing address; "$1" in addresses, and whether the result may be used
//	hop.go                  addresses taken apart, canonical text
//	when.go                 predicates over message properties
//	resolve.go, cycle.go    names that lead to names
//	object.go               named texts beside the rows
//	emptied.go              patterns whose rows are gone
//	state.go, replay.go     the table on disk: what is written of a change and of a table, and how a table is made of that again
//	history.go, command.go  who changed what, and when
//	undo.go, diff.go, rollback.go   earlier revisions: how they are remembered, compared, brought back
//	explain.go, lint.go     for people
//	file.go, yaml.go, arrow.go, expect.go   table files and their own tests
//	keep.go, keepyaml.go, keeparrow.go      edits of a table file that leave the rest of its text alone
//
// A lookup asks the match cache (cache.go). What is not there it asks of the index: rows are filed under hashes in one multimap (a literal
// under itself; a wildcard form under its literal segments, a cut of its prefix or a gram of its literals, whichever has the fewest
// rows), and filters of bits tell which of the address's own keys are worth a look. Each slot that comes out leads by the array of refs to its
// record; the row is taken from the row cache, or made of its record where the record may fit, and matched. A lookup waits for memory more than
// for anything else, so each step is done for all candidates before the next. The rows are sorted into table order, and lookup.go makes
// groups of them. Tables of few rows, of which most are, have a simpler index of the whole snapshot, made when lookups have asked for it often
// enough: sets of rows by the segments that they take.
//
// An edit (Plan, by whoever has the turn) copies the newest snapshot, which is a handful of words, and does its ops on the copy: it writes
// a record behind the others in the arena, its ref to the row's slot, the row's place to the order tree, its hashes to the index. Each copies
// the pages on its way at their first write in that batch of edits, and no other, so published snapshots stay as they are. finish says what changed and
// files it with the recent changes, by which caches tell what still holds. Edits that were asked for while others were being done
// or written are one batch: whoever has the turn does them in order, writes them to the journal where there is one, syncs once, publishes, and
// tells the watchers. A batch that cannot be written takes the table back to the snapshot that readers have.
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
//     stays that one's, with a warning. The rows of a file stay together where they stood, whatever of them changes.
//   - An edit keeps a row's origin, a load too: it makes operator rows of what is new.
//   - Marks (Author.Marks) are kept with the rows, in the same step: which content of a table file is in force.
//   - A rollback gives rows the positions that they had. Where rows were renumbered since, or a learned row has taken a position, it numbers
//     all anew, and learned rows stay behind the configured row that they stand behind, of those that keep their places.
//   - An entry of the history that is older than 30 days goes with the next change, not by itself.
//   - Positions are unique among the rows of one order: a row that would share one is put just behind the row that has it.
//   - An id is a slot (low 32 bits) and a serial. Slots are used again, with another serial, so an id does not come to mean another row.
//   - A record on disk with a right checksum and a bad frame, column or wildcard pattern is an error of Open. One whose address or predicate
//     cannot be used is a row that leads nowhere, with a problem: one bad row does not keep the others from being used.
//   - Caches only save work: what a lookup gives is what its own snapshot says, whatever other snapshots left in them. An entry holds from
//     the generation that it was made at up to the last one that is known not to have touched it. An address is kept when it is missed the
//     second time, up to 1 KiB, and never what depends on a predicate.
//   - After a restart the generation goes on from the last change on disk, so numbers that only changes of live rows had come again.
//   - An inner row is optional where it or a row outside is; the outer timeout and retry override where they are set.
//   - Text of a capture never supplies a reserved scheme or "null", dynamic-host or not.
//   - Userinfo is masked whole: amqp://***@host.
package routetable
