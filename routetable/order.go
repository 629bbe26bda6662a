package routetable

import "slices"

// orderTree is the rows in table order: a persistent B+ tree of their keys. Its leaves have no pointers.
type orderTree struct{ root *orderNode }

// orderKey is where a row stands: by order, then by position, then by slot.
type orderKey struct {
	pos   int64
	order int32
	slot  uint32
}

func (a orderKey) less(b orderKey) bool {
	if a.order != b.order {
		return a.order < b.order
	}
	if a.pos != b.pos {
		return a.pos < b.pos
	}
	return a.slot < b.slot
}

type orderNode struct {
	owner owner
	n     int          // rows beneath
	keys  []orderKey   // of a leaf; of an inner node the first key of each child but that the first is a lower bound
	kids  []*orderNode // nil in a leaf
}

const (
	maxOrderLeaf = 64
	maxOrderKids = 32
)

func (r *Route) orderKey() orderKey {
	return orderKey{pos: r.pos, order: int32(r.Order), slot: uint32(r.ID)}
}

func (n *orderNode) own(o owner) *orderNode {
	if n.owner == o {
		return n
	}
	fresh := &orderNode{owner: o, n: n.n}
	fresh.keys = append(make([]orderKey, 0, len(n.keys)+4), n.keys...)
	if n.kids != nil {
		fresh.kids = append(make([]*orderNode, 0, len(n.kids)+1), n.kids...)
	}
	return fresh
}

// child is the place of the child that k is or would be in.
func (n *orderNode) child(k orderKey) int {
	i := n.search(k)
	if i == len(n.keys) || k.less(n.keys[i]) {
		i--
	}
	return max(i, 0)
}

