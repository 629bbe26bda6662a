package forwarder_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/routetable"
)

// judge tells which changes concern a name the stupid way: by a table of the changed rows alone. It waits for the word of a change, which
// comes a moment after the change.
type judge struct {
	mu      sync.Mutex
	told    *sync.Cond
	changes map[uint64]*routetable.Table // by generation
}

// judged puts the judge in the place of the table's own judgement.
func (r *router) judged() {
	j := &judge{changes: map[uint64]*routetable.Table{}}
	j.told = sync.NewCond(&j.mu)
	base := r.table.Generation()
	r.t.Cleanup(r.table.OnChange(j.note))
	r.node.JudgeChangesBy(func(s *routetable.Snapshot, generation uint64, name string) bool {
		return generation < base || j.changedSince(s, generation, name)
	})
}

func (j *judge) note(c routetable.Change) {
	t := routetable.New()
	for _, list := range [][]*routetable.Route{c.Added, c.Removed, c.Updated, c.Before} {
		for _, r := range list {
			t.Add(r.Pattern, "null")
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.changes[c.Generation] = t
	j.told.Broadcast()
}

func (j *judge) changedSince(s *routetable.Snapshot, generation uint64, name string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for g := generation + 1; g <= s.Generation(); g++ {
		for j.changes[g] == nil {
			j.told.Wait()
		}
		if len(j.changes[g].Lookup(name)) > 0 {
			return true
		}
	}
	return false
}

// A plan is made anew when a row changes that one of its names leads to, and only then.
func TestAPlanIsKeptUntilItsRowsChange(t *testing.T) {
	edit := func(pattern, address string, cols ...routetable.Column) func(*router) {
		return func(r *router) { r.rows(row{pattern, address, cols}) }
	}
	for _, c := range []struct {
		name   string
		target string // of the sender's link
		to     string
		edit   func(*router)
		anew   bool
		want   string // outcome after the edit; empty is Accepted
	}{
		{"another name", "", "A", edit("Z", "null"), false, ""},
		{"a pattern that does not fit", "", "A", edit("a*", "null"), false, ""},
		{"the same name", "", "A", edit("A", "null"), true, ""},
		{"a pattern that fits", "", "A", edit("*", "null"), true, ""},
		{"the row is gone", "", "A", func(r *router) { r.table.DeletePattern("A") }, true, "not-found"},
		{"other columns", "", "A", func(r *router) { r.table.Set("A", "route:B", routetable.WithOptional(true)) }, true, "not-found"},
		{"a name on the way", "", "A", edit("B", "null"), true, ""},
		{"another receiver of a name on the way", "", "A", func(r *router) { r.taker("H", nil) }, true, ""},
		{"a predicate for others", "", "A", edit("Z", "null", routetable.WithWhen("Property(`k`, `v`)")), false, ""},
		{"nothing, and it is unrouted", "", "N", edit("Z", "null"), false, "not-found"},
		{"unrouted no more", "", "N", edit("N", "null"), true, ""},
		{"the name in a URL", "", "amqp://h/N", edit("N", "null"), true, ""},
		{"the name in a URL, found", "", "amqp://h/A", edit("A", "null"), true, ""},
		{"a URL, found by its name, comes first as written", "", "amqp://h/A", edit("amqp://h/A", "null"), true, ""},
		{"the target, where the address has no row", "A", "N", edit("A", "null"), true, ""},
		{"the address, where the target has a row", "A", "N", edit("N", "null"), true, ""},
		{"the target, where the address has a row", "T", "A", edit("T", "null"), false, ""},
		{"the target, of a message without an address", "A", "", edit("A", "null"), true, ""},
		{"another name, of a message without an address", "A", "", edit("Z", "null"), false, ""},
		{"the target, where the address has a fallback row only", "T", "F", edit("T", "null"), true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, forwarder.Options{}, "A --> route:B")
			r.judged()
			r.taker("H", nil)
			r.rows(row{"B", "route:H", nil}, row{"F", "null", []routetable.Column{routetable.WithFallback(true)}})
			s := r.sender(c.target)
			send := func() string {
				if got := r.outcome(s, message(c.to, "x")); got != "Rejected" {
					return got
				}
				return "not-found"
			}
			first := send()
			before := r.node.Plans()
			if again := send(); again != first || r.node.Plans() != before {
				t.Errorf("nothing changed: %s then %s, and %d plans made", first, again, r.node.Plans()-before)
			}
			c.edit(r)
			if got, want := send(), c.want; got != want && (want != "" || got != "Accepted") {
				t.Errorf("got %s", got)
			}
			if anew := r.node.Plans() > before; anew != c.anew {
				t.Errorf("made anew: %v, want %v", anew, c.anew)
			}
		})
	}
}

// A row of the operator's that names a receiver leads nowhere when the receiver is gone, although the row has not changed.
func TestAPlanEndsWithItsReceiver(t *testing.T) {
	r := start(t, forwarder.Options{})
	r.judged()
	rcv := r.receiver("H", nil)
	r.rows(row{"A", r.link("H"), nil})
	s := r.sender("")
	done := make(chan string, 1)
	go func() { done <- r.outcome(s, message("A", "x")) }()
	r.take(rcv)
	if got := <-done; got != "Accepted" {
		t.Fatal(got)
	}
	rcv.Close(within(t))
	r.until("the receiver's row is gone", func() bool { return len(r.table.Lookup("H")) == 0 })
	if got := r.outcome(s, message("A", "x")); got != "Rejected" {
		t.Errorf("got %s", got)
	}
}

// While the table changes 2 000 times a second, messages whose rows do not change are not planned again, and arrive in order.
func TestEditsOfOtherRowsCostMessagesNothing(t *testing.T) {
	r := start(t, forwarder.Options{})
	got := r.taker("H", nil)
	r.rows(row{"A", "route:H", nil})
	s := r.sender("")
	if out := r.outcome(s, message("A", "x")); out != "Accepted" {
		t.Fatal(out)
	}
	before, generation := r.node.Plans(), r.table.Generation()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; {
			<-tick.C
			for range 20 {
				r.table.Add(fmt.Sprintf("other-%d", i%100), fmt.Sprintf("amqp://h%d", i/100%2))
				r.table.DeletePattern(fmt.Sprintf("other-%d", (i+50)%100))
				i++
			}
		}
	}()
	const n = 1000
	for range n {
		if out := r.outcome(s, message("A", "x")); out != "Accepted" {
			t.Fatal(out)
		}
	}
	cancel()
	wg.Wait()
	if edits := r.table.Generation() - generation; edits < 100 {
		t.Errorf("only %d edits", edits)
	} else {
		t.Logf("%d edits", edits)
	}
	// Where the machine stops for long enough, more changes come than the table remembers.
	if plans := r.node.Plans() - before; plans > n/100 {
		t.Errorf("%d plans for %d messages", plans, n)
	}
	if got.Load() != n+1 {
		t.Errorf("%d arrived", got.Load())
	}
	r.counts("A", "route:H", fmt.Sprintf("matched %d copied 0 delivered 0 released 0 dropped 0", n+1))
}
