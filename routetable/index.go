package routetable

import "slices"

// index finds the nodes whose pattern fits an address. It is a value: a copy is a snapshot, edits of one copy do not show in another.
// Its whole interface is find, set, remove and match; nothing else knows how it is built.
//
// Literals are in a hash map. A wildcard form is filed under its literal prefix, cut to one of a few lengths, so that a lookup needs one
// probe a length; forms without a prefix are one list.
type index struct {
	byText pmap[*node]
	exact  pmap[[]*node]        // by literal address
	wild   pmap[*wildList]      // by cut prefix
	used   [len(prefixCuts)]int // forms filed under each length
}

// prefixCuts are the lengths that prefixes are cut to.
var prefixCuts = [...]int{0, 1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32}

// wildList is the forms filed under one prefix.
type wildList struct {
	owner   *owner
	entries []wildEntry
}

type wildEntry struct {
	form *form
	node *node
}

// find returns the node of the pattern text, or nil.
func (x *index) find(text string) *node {
	n, _ := x.byText.get(text)
	return n
}

// match appends the nodes whose pattern fits addr, in no order, each once.
func (x *index) match(dst []*node, addr string) []*node {
	if len(addr) > MaxTextBytes {
		return dst
	}
	if nodes, ok := x.exact.get(addr); ok {
		dst = append(dst, nodes...)
	}
	if x.wild.n == 0 {
		return dst
	}
	g := guard(addr)
	for i, cut := range prefixCuts {
		if cut > len(addr) {
			break
		}
		if x.used[i] == 0 {
			continue
		}
		list, ok := x.wild.get(addr[:cut])
		if !ok {
			continue
		}
		for j := range list.entries {
			e := &list.entries[j]
			if e.form.match(addr, g, nil) && (len(e.node.pat.forms)+len(e.node.pat.lits) == 1 || !slices.Contains(dst, e.node)) {
				dst = append(dst, e.node)
			}
		}
	}
	return dst
}

// set puts n in the place of the node of the same pattern text, if any.
func (x *index) set(n *node, o *owner) {
	old := x.find(n.pat.text)
	x.byText.set(n.pat.text, n, o)
	for _, lit := range n.pat.lits {
		nodes, _ := x.exact.get(lit)
		x.exact.set(lit, swapNode(nodes, old, n), o)
	}
	for i := range n.pat.forms {
		x.file(&n.pat.forms[i], old, n, o)
	}
}

// remove takes the node of the pattern text away.
func (x *index) remove(text string, o *owner) {
	old := x.find(text)
	if old == nil {
		return
	}
	x.byText.delete(text, o)
	for _, lit := range old.pat.lits {
		nodes, _ := x.exact.get(lit)
		if nodes = swapNode(nodes, old, nil); len(nodes) == 0 {
			x.exact.delete(lit, o)
		} else {
			x.exact.set(lit, nodes, o)
		}
	}
	for i := range old.pat.forms {
		x.file(&old.pat.forms[i], old, nil, o)
	}
}

// file puts the form of node n where old's was; a nil n takes it away.
func (x *index) file(f *form, old, n *node, o *owner) {
	cut := len(prefixCuts) - 1
	for prefixCuts[cut] > len(f.prefix) {
		cut--
	}
	key := f.prefix[:prefixCuts[cut]]
	list, _ := x.wild.get(key)
	if list == nil || list.owner != o {
		fresh := &wildList{owner: o}
		if list != nil {
			fresh.entries = append(make([]wildEntry, 0, len(list.entries)+1), list.entries...)
		}
		list = fresh
		x.wild.set(key, list, o)
	}
	at := -1
	if old != nil {
		at = slices.Index(list.entries, wildEntry{f, old})
	}
	switch {
	case at < 0 && n != nil:
		list.entries = append(list.entries, wildEntry{f, n})
		x.used[cut]++
	case at >= 0 && n != nil:
		list.entries[at].node = n
	case at >= 0:
		list.entries = slices.Delete(list.entries, at, at+1)
		x.used[cut]--
		if len(list.entries) == 0 {
			x.wild.delete(key, o)
		}
	}
}

// swapNode returns nodes with n for old, n added where old is not there, old gone where n is nil.
func swapNode(nodes []*node, old, n *node) []*node {
	fresh := make([]*node, 0, len(nodes)+1)
	found := false
	for _, o := range nodes {
		if o == old {
			found = true
			if n == nil {
				continue
			}
			o = n
		}
		fresh = append(fresh, o)
	}
	if !found && n != nil {
		fresh = append(fresh, n)
	}
	return fresh
}
