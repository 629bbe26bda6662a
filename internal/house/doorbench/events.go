package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"
)

const (
	eventsPath = "/router/manager"
	event200   = `{"op":"event","id":"0192f3a1-7c11-7b3e-9d2e-5a6f00112233","type":"Order","data":{"number":123456,"customer":"Ada Lovelace, London","lines":[{"sku":"A-1","n":2},{"sku":"B-7","n":1}],"paid":true}}`
	inRing     = 1_000_000
	inReplay   = 100_000
	replays    = 10
	ahead      = 1000 // events that a sender is ahead of the slowest subscriber: less than makes one slow matters little, more disconnects it
)

// eventLines are the figures of the event router.
func eventLines(duration time.Duration) []line {
	copies := func(n int) func(*router) (float64, float64, error) {
		return func(r *router) (float64, float64, error) { return copyCost(r, n, duration) }
	}
	return []line{
		{what: "an event to 1 subscriber: CPU of a copy", unit: "µs", cpu: true, goal: 1, besideUnit: "copies/s", of: copies(1)},
		{what: "an event to 16 subscribers: CPU of a copy", unit: "µs", cpu: true, goal: 1, besideUnit: "copies/s", of: copies(16)},
		{what: fmt.Sprintf("%d events in the ring: memory of a byte", inRing), unit: "", goal: 1.3, besideUnit: "MB of frames", of: ringMemory},
		{what: fmt.Sprintf("replay of %d: events of a CPU second", inReplay), unit: "k", goal: 500, least: true, besideUnit: "events/s", of: replaySpeed},
		{what: fmt.Sprintf("replay of %d over AMQP: events of a CPU second", inReplay), unit: "k", goal: 500, least: true, besideUnit: "events/s to go-amqp", of: amqpReplay},
		{what: "beside one that reads nothing: p99 of three, to that without", unit: "", goal: 1.5, besideUnit: "µs without", of: stalled},
	}
}

// join opens a component of a name, with subscriptions to Order from a time on; empty is without.
func join(r *router, name, from string) (*peer, error) {
	p, err := dial(r.addr, eventsPath)
	if err != nil {
		return nil, err
	}
	p.add(`{"op":"hello","name":"`, name, `"}`)
	answers := 1
	if from != "" {
		p.add(`{"op":"subscribe","ref":1,"type":"Order","direction":"request","from_time":"`, from, `"}`)
		answers++
	}
	if err := p.flush(); err != nil {
		return nil, err
	}
	for answers > 0 && err == nil {
		err = p.read(func(b []byte) {
			if bytes.HasPrefix(b, []byte(`{"op":"error"`)) {
				panic(string(b))
			}
			answers--
		})
	}
	return p, err
}

// isEvent tells an event from answers and health checks.
func isEvent(b []byte) bool { return bytes.HasPrefix(b, []byte(`{"op":"event"`)) }

// subscribers are components that count what they get.
type subscribers struct {
	peers []*peer
	got   []atomic.Int64
}

func subscribe(r *router, n int) (*subscribers, error) {
	s := &subscribers{got: make([]atomic.Int64, n)}
	for i := range n {
		p, err := join(r, "S"+strconv.Itoa(i), "now")
		if err != nil {
			return nil, err
		}
		s.peers = append(s.peers, p)
		go func() {
			for p.read(func(b []byte) {
				if isEvent(b) {
					s.got[i].Add(1)
				}
			}) == nil {
			}
		}()
	}
	return s, nil
}

func (s *subscribers) close() {
	for _, p := range s.peers {
		p.nc.Close()
	}
}

// await waits until all have n events.
func (s *subscribers) await(n int64) error {
	for late := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Microsecond) {
		if s.least() >= n {
			return nil
		}
		if time.Now().After(late) {
			return errors.New("events do not come")
		}
	}
}

func (s *subscribers) least() int64 {
	least := s.got[0].Load()
	for i := range s.got {
		least = min(least, s.got[i].Load())
	}
	return least
}

// copyCost has a component send by the hundred to n that have subscribed.
func copyCost(r *router, n int, duration time.Duration) (each, perSecond float64, err error) {
	s, err := subscribe(r, n)
	if err != nil {
		return 0, 0, err
	}
	defer s.close()
	sender, err := join(r, "sender", "")
	if err != nil {
		return 0, 0, err
	}
	defer sender.nc.Close()
	sent := 0
	step := func() (bool, error) {
		if err := send(sender, 100); err != nil {
			return false, err
		}
		sent += 100
		return true, s.await(int64(sent - ahead))
	}
	cpu, took, count, err := measured(r, duration, step, &sent)
	count *= n
	return float64(cpu.Nanoseconds()) / 1000 / float64(count), float64(count) / took.Seconds(), err
}

func send(p *peer, n int) error {
	for range n {
		p.add(event200)
	}
	return p.flush()
}

// fill has n events kept.
func fill(r *router, n int) error {
	p, err := join(r, "filler", "")
	if err != nil {
		return err
	}
	defer p.nc.Close()
	for range n / 100 {
		if err := send(p, 100); err != nil {
			return err
		}
	}
	p.add(`{"op":"types","ref":"last","shareable":[]}`) // its answer says that all were taken
	if err := p.flush(); err != nil {
		return err
	}
	return p.read(func([]byte) {})
}

