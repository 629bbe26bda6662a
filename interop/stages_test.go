package interop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What is accepted is at its receivers, whatever is cut, held up or killed, and whenever: the cases are made of a side, a stage of a delivery, a
// harm and a way to deliver.

// side is where the harm is done.
type side string

const (
	atSender    side = "sender"             // sender | router
	atHop       side = "next router"        // router | router, which has the receiver
	atListening side = "listening receiver" // router | receiver, dialled
	atAttached  side = "attached receiver"  // router | receiver, which attached
)

// moment is a stage of a delivery, as a frame that passes the cable.
type moment struct {
	name string
	up   bool // of frames toward the receiver
	code uint64
	more bool
	at   place
}

var moments = []moment{
	{"before the transfer", true, transfer, false, before},
	{"in the middle of the transfer's frame", true, transfer, false, middle},
	{"between the frames of the transfer", true, transfer, true, after},
	{"after the transfer", true, transfer, false, after},
	{"before the disposition", false, disposition, false, before},
	{"in the middle of the disposition", false, disposition, false, middle},
	{"after the disposition", false, disposition, false, after},
	{"before the settlement", true, disposition, false, before}, // of mode second
	{"after the settlement", true, disposition, false, after},
}

// happens tells whether there is such a moment in a delivery: we dial in mode first.
func (m moment) happens(where side, second bool) bool {
	return m.code != disposition || !m.up || second && (where == atSender || where == atAttached)
}

// harm is what is done then.
type harm string

const (
	isCut       harm = "cut"
	isReset     harm = "reset"
	isStalled   harm = "stalled"
	isSwallowed harm = "swallowed" // all that is said, and then cut
	routerDies  harm = "kill -9 of the router"
	nextDies    harm = "kill -9 of the next router"
)

// fault is a case.
type fault struct {
	side   side
	stage  moment
	harm   harm
	pick   string
	second bool // settled by mode second, where the party may choose
}

func (f fault) String() string {
	mode := "first"
	if f.second {
		mode = "second"
	}
	return fmt.Sprintf("%s, %s, %s, pick %s, mode %s", f.side, f.stage.name, f.harm, f.pick, mode)
}

// kills tells whether a process dies of it: then the case has routers of its own.
func (f fault) kills() bool { return f.harm == routerDies || f.harm == nextDies }

// allFaults makes every case.
func allFaults() (all []fault) {
	for _, where := range []side{atSender, atHop, atListening, atAttached} {
		harms := []harm{isCut, isReset, isStalled, isSwallowed, routerDies}
		if where == atHop {
			harms = append(harms, nextDies)
		}
		for _, s := range moments {
			for _, h := range harms {
				for _, pick := range []string{"all", "any", "first"} {
					for _, second := range []bool{false, true} {
						if s.happens(where, second) {
							all = append(all, fault{where, s, h, pick, second})
						}
					}
				}
			}
		}
	}
	return all
}

// faultBench is what cases share: routers that are not killed, and the count of what came of all messages.
type faultBench struct {
	first, next *daemon
	number      atomic.Int32

	mu     sync.Mutex // guards outcomes
	counts map[string]int
}

// An accepted message is at the receivers that the table named, whatever happens at any stage of its delivery.
func TestFaultsAtEveryStage(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	cases := faultCases(rand.New(rand.NewPCG(seed, 0)))
	b := &faultBench{counts: map[string]int{}}
	b.first, b.next = b.routers(t)
	queue := make(chan fault)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for f := range queue {
				for _, problem := range b.try(t, f) {
					t.Errorf("%s: %s", f, problem)
				}
			}
		})
	}
	began := time.Now()
	for _, f := range cases {
		queue <- f
	}
	close(queue)
	wg.Wait()
	t.Logf("%d cases in %v: %v", len(cases), time.Since(began).Round(time.Millisecond), b.counts)
}

func (b *faultBench) routers(t testing.TB) (first, next *daemon) {
	file := filepath.Join(t.TempDir(), "empty.routes")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return startDaemon(t, routerProgram, "first", file, "--state", t.TempDir()), startDaemon(t, routerProgram, "next", file)
}

