package admin

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// author is what the history keeps of a caller and its command; the table finds the words of its own ops.
func (c *Core) author(caller Caller, words string) routetable.Author {
	return routetable.Author{User: caller.User, From: firstOf(caller.Remote, caller.Via), Command: words, At: c.o.Now()}
}

// loadWords are those of what the table cannot put into words: the load of a file that has a name, a change of objects; else none.
func loadWords(cmd Command) string {
	if batch, ok := cmd.(Apply); ok && len(batch.Commands) == 1 {
		cmd = batch.Commands[0]
	}
	if x, ok := cmd.(Renew); ok {
		return x.Words
	}
	x, ok := cmd.(Load)
	switch {
	case !ok || x.Source == "":
		return ""
	case x.Mode == routetable.LoadMerge:
		return "load " + validText(x.Source) + " --merge"
	}
	return "load " + validText(x.Source)
}

// The bounds of one HISTORY.
const (
	maxHistory     = 10_000
	defaultHistory = 100
)

// handleHistory answers a list of maps, newest first: revision, at (a timestamp), user, from, command, added, removed, updated, and gone (true)
// where there is no way back to the revision any more. Where
// there was no room for all that was asked for, the property next is the before of the rest.
func (c *Core) handleHistory(_ Caller, a args) (answer, error) {
	before, _, err := a.count("before")
	if err != nil {
		return answer{}, err
	}
	limit, given, err := a.count("limit")
	if err != nil {
		return answer{}, err
	}
	switch {
	case !given:
		limit = defaultHistory
	case limit == 0 || limit > maxHistory:
		return answer{}, refuse(StatusBadRequest, "limit: %d: a number from 1 to %d; older ones by before", limit, maxHistory)
	}
	list := []any{}
	answered := answer{status: StatusOK}.with("revision", c.table.Revision())
	room := maxPageBytes
	for _, r := range c.table.History(before, int(limit)) {
		if room -= 200 + len(r.User) + len(r.From) + len(r.Command); room < 0 && len(list) > 0 {
			answered = answered.with("next", list[len(list)-1].(map[string]any)["revision"])
			break
		}
		one := map[string]any{
			"revision": r.Revision, "at": wire.Timestamp(r.At.UnixMilli()), "user": r.User, "from": r.From, "command": r.Command,
			"added": uint64(r.Added), "removed": uint64(r.Removed), "updated": uint64(r.Updated),
		}
		if r.Objects > 0 {
			one["objects"] = uint64(r.Objects)
		}
		if r.Gone {
			one["gone"] = true
		}
		list = append(list, one)
	}
	answered.body = list
	return answered, nil
}

// Rollback makes the configured rows and the match mode those of an earlier revision, as a new change. ifRevision, where not nil, is the
// revision that the caller saw.
func (c *Core) Rollback(caller Caller, revision uint64, ifRevision *uint64) (routetable.Change, error) {
	if err := caller.may(RoleOperator, "ROLLBACK"); err != nil {
		return routetable.Change{}, err
	}
	words := fmt.Sprintf("rollback %d", revision)
	if ifRevision != nil {
		words += fmt.Sprintf(" --if-revision %d", *ifRevision)
	}
	return c.table.ApplyAs(c.author(caller, words), routetable.Op{Verb: routetable.VerbRollback, To: revision, IfRevision: ifRevision})
}

// atRevision answers nil, or that the table is at another revision.
func atRevision(s *routetable.Snapshot, want uint64) error {
	if s.Revision() == want {
		return nil
	}
	return &routetable.ConflictError{
		What: fmt.Sprintf("the table is at revision %d, not %d", s.Revision(), want), Hint: "read it again", Revision: s.Revision(),
	}
}

func (c *Core) handleRollback(caller Caller, a args) (answer, error) {
	revision, given, err := a.count("revision")
	if err != nil {
		return answer{}, err
	}
	if !given {
		return answer{}, refuse(StatusBadRequest, "revision: missing: HISTORY lists them")
	}
	var ifRevision *uint64
	if n, given, err := a.count("ifRevision"); err != nil {
		return answer{}, err
	} else if given {
		ifRevision = &n
	}
	ch, err := c.Rollback(caller, revision, ifRevision)
	if err != nil {
		return answer{}, err
	}
	return changeAnswer(ch), nil
}

// The bounds of the differences that are held for clients that page over them.
const maxDiffs = 4

// heldDiff is a difference that a client pages over.
type heldDiff struct {
	token    string
	user     string
	from, to any // a revision, or the name of a file
	d        *routetable.Diff
	touched  time.Time
}

// handleDiff answers what leads from one table to another: from, to, match (a list of two) where that differs, and rows, each with change
// (added, removed, changed or moved), before and after, and objects (ObjectMaps) where some differ. The tables are the revisions a and b, or b is what was uploaded by a load, which
// ends. A long answer comes in pages: the next one is asked for by diff and offset.
func (c *Core) handleDiff(caller Caller, a args) (answer, error) {
	offset, _, err := a.count("offset")
	if err != nil {
		return answer{}, err
	}
	token, err := a.text("diff")
	if err != nil {
		return answer{}, err
	}
	var h *heldDiff
	if token != "" {
		h, err = c.findDiff(caller, token)
	} else {
		h, err = c.makeDiff(caller, a)
	}
	if err != nil {
		return answer{}, err
	}
	if offset > uint64(len(h.d.Rows)) {
		return answer{}, refuse(StatusBadRequest, "offset: %d is behind the last of %d rows", offset, len(h.d.Rows))
	}
	rows := []any{}
	room := maxPageBytes
	next := int(offset)
	for ; next < len(h.d.Rows) && len(rows) < maxPageRows && room > 0; next++ {
		row, size := c.differenceMap(caller, &h.d.Rows[next])
		rows = append(rows, row)
		room -= size
	}
	body := map[string]any{"from": h.from, "to": h.to, "rows": rows, "total": uint64(len(h.d.Rows))}
	if h.d.MatchDiffer {
		body["match"] = []any{h.d.Match[0].String(), h.d.Match[1].String()}
	}
	if len(h.d.Objects) > 0 {
		body["objects"] = ObjectMaps(h.d.Objects)
	}
	if next < len(h.d.Rows) {
		c.keepDiff(h)
		body["diff"], body["next"] = h.token, uint64(next)
	} else {
		c.dropDiff(h)
	}
	return answer{status: StatusOK, body: body}, nil
}