// search is the place of the first key that is not less than k.
func (n *orderNode) search(k orderKey) int {
	lo, hi := 0, len(n.keys)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if n.keys[mid].less(k) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// add puts a key in. It is not there yet.
func (t *orderTree) add(k orderKey, o owner) {
	if t.root == nil {
		t.root = &orderNode{owner: o}
	}
	root, right := t.root.add(k, o)
	if right != nil {
		root = &orderNode{owner: o, n: root.n + right.n, keys: []orderKey{root.keys[0], right.keys[0]}, kids: []*orderNode{root, right}}
	}
	t.root = root
}

// add returns the node with k, and a right neighbour where it had to be split.
func (n *orderNode) add(k orderKey, o owner) (left, right *orderNode) {
	n = n.own(o)
	n.n++
	if n.kids == nil {
		i := n.search(k)
		n.keys = append(n.keys, orderKey{})
		copy(n.keys[i+1:], n.keys[i:])
		n.keys[i] = k
		if len(n.keys) <= maxOrderLeaf {
			return n, nil
		}
		return n.split(i, o)
	}
	i := n.child(k)
	if k.less(n.keys[i]) {
		n.keys[i] = k
	}
	kid, more := n.kids[i].add(k, o)
	n.kids[i] = kid
	if more == nil {
		return n, nil
	}
	n.keys = append(n.keys, orderKey{})
	n.kids = append(n.kids, nil)
	copy(n.keys[i+2:], n.keys[i+1:])
	copy(n.kids[i+2:], n.kids[i+1:])
	n.keys[i+1], n.kids[i+1] = more.keys[0], more
	if len(n.kids) <= maxOrderKids {
		return n, nil
	}
	return n.split(i+1, o)
}

// split cuts a full node in two: in the middle, or where rows are appended, near the end, so that a table that was loaded has full pages.
func (n *orderNode) split(last int, o owner) (left, right *orderNode) {
	at := len(n.keys) / 2
	if last == len(n.keys)-1 {
		at = len(n.keys) - 1
	}
	right = &orderNode{owner: o, keys: append(make([]orderKey, 0, len(n.keys)-at+8), n.keys[at:]...)}
	n.keys = append(make([]orderKey, 0, at), n.keys[:at]...)
	if n.kids == nil {
		right.n = len(right.keys)
	} else {
		right.kids = append(make([]*orderNode, 0, len(n.kids)-at+8), n.kids[at:]...)
		n.kids = append(make([]*orderNode, 0, at), n.kids[:at]...)
		for _, kid := range right.kids {
			right.n += kid.n
		}
	}
	n.n -= right.n
	return n, right
}

// with returns keys with those of the tree, sorted; not ok where two of them have one place.
func (t *orderTree) with(keys []orderKey) (all []orderKey, ok bool) {
	t.each(0, func(k orderKey) bool { keys = append(keys, k); return true })
	compare := func(a, b orderKey) int {
		switch {
		case a.less(b):
			return -1
		case b.less(a):
			return 1
		}
		return 0
	}
	if !slices.IsSortedFunc(keys, compare) {
		slices.SortFunc(keys, compare)
	}
	for i := 1; i < len(keys); i++ {
		if keys[i].order == keys[i-1].order && keys[i].pos == keys[i-1].pos {
			return nil, false
		}
	}
	return keys, true
}

// fill makes the tree one of sorted keys, with full pages.
func (t *orderTree) fill(keys []orderKey, o owner) {
	var level []*orderNode
	for len(keys) > 0 {
		n := min(len(keys), maxOrderLeaf)
		level = append(level, &orderNode{owner: o, n: n, keys: slices.Clone(keys[:n])})
		keys = keys[n:]
	}
	for len(level) > 1 {
		var above []*orderNode
		for len(level) > 0 {
			n := min(len(level), maxOrderKids)
			x := &orderNode{owner: o, kids: slices.Clone(level[:n])}
			for _, kid := range x.kids {
				x.keys = append(x.keys, kid.keys[0])
				x.n += kid.n
			}
			above, level = append(above, x), level[n:]
		}
		level = above
	}
	t.root = nil
	if len(level) > 0 {
		t.root = level[0]
	}
}

// remove takes a key out, which is there.
func (t *orderTree) remove(k orderKey, o owner) {
	t.root = t.root.remove(k, o)
	for t.root != nil && len(t.root.kids) == 1 {
		t.root = t.root.kids[0]
	}
}

// remove returns the node without k, nil where nothing is left. Nodes are joined only when they are empty: rows come and go at random.
func (n *orderNode) remove(k orderKey, o owner) *orderNode {
	if n.n == 1 {
		return nil
	}
	n = n.own(o)
	n.n--
	if n.kids == nil {
		i := n.search(k)
		n.keys = append(n.keys[:i], n.keys[i+1:]...)
		return n
	}
	i := n.child(k)
	if kid := n.kids[i].remove(k, o); kid != nil {
		n.kids[i] = kid
	} else {
		n.keys = append(n.keys[:i], n.keys[i+1:]...)
		n.kids = append(n.kids[:i], n.kids[i+1:]...)
	}
	return n
}

// each gives the slots in table order, from the nth on.
func (t *orderTree) each(from int, yield func(orderKey) bool) {
	if t.root != nil {
		t.root.each(from, yield)
	}
}

func (n *orderNode) each(from int, yield func(orderKey) bool) bool {
	if n.kids == nil {
		for _, k := range n.keys[min(from, len(n.keys)):] {
			if !yield(k) {
				return false
			}
		}
		return true
	}
	for _, kid := range n.kids {
		if from >= kid.n {
			from -= kid.n
			continue
		}
		if !kid.each(from, yield) {
			return false
		}
		from = 0
	}
	return true
}

// rank is how many keys are less than k.
func (t *orderTree) rank(k orderKey) int {
	rank := 0
	for n := t.root; n != nil; {
		if n.kids == nil {
			return rank + n.search(k)
		}
		i := n.child(k)
		for _, kid := range n.kids[:i] {
			rank += kid.n
		}
		n = n.kids[i]
	}
	return rank
}

// len is the number of rows.
func (t *orderTree) len() int {
	if t.root == nil {
		return 0
	}
	return t.root.n
}

// around returns the keys next to k on either side, which need not be in the tree itself.
func (t *orderTree) around(k orderKey) (before, after orderKey, hasBefore, hasAfter bool) {
	at := t.rank(k)
	from := max(at-1, 0)
	t.each(from, func(o orderKey) bool {
		switch {
		case o.less(k):
			before, hasBefore = o, true
		case k.less(o):
			after, hasAfter = o, true
			return false
		}
		return true
	})
	return before, after, hasBefore, hasAfter
}
