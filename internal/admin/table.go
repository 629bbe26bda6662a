package admin

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fingerpost/fingerpost/routetable"
)

const (
	tableType     = "table"
	tableName     = "main"
	tableIdentity = "table/main"
)

// tableOperation is one operation of the entity type table.
type tableOperation struct {
	role    Role
	changes bool // its answer carries the revision
	edits   bool // it is one edit of the table: see waitingEdit
	run     func(c *Core, caller Caller, a args) (answer, error)
}

var tableOperations = map[string]tableOperation{
	"ADD":            {RoleOperator, true, true, command("ADD")},
	"INSERT":         {RoleOperator, true, true, command("INSERT")},
	"SET":            {RoleOperator, true, true, command("SET")},
	"REPLACE":        {RoleOperator, true, true, command("REPLACE")},
	"REPLACE-ALL":    {RoleOperator, true, true, command("REPLACE-ALL")},
	"DELETE-ROUTE":   {RoleOperator, true, true, command("DELETE-ROUTE")},
	"DELETE-PATTERN": {RoleOperator, true, true, command("DELETE-PATTERN")},
	"CLEAR":          {RoleOperator, true, true, command("CLEAR")},
	"WITHDRAW":       {RoleOperator, true, true, command("WITHDRAW")},
	"APPLY":          {RoleOperator, true, true, command("APPLY")},
	"LOAD-BEGIN":     {RoleViewer, true, false, (*Core).handleLoadBegin}, // and operator, but for a DIFF
	"LOAD-CHUNK":     {RoleViewer, false, false, (*Core).handleLoadChunk},
	"LOAD-COMMIT":    {RoleOperator, true, false, (*Core).handleLoadCommit},
	"LOAD-ABORT":     {RoleViewer, true, false, (*Core).handleLoadAbort},
	"EXPLAIN":        {RoleViewer, false, false, (*Core).handleExplain},
	"STORE":          {RoleViewer, false, false, (*Core).handleStore},
	"LINT":           {RoleViewer, false, false, (*Core).handleLint},
	"TEST":           {RoleViewer, false, false, (*Core).handleTest},
	"DIFF":           {RoleViewer, false, false, (*Core).handleDiff},
	"HISTORY":        {RoleViewer, false, false, (*Core).handleHistory},
	"ROLLBACK":       {RoleOperator, true, false, (*Core).handleRollback},
	"WATCH":          {RoleViewer, false, false, (*Core).refuseWatch}, // see Core.Answer
}

// command runs a command of the table, or with dryRun says what it would do.
func command(operation string) func(*Core, Caller, args) (answer, error) {
	return func(c *Core, caller Caller, a args) (answer, error) {
		cmd, dryRun, err := parseEdit(operation, a)
		if err != nil {
			return answer{}, err
		}
		var ch routetable.Change
		if dryRun {
			ch, err = Rehearse(cmd, c.table.Snapshot())
		} else {
			ch, err = c.Do(caller, cmd)
		}
		if err != nil {
			return answer{}, err
		}
		return changeAnswer(ch), nil
	}
}

func parseEdit(operation string, a args) (cmd Command, dryRun bool, err error) {
	if cmd, err = ParseCommand(operation, a); err == nil {
		dryRun, err = a.flag("dryRun")
	}
	return cmd, dryRun, err
}

// maxChangeRows bounds the rows that the answer to a change names, maxPageBytes their texts.
const maxChangeRows = 100

// changeAnswer tells what a change did: counts, the note, the warnings, and the first rows.
func changeAnswer(ch routetable.Change) answer {
	warnings := []any{}
	for i, w := range ch.Warnings {
		if i == maxChangeRows {
			warnings = append(warnings, fmt.Sprintf("and %d more", len(ch.Warnings)-i))
			break
		}
		warnings = append(warnings, w.String())
	}
	rows, room := []any{}, maxPageBytes
	for _, part := range []struct {
		what string
		list []*routetable.Route
	}{{"removed", ch.Removed}, {"updated", ch.Updated}, {"added", ch.Added}} {
		for _, r := range part.list {
			if room -= rowSize(r); len(rows) == maxChangeRows || room < 0 {
				break
			}
			rows = append(rows, map[string]any{
				"change": part.what, "identity": rowIdentity(r),
				"pattern": r.Pattern, "address": r.Address, "origin": originOf(r),
			})
		}
	}
	note := ShortNote(ch.Note)
	body := map[string]any{
		"revision": ch.Revision, "generation": ch.Generation,
		"added": uint64(len(ch.Added)), "removed": uint64(len(ch.Removed)), "updated": uint64(len(ch.Updated)),
		"note": note, "warnings": warnings, "rows": rows,
	}
	if len(ch.Objects) > 0 {
		body["objects"] = ObjectMaps(ch.Objects)
	}
	return answer{status: StatusOK, text: note, body: body}.with("revision", ch.Revision)
}