func (c *Core) makeDiff(caller Caller, a args) (*heldDiff, error) {
	h := &heldDiff{user: caller.User}
	session, err := a.text("session")
	if err != nil {
		return nil, err
	}
	if session != "" {
		return h, c.diffFile(caller, session, h)
	}
	from, given, err := a.count("a")
	if err != nil {
		return nil, err
	}
	if !given {
		return nil, refuse(StatusBadRequest, "a: missing: give the revisions a and b, or the session of a load")
	}
	to, given, err := a.count("b")
	if err != nil {
		return nil, err
	}
	if !given {
		to = c.table.Revision()
	}
	h.from, h.to = from, to
	if h.d, err = c.table.Diff(from, to); err != nil {
		return nil, err
	}
	return h, nil
}

// diffFile compares the table with what a load has collected. The load is over.
func (c *Core) diffFile(caller Caller, session string, h *heldDiff) error {
	c.mu.Lock()
	x, err := c.loads.take(c.o.Now(), caller.User, session)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	f, err := routetable.ParseFile(firstOf(x.source, "load"), x.text)
	if err != nil {
		return err
	}
	s := c.table.Snapshot()
	h.from, h.to = s.Revision(), firstOf(x.source, "-")
	if h.d, err = s.DiffFile(f); err != nil {
		return err
	}
	return nil
}

// ObjectMaps are objects that a change made others: name and change (added, removed or changed).
func ObjectMaps(changes []routetable.ObjectChange) []any {
	list := make([]any, len(changes))
	for i, o := range changes {
		change := "changed"
		switch {
		case o.Before == "":
			change = "added"
		case o.After == "":
			change = "removed"
		}
		list[i] = map[string]any{"name": o.Name, "change": change}
	}
	return list
}

// differenceMap is a row of a difference, and about how many bytes it is.
func (c *Core) differenceMap(caller Caller, d *routetable.Difference) (m map[string]any, size int) {
	m = map[string]any{"change": "changed"}
	switch {
	case d.Before == nil:
		m["change"] = "added"
	case d.After == nil:
		m["change"] = "removed"
	case d.Moved:
		m["change"] = "moved"
	}
	if d.Before != nil {
		m["before"] = c.rowMap(caller, d.Before)
		size += rowSize(d.Before)
	}
	if d.After != nil {
		m["after"] = c.rowMap(caller, d.After)
		size += rowSize(d.After)
	}
	return m, size
}

// rowMap is a row with its attributes that are not the default.
func (c *Core) rowMap(caller Caller, r *routetable.Route) map[string]any {
	m := map[string]any{"pattern": r.Pattern, "address": r.Address, "pick": r.Pick.String(), "order": int64(r.Order), "origin": originOf(r)}
	if r.ID != 0 {
		m["identity"] = rowIdentity(r)
	}
	if caller.Role < RoleOperator {
		m["address"] = routetable.MaskUserinfo(r.Address)
	}
	read := routeKind{c}.reader(caller, r, func() int { return 0 })
	for _, kv := range routetable.FormatColumns(r) {
		m[AttributeName(kv.Key)] = read(kv.Key)
	}
	return m
}

// rowSize is about how many bytes a rowMap is on the wire.
func rowSize(r *routetable.Route) int {
	return 160 + len(r.Pattern) + len(r.Address) + len(r.Origin) + len(r.When) + len(r.Note) + len(r.Name) + len(r.HashKey)
}

func (c *Core) findDiff(caller Caller, token string) (*heldDiff, error) {
	now := c.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.diffs = slices.DeleteFunc(c.diffs, func(h *heldDiff) bool { return now.Sub(h.touched) > maxHeldIdle })
	for _, h := range c.diffs {
		if h.token == token && h.user == caller.User {
			h.touched = now
			return h, nil
		}
	}
	return nil, refuse(StatusNotFound, "diff: %q is no longer held (it is for %v): begin again without it", token, maxHeldIdle)
}

// keepDiff holds a difference for its next page, in the place of the one that was touched least lately where there are many.
func (c *Core) keepDiff(h *heldDiff) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.touched = c.o.Now()
	if h.token != "" {
		return
	}
	var b [16]byte
	rand.Read(b[:])
	h.token = hex.EncodeToString(b[:])
	if len(c.diffs) >= maxDiffs {
		oldest := 0
		for i, x := range c.diffs {
			if x.touched.Before(c.diffs[oldest].touched) {
				oldest = i
			}
		}
		c.diffs = slices.Delete(c.diffs, oldest, oldest+1)
	}
	c.diffs = append(c.diffs, h)
}

func (c *Core) dropDiff(h *heldDiff) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.diffs = slices.DeleteFunc(c.diffs, func(x *heldDiff) bool { return x == h })
}
