package mesh

import (
	"slices"
	"strings"
)

// recent remembers commands that were handled, by their id and the first router that marked them: on a graph with a ring they come by more than one
// way (rembus.md, 6.3).
type recent struct {
	new, old map[floodKey]struct{}
}

type floodKey struct {
	id    ID
	first uint64
}

// maxRecent is how many of the latest are remembered at least.
const maxRecent = 1 << 14

// take tells whether a command is new.
func (r *recent) take(k floodKey) bool {
	if _, ok := r.new[k]; ok {
		return false
	}
	if _, ok := r.old[k]; ok {
		return false
	}
	if r.new == nil || len(r.new) >= maxRecent {
		r.old, r.new = r.new, map[floodKey]struct{}{}
	}
	r.new[k] = struct{}{}
	return true
}

// markAndBroadcast passes a command on to every neighbour, marked; false where this router has handled it already: then it is not to be done again
// (mark_and_broadcast).
func (m *Mesh) markAndBroadcast(by *link, t *twin, f *Frame, c *command) bool {
	if slices.Contains(c.Marks, m.eid) {
		m.count.floodedTwice.Add(1)
		return false
	}
	first := m.eid
	if len(c.Marks) > 0 {
		first = c.Marks[0]
	}
	m.seenMu.Lock()
	isNew := len(c.Marks) == 0 || m.seen.take(floodKey{f.ID.bare(), first})
	m.seenMu.Unlock()
	if !isNew {
		m.count.floodedTwice.Add(1)
		return false
	}
	if len(c.Marks) < maxMarks && m.isLast(t, c, string(f.Name)) {
		c.Marks = append(c.Marks, m.eid)
		m.adminBroadcast(by, t, f, c)
	}
	return true
}

// maxMarks bounds the way of a command: it is longer than any mesh is wide.
const maxMarks = 256

// adminBroadcast sends a command to every named neighbour that is there, but who it came from and those that it was sent to already
// (admin_broadcast, color_admin).
func (m *Mesh) adminBroadcast(by *link, from *twin, f *Frame, c *command) {
	if m.o.Server {
		return
	}
	for _, t := range m.neighbours(from) {
		if slices.Contains(c.Touched, t.name) || t.kin.Load() != 0 { // those of our kind are told by news
			continue
		}
		c.Touched = append(c.Touched, t.name)
		m.count.flooded.Add(1)
		t.send(by, &Frame{Type: Admin, ID: f.ID, Name: f.Name, Data: appendCommand(nil, c)})
	}
}

// neighbours are the named twins that are there, but one, in the order of their names.
func (m *Mesh) neighbours(but *twin) []*twin {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*twin
	for _, t := range m.twins {
		if t.named && t.open.Load() && (but == nil || t.name != but.name) {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b *twin) int { return strings.Compare(a.name, b.name) })
	return list
}

// appendCommand appends the map of a command that is passed on. Marks are eight bytes wide: Rembus.jl wants them so.
func appendCommand(b []byte, c *command) []byte {
	pairs := uint64(3)
	if c.LookBack != nil {
		pairs++
	}
	b = appendText(appendText(appendHead(b, majorMap, pairs), "cmd"), *c.Cmd)
	if c.LookBack != nil {
		b = appendFloat(appendText(b, "msg_from"), *c.LookBack)
	}
	b = appendHead(appendText(b, "rmark"), majorArray, uint64(len(c.Marks)))
	for _, mark := range c.Marks {
		b = appendWide(b, mark)
	}
	return appendTexts(appendText(b, "touch"), c.Touched)
}