// ShortNote says each part of a change's note once: a batch of many ops has a part for each.
func ShortNote(note string) string {
	var parts []string
	times := map[string]int{}
	for _, part := range strings.Split(note, "; ") {
		if times[part]++; times[part] == 1 {
			parts = append(parts, part)
		}
	}
	if len(parts) > maxNoteParts {
		parts = append(parts[:maxNoteParts], "and more")
	}
	for i, part := range parts {
		if n := times[part]; n > 1 {
			parts[i] = fmt.Sprintf("%s (%d times)", part, n)
		}
	}
	return strings.Join(parts, "; ")
}

const maxNoteParts = 10

// modeDiff is the mode of a load that is not to be committed: DIFF compares the table with it. Viewers may.
const modeDiff = "diff"

// maxSource bounds the name of a file, in bytes.
const maxSource = 256

func (c *Core) handleLoadBegin(caller Caller, a args) (answer, error) {
	mode, err := a.text("mode")
	if err != nil {
		return answer{}, err
	}
	switch mode {
	case "":
		mode = "replace"
	case "replace", "merge", modeDiff:
	default:
		return answer{}, refuse(StatusBadRequest, "mode %q: replace, merge or diff", mode)
	}
	if mode != modeDiff {
		if err := caller.may(RoleOperator, "LOAD-BEGIN"); err != nil {
			return answer{}, err
		}
	}
	var ifRevision *uint64
	if n, given, err := a.count("ifRevision"); err != nil {
		return answer{}, err
	} else if given {
		ifRevision = &n
	}
	source, err := a.text("source")
	if err != nil {
		return answer{}, err
	}
	if len(source) > maxSource {
		return answer{}, refuse(StatusBadRequest, "source: %d bytes: at most %d", len(source), maxSource)
	}
	c.mu.Lock()
	id, err := c.loads.begin(c.o.Now(), caller.User, mode, source, ifRevision)
	c.mu.Unlock()
	if err != nil {
		return answer{}, err
	}
	return answer{status: StatusOK, body: map[string]any{"session": id, "mode": mode, "maxChunk": uint64(maxChunkBytes)}}, nil
}

func (c *Core) handleLoadChunk(caller Caller, a args) (answer, error) {
	id, err := a.required("session")
	if err != nil {
		return answer{}, err
	}
	text, ok := a["text"].([]byte)
	if !ok {
		s, isText := textOf(a["text"])
		if !isText {
			return answer{}, refuse(StatusBadRequest, "text: must be a string or binary, got %s", kindOf(a["text"]))
		}
		text = []byte(s)
	}
	c.mu.Lock()
	total, err := c.loads.chunk(c.o.Now(), caller.User, id, text)
	c.mu.Unlock()
	if err != nil {
		return answer{}, err
	}
	return answer{status: StatusOK, body: map[string]any{"session": id, "bytes": uint64(total)}}, nil
}