// scene is a case while it runs.
type scene struct {
	f           fault
	name        string
	first, next *daemon
	cable       *cable
	ship        *shipper
	listening   *rawServer // the place that harm comes to, one of the two
	attached    *taker
	steady      *rawServer // the other place
	sprung      chan struct{}
	again       sync.WaitGroup // a process that was killed starts
	failed      error
}

const (
	faultMessages = 60
	faultAt       = 6 // the transfer that the trap is for
	faultAnswer   = 3 // the disposition: one may answer many transfers
)

// try runs a case and gives what is wrong.
func (b *faultBench) try(t *testing.T, f fault) (problems []string) {
	x := &scene{f: f, name: fmt.Sprintf("FAULT-%d", b.number.Add(1)), first: b.first, next: b.next, sprung: make(chan struct{})}
	if f.kills() {
		x.first, x.next = b.routers(t)
		defer x.first.kill()
		defer x.next.kill()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	x.steady = listenRaw(t, nil)
	x.cable = layCable(t, "")
	if err := x.wire(ctx, t); err != nil {
		return []string{err.Error()}
	}
	var wg sync.WaitGroup
	if x.attached != nil {
		wg.Go(func() { x.attached.take(ctx) })
		select {
		case <-x.attached.up:
		case <-ctx.Done():
			return []string{"the receiver cannot attach"}
		}
	}
	x.lay()
	if err := x.ship.ship(ctx); err != nil {
		problems = append(problems, err.Error())
	}
	x.again.Wait()
	cancel()
	wg.Wait()
	if x.failed != nil {
		problems = append(problems, x.failed.Error())
	}
	if !isDone(x.sprung) {
		problems = append(problems, "the moment never came")
	}
	b.count(x.ship.attempts)
	return append(problems, x.account()...)
}

func (b *faultBench) count(attempts []attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range attempts {
		if a.cut {
			a.outcome = "no outcome"
		}
		b.counts[a.outcome]++
	}
}

// wire sets up places and rows.
func (x *scene) wire(ctx context.Context, t testing.TB) error {
	x.ship = &shipper{addr: x.first.addr, to: x.name, second: x.f.second, total: faultMessages, window: 8}
	size := 100
	if x.f.stage.more {
		size = 200_000
	}
	x.ship.message = func(n int) ([]byte, bool) {
		if n%5 == 0 {
			return numbered(n, size), false
		}
		return numbered(n, 100), false
	}
	place := ""
	switch x.f.side {
	case atSender:
		x.cable.lead(x.first.addr)
		x.ship.addr = x.cable.addr
		x.listening = listenRaw(t, nil)
		place = x.listening.url("")
	case atListening:
		x.listening = listenRaw(t, nil)
		x.cable.lead(x.listening.addr)
		place = "amqp://" + x.cable.addr
	case atHop:
		x.cable.lead(x.next.addr)
		place = "amqp://" + x.cable.addr + "/" + x.name // a target waits for its row, where the receiver is away
		x.attached = newTaker(x.next.addr, x.name)
	case atAttached:
		x.cable.lead(x.first.addr)
		x.attached = newTaker(x.cable.addr, x.name)
	}
	if x.attached != nil {
		x.attached.second = x.f.second
	}
	if place == "" && x.f.pick == "any" {
		x.attached.queue = true
	}
	if place == "" && x.f.pick == "first" {
		x.attached.from = x.name + ".one"
		place = "route:" + x.name + ".one"
	}
	return x.addRows(ctx, place)
}

func (x *scene) addRows(ctx context.Context, places ...string) error {
	d, err := openDoor(ctx, "amqp://"+x.first.addr)
	if err != nil {
		return err
	}
	defer d.close()
	for _, p := range append(places, x.steady.url("")) {
		if p == "" {
			continue
		}
		row := map[string]any{"pattern": x.name, "address": p, "pick": x.f.pick}
		if x.f.pick == "any" {
			row["balance"] = "round-robin" // each gets its share, however quick the other is
		}
		if err := d.send(ctx, "ADD", row); err != nil {
			return err
		}
		if a, err := d.answer(ctx); err != nil || a.status >= 300 {
			return fmt.Errorf("add %s: %d %s %w", p, a.status, a.text, err)
		}
	}
	return nil
}

// lay sets the trap.
func (x *scene) lay() {
	s := x.f.stage
	trap := &trap{up: s.up, code: s.code, more: s.more, at: s.at, nth: faultAt, spring: x.spring}
	if s.more || s.code == disposition {
		trap.nth = faultAnswer
	}
	if x.f.side == atAttached { // it connected to the router
		trap.up = !trap.up
	}
	x.cable.set(trap)
}

// spring does the harm.
func (x *scene) spring(s *strand) {
	defer close(x.sprung)
	x.cable.set(nil)
	switch x.f.harm {
	case isCut:
		s.cut()
	case isReset:
		s.reset()
	case isStalled:
		pause(context.Background(), 300*time.Millisecond)
	case isSwallowed:
		s.swallow(300 * time.Millisecond)
	case routerDies:
		x.revive(x.first)
	case nextDies:
		x.revive(x.next)
	}
}

// revive kills a router, and starts it again beside what goes on. It has its table on disk.
func (x *scene) revive(d *daemon) {
	d.kill()
	x.again.Go(func() { x.failed = d.start() })
}

// account holds what the sender was told to what the places have.
func (x *scene) account() (problems []string) {
	shaky := x.attached.orNone()
	if x.listening != nil {
		shaky = takenBy(x.listening)
	}
	steady := takenBy(x.steady)
	wrong := func(format string, a ...any) {
		if len(problems) < 5 {
			problems = append(problems, fmt.Sprintf(format, a...))
		}
	}
	had := [2]map[int]int{{}, {}}
	for i, list := range [2][]taken{shaky, steady} {
		for _, m := range list {
			if had[i][m.n]++; had[i][m.n] > 1 && !m.again {
				wrong("message %d came again to place %d, and does not say so", m.n, i)
			}
			if i == 1 && had[i][m.n] > 1 && x.f.side != atSender && x.f.harm != routerDies {
				wrong("message %d came twice to the place where nothing happened", m.n)
			}
		}
	}
	lost, other := 0, 0
	for n, a := range x.ship.attempts {
		switch {
		case a.cut:
			lost++
		case a.outcome == "accepted":
			there := had[1][n] > 0 && (had[0][n] > 0 || x.f.side == atAttached && !x.attached.owes(&x.ship.attempts[n])) // its row goes with its link
			if x.f.pick != "all" {
				there = had[0][n] > 0 || had[1][n] > 0
			}
			if !there {
				wrong("message %d was accepted, and is at the places %d and %d times", n, had[0][n], had[1][n])
			}
		case a.outcome == "modified" || a.outcome == "released":
			other++
		default:
			wrong("message %d is %q", n, a.outcome)
		}
	}
	return append(problems, x.disorder(had, lost, other)...)
}

// disorder looks for more trouble than the harm can have made.
func (x *scene) disorder(had [2]map[int]int, lost, other int) (problems []string) {
	if x.f.harm == isStalled && (lost > 0 || other > 0) {
		problems = append(problems, fmt.Sprintf("nothing was cut, and %d are lost and %d not accepted", lost, other))
	}
	if x.f.side != atSender && x.f.harm != routerDies && lost > 0 {
		problems = append(problems, fmt.Sprintf("%d have no outcome, and the sender was not cut", lost))
	}
	if lost > x.ship.window || other > 3*x.ship.window {
		problems = append(problems, fmt.Sprintf("%d have no outcome and %d are not accepted of %d at a time", lost, other, x.ship.window))
	}
	if x.ship.stalls > 0 {
		problems = append(problems, fmt.Sprintf("the sender was left without a word for %v, %d times", patience, x.ship.stalls))
	}
	if x.f.pick == "all" {
		return problems
	}
	for n := range had[0] {
		if had[1][n] > 0 && !slices.ContainsFunc(append(x.attached.orNone(), takenBy(x.steady)...), func(m taken) bool { return m.n == n && m.again }) {
			problems = append(problems, fmt.Sprintf("message %d is at both places, and neither says that it may be", n))
		}
	}
	return problems
}

func (x *taker) orNone() []taken {
	if x == nil {
		return nil
	}
	return x.all()
}
