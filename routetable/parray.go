package routetable

// Pages of a persistent array.
const (
	leafSize  = 32
	blockSize = 128
	pageSize  = leafSize * blockSize
)

// owner numbers the edits of a table: what carries an edit's number is that edit's alone and may be changed in place. It is a number, not
// a pointer, so that pages of plain words hold no pointers at all.
type owner uint64

// parray is a persistent array: a copy of it is a snapshot, and a write copies the pages on its way that are not the edit's own yet.
type parray[T any] struct {
	root  []*block[T]
	n     int
	owner owner // of root
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
	return &a.root[i/pageSize].leafs[i/leafSize%blockSize].v[i%leafSize]
}

// edit returns the place of the value at i, for writing. i is at most n: at n the array grows.
func (a *parray[T]) edit(i int, o owner) *T {
	if a.owner != o {
		a.root = append(make([]*block[T], 0, len(a.root)+1), a.root...)
		a.owner = o
	}
	if i == a.n {
		a.n++
		if i%pageSize == 0 {
			a.root = append(a.root, &block[T]{owner: o})
		}
	}
	b := a.root[i/pageSize]
	if b.owner != o {
		fresh := *b
		fresh.owner = o
		b = &fresh
		a.root[i/pageSize] = b
	}
	at := i / leafSize % blockSize
	l := b.leafs[at]
	switch {
	case l == nil:
		l = &leaf[T]{owner: o}
		b.leafs[at] = l
	case l.owner != o:
		fresh := *l
		fresh.owner = o
		l = &fresh
		b.leafs[at] = l
	}
	return &l.v[i%leafSize]
}