// handleLoadCommit parses what was collected and loads it as one change. The load is over, whatever comes of it.
func (c *Core) handleLoadCommit(caller Caller, a args) (answer, error) {
	id, err := a.required("session")
	if err != nil {
		return answer{}, err
	}
	dryRun, err := a.flag("dryRun")
	if err != nil {
		return answer{}, err
	}
	c.mu.Lock()
	x, err := c.loads.take(c.o.Now(), caller.User, id)
	c.mu.Unlock()
	if err != nil {
		return answer{}, err
	}
	if x.mode == modeDiff {
		return answer{}, refuse(StatusBadRequest, "LOAD-COMMIT: the load was begun for a DIFF")
	}
	f, err := routetable.ParseFile("load", x.text)
	if err != nil {
		return answer{}, err
	}
	cmd := Load{File: f, Source: x.source}
	if x.mode == "merge" {
		cmd.Mode = routetable.LoadMerge
	}
	var ch routetable.Change
	if dryRun {
		ch, err = Rehearse(Apply{Commands: []Command{cmd}, IfRevision: x.ifRev}, c.table.Snapshot())
	} else {
		ch, err = c.Do(caller, Apply{Commands: []Command{cmd}, IfRevision: x.ifRev})
	}
	if err != nil {
		return answer{}, err
	}
	ch.Warnings = routetable.JoinWarnings(ch.Warnings, f.Warnings)
	return changeAnswer(ch), nil
}

func (c *Core) handleLoadAbort(caller Caller, a args) (answer, error) {
	id, err := a.required("session")
	if err != nil {
		return answer{}, err
	}
	c.mu.Lock()
	_, err = c.loads.take(c.o.Now(), caller.User, id)
	c.mu.Unlock()
	return answer{status: StatusOK}, err
}

// Rehearse runs a command on a copy of a table and says what it would change there; the table stays as it is.
func Rehearse(cmd Command, s *routetable.Snapshot) (routetable.Change, error) {
	ops, err := Plan(cmd, s)
	if err != nil {
		return routetable.Change{}, err
	}
	if len(ops) == 0 {
		return routetable.Change{Revision: s.Revision(), Generation: s.Generation(), Note: "nothing to do"}, nil
	}
	ops = slices.Clone(ops)
	ops[0].IfRevision = nil
	t, err := copyTable(s)
	if err != nil {
		return routetable.Change{}, err
	}
	ch, err := t.Apply(ops...)
	ch.Revision, ch.Generation = s.Revision(), s.Generation()
	return ch, err
}

// copyTable makes a table with the rows of s, in their order.
func copyTable(s *routetable.Snapshot) (*routetable.Table, error) {
	t := routetable.New()
	ops := []routetable.Op{{Verb: routetable.VerbMatch, Match: s.Match()}}
	for r := range s.Routes() {
		row := *r
		row.ID = 0
		ops = append(ops, routetable.Op{Verb: routetable.VerbAdd, Route: row, Columns: allColumns})
	}
	_, err := t.Apply(ops...)
	return t, err
}

const allColumns = routetable.ColPick | routetable.ColBalance | routetable.ColWeight | routetable.ColHashKey | routetable.ColOrder |
	routetable.ColFallback | routetable.ColOptional | routetable.ColWhen | routetable.ColTimeout | routetable.ColRetry |
	routetable.ColDynamicHost | routetable.ColNote | routetable.ColName

// storePageBytes bounds the text of one STORE page.
const storePageBytes = 1 << 20

// handleStore answers one page of the table's arrow text: text, the snapshot and offset that it is of, and next, the
// offset of the page behind it, where there is one. Pages end at line ends.
func (c *Core) handleStore(caller Caller, a args) (answer, error) {
	all, err := a.flag("all")
	if err != nil {
		return answer{}, err
	}
	offset, _, err := a.count("offset")
	if err != nil {
		return answer{}, err
	}
	h, err := c.hold(a)
	if err != nil {
		return answer{}, err
	}
	form := storeForm{all: all, masked: caller.Role < RoleOperator}
	text, err := c.storeText(h, form)
	if err != nil {
		return answer{}, err
	}
	if offset > uint64(len(text)) {
		return answer{}, refuse(StatusBadRequest, "offset: %d is behind the end of the table's text (%d bytes)", offset, len(text))
	}
	body := map[string]any{"snapshot": h.token(), "offset": offset, "revision": h.s.Revision(), "size": uint64(len(text))}
	page := text[offset:]
	if len(page) > storePageBytes {
		page = page[:storePageBytes]
		if end := bytes.LastIndexByte(page, '\n'); end >= 0 {
			page = page[:end+1]
		}
		body["next"] = offset + uint64(len(page))
	} else {
		c.dropText(h, form)
	}
	body["text"] = string(page)
	return answer{status: StatusOK, body: body}.with("snapshot", h.token()), nil
}

