package routetable

// Sizes of the pages of a persistent array. A write copies one of each kind on its way: small ones, so that an edit costs little.
const (
	leafSize  = 16
	blockSize = 64
	trunkSize = 64
	perBlock  = leafSize * blockSize
	perTrunk  = perBlock * trunkSize
)

// owner numbers the edits of a table: what carries an edit's number is that edit's alone and may be changed in place. It is a number, not
// a pointer, so that pages of plain words hold no pointers at all.
type owner uint64

// parray is a persistent array: a copy of it is a snapshot, and a write copies the pages on its way that are not the edit's own yet.
type parray[T any] struct {
	root  []*trunk[T]
	n     int
	owner owner // of root
}

type trunk[T any] struct {
	owner  owner
	blocks [trunkSize]*block[T]
}

type block[T any] struct {
	owner owner
	leafs [blockSize]*leaf[T]
}

type leaf[T any] struct {
	owner owner
	v     [leafSize]T
}

// at returns the value at i, which is less than n.
func (a *parray[T]) at(i int) *T {
	return &a.root[i/perTrunk].blocks[i/perBlock%trunkSize].leafs[i/leafSize%blockSize].v[i%leafSize]
}

// edit returns the place of the value at i, for writing. i is at most n: at n the array grows.
func (a *parray[T]) edit(i int, o owner) *T {
	if a.owner != o {
		a.root = append(make([]*trunk[T], 0, len(a.root)+1), a.root...)
		a.owner = o
	}
	if i == a.n {
		a.n++
		if i%perTrunk == 0 {
			a.root = append(a.root, nil)
		}
	}
	t := &a.root[i/perTrunk]
	if *t == nil {
		*t = &trunk[T]{owner: o}
	} else if (*t).owner != o {
		fresh := **t
		fresh.owner = o
		*t = &fresh
	}
	b := &(*t).blocks[i/perBlock%trunkSize]
	if *b == nil {
		*b = &block[T]{owner: o}
	} else if (*b).owner != o {
		fresh := **b
		fresh.owner = o
		*b = &fresh
	}
	l := &(*b).leafs[i/leafSize%blockSize]
	if *l == nil {
		*l = &leaf[T]{owner: o}
	} else if (*l).owner != o {
		fresh := **l
		fresh.owner = o
		*l = &fresh
	}
	return &(*l).v[i%leafSize]
}

// slotArray is a persistent array of the refs of records. Refs stand in pages, so that the pointers to them are few and stay in the
// processor's caches.
type slotArray struct {
	pages parray[[slotPage]uint64]
	n     int
}

const slotPage = 4

// at returns the place of slot i, which is less than n.
func (a *slotArray) at(i int) *uint64 { return &a.pages.at(i / slotPage)[i%slotPage] }

// edit returns the place of slot i, for writing. The array grows as far as that.
func (a *slotArray) edit(i int, o owner) *uint64 {
	for i/slotPage > a.pages.n {
		a.pages.edit(a.pages.n, o)
	}
	a.n = max(a.n, i+1)
	return &a.pages.edit(i/slotPage, o)[i%slotPage]
}
