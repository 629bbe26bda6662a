package routetable

import (
	"runtime"
	"slices"
	"sync"
)

// Many rows at once: what can be made of each by itself is made on all processors, bunch by bunch, and put into the edit in order.

// bunchRows is the rows of a bunch.
const bunchRows = 2048

// bunch is rows with all that the edit needs of each: its record, the hashes that it is filed under, and for a wildcard form the keys of which
// one is chosen when it is filed. The lists of all rows stand one behind the other.
type bunch struct {
	from, to int // of the rows that are put
	raw      []byte

	rows    []bunchRow
	records []byte
	order   []orderKey
	hashes  []uint32
	forms   []int // where the keys of each end
	keys    []wildKey
	whens   int
	err     error
	done    chan struct{}
}

// bunchRow is where the lists of a row end.
type bunchRow struct {
	slot                  uint32
	record, hashes, forms int
}

func (b *bunch) clear() {
	b.rows, b.records, b.order, b.hashes = b.rows[:0], b.records[:0], b.order[:0], b.hashes[:0]
	b.forms, b.keys, b.whens, b.err = b.forms[:0], b.keys[:0], 0, nil
}

// addRow notes a row that is compiled.
func (b *bunch) addRow(r *Route) {
	b.records = appendRecord(b.records, r)
	b.file(r, r.c.pattern)
}

// file notes where a row is filed, whose record is the last.
func (b *bunch) file(r *Route, p *pattern) {
	b.order = append(b.order, r.orderKey())
	if r.When != "" {
		b.whens++
	}
	if !p.plain() {
		b.hashes = append(b.hashes, uint32(hashText(kindText, p.text)>>32))
	}
	for _, lit := range p.lits {
		b.hashes = append(b.hashes, uint32(hashText(kindExact, lit)>>32))
	}
	for h := range originKeys(r.Origin) {
		b.hashes = append(b.hashes, uint32(h>>32))
	}
	for i := range p.forms {
		b.keys = keysOf(b.keys, &p.forms[i])
		b.forms = append(b.forms, len(b.keys))
	}
	b.rows = append(b.rows, bunchRow{uint32(r.ID), len(b.records), len(b.hashes), len(b.forms)})
}

// inBunches works through bunches: next fills one and reports whether there was anything left, work is called on any goroutine, put in order.
func inBunches(next func(*bunch) bool, work func(*bunch), put func(*bunch) error) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	var under, idle []*bunch
	last := func() error {
		b := under[0]
		under = under[1:]
		<-b.done
		idle = append(idle, b)
		if b.err != nil {
			return b.err
		}
		return put(b)
	}
	for {
		b := &bunch{done: make(chan struct{}, 1)}
		if n := len(idle); n > 0 {
			b, idle = idle[n-1], idle[:n-1]
		}
		b.clear()
		if !next(b) {
			break
		}
		wg.Go(func() { work(b); b.done <- struct{}{} })
		if under = append(under, b); len(under) > runtime.GOMAXPROCS(0) {
			if err := last(); err != nil {
				return err
			}
		}
	}
	for len(under) > 0 {
		if err := last(); err != nil {
			return err
		}
	}
	return nil
}

// putBunch puts the rows of a bunch, which are new, but for their places in the order of the table.
func (e *edit) putBunch(b *bunch) error {
	var record, hash, form, key int
	x := &e.s.index
	for i := range b.rows {
		r := &b.rows[i]
		at := e.slotPlace(r.slot)
		if *at != 0 {
			return errChange
		}
		*at = e.t.arena.put(b.records[record:r.record])
		e.written = append(e.written, *at)
		record = r.record
		for ; hash < r.hashes; hash++ {
			x.keys.add(b.hashes[hash], r.slot, e.owner)
		}
		for ; form < r.forms; form++ {
			x.mark(x.fileForm(b.keys[key:b.forms[form]], r.slot, e.owner))
			key = b.forms[form]
		}
	}
	e.s.whens += b.whens
	e.s.chunks = e.t.arena.chunks
	return nil
}

// putAll puts new rows that are compiled and have their positions.
func (e *edit) putAll(rows []*Route) error {
	var all []orderKey
	ids := e.ids
	many := len(rows) >= bulk && len(rows) >= e.s.Len()/16
	if many {
		keys := make([]orderKey, len(rows), len(rows)+e.s.Len())
		for i, r := range rows {
			r.ID = e.ids.next()
			keys[i] = r.orderKey()
		}
		all, many = e.s.order.with(keys)
	}
	if !many { // or a position is taken already: whoever has it moves
		e.ids = ids
		for _, r := range rows {
			e.put(r)
		}
		return nil
	}
	words := len(rows)
	for _, r := range rows {
		e.fresh = append(e.fresh, len(e.touched))
		e.touched = append(e.touched, touch{id: r.ID, now: r})
		words += len(r.c.pattern.forms)
	}
	e.s.index.keys.reserve(words, e.owner)
	e.s.order.fill(all, e.owner)
	at := 0
	return inBunches(func(b *bunch) bool {
		b.from, b.to = at, min(at+bunchRows, len(rows))
		at = b.to
		return b.from < b.to
	}, func(b *bunch) {
		for _, r := range rows[b.from:b.to] {
			b.addRow(r)
		}
	}, e.putBunch)
}

// dropRows drops rows of the table. Where they are most of it, the others are filed anew.
func (e *edit) dropRows(rows []*Route) {
	left := e.s.Len() - len(rows)
	if len(rows) < bulk || left > len(rows)/4 {
		for _, r := range rows {
			e.drop(r)
		}
		return
	}
	if e.places == nil {
		e.places = make(map[uint64]int, len(rows))
	}
	e.touched = slices.Grow(e.touched, len(rows))
	for _, r := range rows {
		e.touch(r.ID, r).now = nil
		at := e.slot(r)
		e.dropRecord(*at)
		*at = 0
	}
	keys := make([]orderKey, 0, left)
	e.s.order.each(0, func(k orderKey) bool {
		if *e.s.slots.at(int(k.slot)) != 0 {
			keys = append(keys, k)
		}
		return true
	})
	e.s.order.fill(keys, e.owner)
	e.s.index, e.s.whens = index{}, 0
	for _, k := range keys {
		r := e.s.lastOf(k.slot)
		e.s.index.add(r, e.owner)
		if r.c.when != nil {
			e.s.whens++
		}
	}
}

// inParts calls f for parts of n things, on all processors where they are many.
func inParts(n int, f func(from, to int)) {
	parts := runtime.GOMAXPROCS(0)
	if n < bulk {
		parts = 1
	}
	var wg sync.WaitGroup
	for i := range parts - 1 {
		wg.Go(func() { f(n*i/parts, n*(i+1)/parts) })
	}
	f(n*(parts-1)/parts, n)
	wg.Wait()
}