// ringMemory compares memory with the bytes of the frames that came.
func ringMemory(r *router) (ratio, megabytes float64, err error) {
	if err := fill(r, 1000); err != nil { // buffers and pages that any event needs
		return 0, 0, err
	}
	before := r.memory()
	if err := fill(r, inRing); err != nil {
		return 0, 0, err
	}
	sent := float64(inRing * len(event200))
	return (r.memory() - before) / sent, sent / 1e6, nil
}

// replaySpeed has a component subscribe to what is kept, some times.
func replaySpeed(r *router) (perCPU, perSecond float64, err error) {
	if err := fill(r, inReplay); err != nil {
		return 0, 0, err
	}
	p, err := join(r, "late", "")
	if err != nil {
		return 0, 0, err
	}
	defer p.nc.Close()
	before, began := r.cpu(), time.Now()
	for range replays {
		p.add(`{"op":"subscribe","ref":1,"type":"Order","direction":"request"}`)
		if err := p.flush(); err != nil {
			return 0, 0, err
		}
		for n := 0; n < inReplay; {
			if err := p.read(func(b []byte) {
				if isEvent(b) {
					n++
				}
			}); err != nil {
				return 0, 0, err
			}
		}
	}
	return speeds(r.cpu()-before, time.Since(began))
}

func speeds(cpu, took time.Duration) (perCPU, perSecond float64, err error) {
	const n = replays * inReplay
	return n / cpu.Seconds() / 1000, n / took.Seconds(), nil
}

// amqpReplay is replaySpeed by receivers of AMQP.
func amqpReplay(r *router) (perCPU, perSecond float64, err error) {
	if err := fill(r, inReplay); err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := amqp.Dial(ctx, r.amqp, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous(), MaxFrameSize: 64 << 10})
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	s, err := c.NewSession(ctx, nil)
	if err != nil {
		return 0, 0, err
	}
	before, began := r.cpu(), time.Now()
	for range replays {
		recv, err := s.NewReceiver(ctx, "event:req/Order", &amqp.ReceiverOptions{Credit: 2000, SettlementMode: amqp.ReceiverSettleModeFirst.Ptr(), Properties: map[string]any{"from_time": ""}})
		if err != nil {
			return 0, 0, err
		}
		for range inReplay {
			if _, err := recv.Receive(ctx, nil); err != nil {
				return 0, 0, err
			}
		}
		recv.Close(ctx)
	}
	return speeds(r.cpu()-before, time.Since(began))
}

// stalled compares the p99 of three components while one beside them reads nothing with that without it: the medians of rounds that take turns.
func stalled(r *router) (ratio, without float64, err error) {
	var l latencies
	for i := range 3 {
		p, err := join(r, "S"+strconv.Itoa(i), "now")
		if err != nil {
			return 0, 0, err
		}
		defer p.nc.Close()
		go l.read(p)
	}
	sender, err := join(r, "sender", "")
	if err != nil {
		return 0, 0, err
	}
	defer sender.nc.Close()
	var alone, beside []float64
	for range rounds {
		at, err := l.p99(sender, 3)
		if err != nil {
			return 0, 0, err
		}
		alone = append(alone, at)
		stuck, err := join(r, "stalled", "now")
		if err != nil {
			return 0, 0, err
		}
		at, err = l.p99(sender, 3)
		stuck.nc.Close()
		if err != nil {
			return 0, 0, err
		}
		beside = append(beside, at)
	}
	slices.Sort(alone)
	slices.Sort(beside)
	return beside[rounds/2] / alone[rounds/2], alone[rounds/2], nil
}

const (
	rounds  = 7
	inRound = 1000 // events: many less than the hard limit of who reads nothing
)

// latencies are how long events took, by their ids.
type latencies struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *latencies) read(p *peer) {
	for p.read(func(b []byte) {
		if !isEvent(b) {
			return
		}
		at, _ := strconv.ParseInt(field(b, "id"), 10, 64)
		l.mu.Lock()
		l.all = append(l.all, time.Since(time.Unix(0, at)))
		l.mu.Unlock()
	}) == nil {
	}
}

// p99 sends two events a millisecond to n, and gives the time in which 99 of 100 came, in µs.
func (l *latencies) p99(sender *peer, n int) (float64, error) {
	const rest = len(`{"op":"event","id":"0192f3a1-7c11-7b3e-9d2e-5a6f00112233`)
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	for range inRound {
		<-tick.C
		sender.add(`{"op":"event","id":"`, strconv.FormatInt(time.Now().UnixNano(), 10), event200[rest:])
		if err := sender.flush(); err != nil {
			return 0, err
		}
	}
	for late := time.Now().Add(20 * time.Second); time.Now().Before(late); time.Sleep(time.Millisecond) {
		l.mu.Lock()
		took := l.all
		if len(took) == n*inRound {
			l.all = nil
			l.mu.Unlock()
			slices.Sort(took)
			return float64(took[len(took)*99/100].Nanoseconds()) / 1000, nil
		}
		l.mu.Unlock()
	}
	return 0, errors.New("events do not come")
}