// maxLintRows bounds what LINT looks at: some microseconds a row. Store a larger table and lint the file.
const maxLintRows = 2_000_000

func (c *Core) handleLint(caller Caller, _ args) (answer, error) {
	s := c.table.Snapshot()
	if s.Len() > maxLintRows {
		return answer{}, refuse(StatusTooLarge, "LINT: the table has %d rows, and %d are looked at here: use routectl store FILE, then routectl lint FILE", s.Len(), maxLintRows)
	}
	list, room := []any{}, maxPageBytes
	warnings := s.Lint()
	for _, w := range warnings {
		if room -= len(w.Pattern) + len(w.Address) + len(w.What); len(list) == maxPageRows || room < 0 {
			break
		}
		address := w.Address
		if caller.Role < RoleOperator {
			address = routetable.MaskUserinfo(address)
		}
		list = append(list, map[string]any{"pattern": w.Pattern, "address": address, "what": w.What})
	}
	body := map[string]any{"warnings": list}
	if more := len(warnings) - len(list); more > 0 {
		body["more"] = uint64(more)
	}
	return answer{status: StatusOK, body: body}, nil
}

// handleTest checks expectations on the running table: expect is a list of maps with address and hops, and perhaps
// target and properties. The answer lists those that do not hold.
func (c *Core) handleTest(_ Caller, a args) (answer, error) {
	list, ok := a["expect"].([]any)
	if !ok {
		return answer{}, refuse(StatusBadRequest, "expect: must be a list of maps, got %s", kindOf(a["expect"]))
	}
	if len(list) > maxPageRows {
		return answer{}, refuse(StatusTooLarge, "expect: %d: at most %d", len(list), maxPageRows)
	}
	var expect []routetable.Expect
	for i, v := range list {
		m, ok := v.(map[string]any)
		if !ok {
			return answer{}, refuse(StatusBadRequest, "expect %d: must be a map, got %s", i+1, kindOf(v))
		}
		e, err := readExpect(m)
		if err != nil {
			return answer{}, refuse(StatusBadRequest, "expect %d: %v", i+1, err)
		}
		expect = append(expect, e)
	}
	failures := []any{}
	for _, f := range routetable.CheckExpect(c.table.Snapshot(), expect) {
		failures = append(failures, map[string]any{
			"address": f.Expect.Address, "expected": listOf(f.Expect.Hops), "got": listOf(f.Got), "what": f.Msg,
		})
	}
	return answer{status: StatusOK, body: map[string]any{"checked": uint64(len(expect)), "failures": failures}}, nil
}

func readExpect(m args) (routetable.Expect, error) {
	var e routetable.Expect
	var err error
	if e.Address, err = m.required("address"); err != nil {
		return e, err
	}
	if e.Target, err = m.text("target"); err != nil {
		return e, err
	}
	if e.Properties, err = m.properties("properties"); err != nil {
		return e, err
	}
	hops, ok := m["hops"].([]any)
	if !ok && m["hops"] != nil {
		return e, errors.New("hops: must be a list of strings")
	}
	for _, h := range hops {
		s, ok := textOf(h)
		if !ok {
			return e, errors.New("hops: must be a list of strings")
		}
		e.Hops = append(e.Hops, s)
	}
	return e, nil
}

func sortedNames(a args) []string { return slices.Sorted(maps.Keys(a)) }

// tableEntity is the table as an entity.
type tableEntity struct{ c *Core }

func (*tableEntity) Type() string { return tableType }

func (*tableEntity) Attributes() []string {
	return []string{"match", "rows", "revision", "generation"}
}

// Operations are what the table does beside what entities do.
func (*tableEntity) Operations() []string {
	var names []string
	for name := range tableOperations {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (t *tableEntity) List() []Entity {
	s := t.c.table.Snapshot()
	return []Entity{{
		"name": tableName, "identity": tableIdentity, "match": s.Match().String(),
		"rows": uint64(s.Len()), "revision": s.Revision(), "generation": s.Generation(),
	}}
}
