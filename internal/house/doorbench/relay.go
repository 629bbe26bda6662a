package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"
)

// relayLines are the figures of the relay.
func relayLines(duration time.Duration, idle int) []line {
	return []line{
		{what: "request and response of one small part, 64 in flight: CPU", unit: "µs", cpu: true, goal: 4, besideUnit: "requests/s", of: func(r *router) (float64, float64, error) {
			return requests(r, 64, duration)
		}},
		{what: "request and response of one small part, one at a time: CPU", unit: "µs", cpu: true, goal: 15, besideUnit: "requests/s", of: func(r *router) (float64, float64, error) {
			return requests(r, 1, duration)
		}},
		{what: "parts of 64 KiB, a window of 8: bytes of a CPU second", unit: "MB", goal: 300, least: true, besideUnit: "MB/s", of: func(r *router) (float64, float64, error) {
			return parts(r, 64<<10, 8, duration)
		}},
		{what: fmt.Sprintf("%d idle connections: memory of each", idle), unit: "KiB", goal: 16, besideUnit: "s to connect", of: func(r *router) (float64, float64, error) {
			return connections(r, idle)
		}},
		{what: "a server that reads nothing, 16 clients that fill it: memory", unit: "MiB", goal: 100, besideUnit: "MiB sent", of: func(r *router) (float64, float64, error) {
			return stuck(r, 16)
		}},
	}
}

// field gives the text of a field, which has no escapes.
func field(payload []byte, name string) string {
	_, rest, _ := bytes.Cut(payload, []byte(`"`+name+`":"`))
	text, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(text)
}

const relayPath = "/api/bench/relay/connect?token=bench"

func serveTopic(p *peer, topic string) error {
	p.add(`[{"op":"serve","topic":"`, topic, `","ref":"s"}]`)
	if err := p.flush(); err != nil {
		return err
	}
	ok := false
	err := p.read(func(b []byte) { ok = bytes.Contains(b, []byte(`"serve:ok"`)) })
	if err == nil && !ok {
		err = errors.New("the topic is not served")
	}
	return err
}

// pair is a server of the topic t and a client.
func pair(r *router) (s, c *peer, err error) {
	if s, err = dial(r.addr, relayPath); err == nil {
		if err = serveTopic(s, "t"); err == nil {
			c, err = dial(r.addr, relayPath)
		}
	}
	return s, c, err
}

// answer answers whole requests until the connection ends.
func answer(s *peer) {
	for {
		err := s.read(func(b []byte) {
			if bytes.HasPrefix(b, []byte(`[{"op":"body"`)) {
				id, from := field(b, "id"), field(b, "from")
				s.add(`[{"op":"head","topic":"t","id":"`, id, `","to":"`, from, `","data":{"status":200},"ref":"`, id, `h"}]`)
				s.add(`[{"op":"body","topic":"t","id":"`, id, `","to":"`, from, `","data":"hello, world","done":true,"ref":"`, id, `b"}]`)
			}
		})
		if err != nil || s.flush() != nil {
			return
		}
	}
}

// requests has so many of them in flight.
func requests(r *router, inFlight int, duration time.Duration) (perRequest, perSecond float64, err error) {
	s, c, err := pair(r)
	if err != nil {
		return 0, 0, err
	}
	defer s.nc.Close()
	defer c.nc.Close()
	go answer(s)
	next, over := 0, 0
	ask := func() {
		id := fmt.Sprintf("r%d", next)
		next++
		c.add(`[{"op":"head","topic":"t","id":"`, id, `","data":{"path":"/"},"ref":"`, id, `h"}]`)
		c.add(`[{"op":"body","topic":"t","id":"`, id, `","data":"hello","done":true,"ref":"`, id, `b"}]`)
	}
	for range inFlight {
		ask()
	}
	step := func() (bool, error) {
		if err := c.flush(); err != nil {
			return false, err
		}
		return true, c.read(func(b []byte) {
			if bytes.HasPrefix(b, []byte(`[{"op":"body"`)) {
				over++
				ask()
			} else if bytes.Contains(b, []byte(`:error"`)) {
				panic(string(b))
			}
		})
	}
	cpu, took, n, err := measured(r, duration, step, &over)
	return float64(cpu.Microseconds()) / float64(n), float64(n) / took.Seconds(), err
}

// parts has a window of parts in flight, to a server that does nothing with them.
func parts(r *router, size, window int, duration time.Duration) (perCPU, perSecond float64, err error) {
	s, c, err := pair(r)
	if err != nil {
		return 0, 0, err
	}
	defer s.nc.Close()
	defer c.nc.Close()
	go func() {
		for s.read(func([]byte) {}) == nil {
		}
	}()
	data := strings.Repeat("x", size)
	over := 0
	ask := func() { c.add(`[{"op":"body","topic":"t","id":"r","data":"`, data, `","ref":"1"}]`) }
	for range window {
		ask()
	}
	step := func() (bool, error) {
		if err := c.flush(); err != nil {
			return false, err
		}
		return true, c.read(func(b []byte) {
			for range bytes.Count(b, []byte(`"body:ok"`)) {
				over++
				ask()
			}
		})
	}
	cpu, took, n, err := measured(r, duration, step, &over)
	bytes := float64(n) * float64(size) / 1e6
	return bytes / cpu.Seconds(), bytes / took.Seconds(), err
}

// connections opens so many that do nothing.
func connections(r *router, n int) (each, seconds float64, err error) {
	before, began := r.memory(), time.Now()
	for range n {
		p, err := dial(r.addr, relayPath)
		if err != nil {
			return 0, 0, err
		}
		defer p.nc.Close()
	}
	seconds = time.Since(began).Seconds()
	time.Sleep(3 * time.Second) // so that the router can put its house in order
	return (r.memory() - before) / float64(n) / 1024, seconds, nil
}

// stuck has clients send to a server that reads nothing, until they are held up.
func stuck(r *router, clients int) (memory, sent float64, err error) {
	s, err := dial(r.addr, relayPath)
	if err != nil {
		return 0, 0, err
	}
	defer s.nc.Close()
	if err := serveTopic(s, "t"); err != nil {
		return 0, 0, err
	}
	before := r.memory()
	data := strings.Repeat("x", 64<<10)
	total := 0
	for range clients {
		c, err := dial(r.addr, relayPath)
		if err != nil {
			return 0, 0, err
		}
		defer c.nc.Close()
		for {
			c.add(`[{"op":"body","topic":"t","id":"r","data":"`, data, `","ref":"1"}]`)
			c.nc.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
			if c.flush() != nil {
				break
			}
			total += len(data)
		}
	}
	return (r.memory() - before) / (1 << 20), float64(total) / (1 << 20), nil
}
