package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// meshLines are what the mesh is held to.
func meshLines(program string, duration time.Duration) []line {
	return []line{
		{what: "publish of 100 bytes to 1 subscriber: CPU of a copy", unit: "µs", cpu: true, goal: 1, besideUnit: "copies/s", start: startMesh, of: func(r *router) (float64, float64, error) {
			return publishes(r, 1, duration)
		}},
		{what: "publish of 100 bytes to 16 subscribers: CPU of a copy", unit: "µs", cpu: true, goal: 1, besideUnit: "copies/s", start: startMesh, of: func(r *router) (float64, float64, error) {
			return publishes(r, 16, duration)
		}},
		{what: "request and answer, beyond an echo of the same bytes: median", unit: "µs", goal: 60, besideUnit: "µs the echo", start: startMesh, of: func(r *router) (float64, float64, error) {
			return asks(r, duration)
		}},
		{what: "10000 topics known at the third router of a line", unit: "s", goal: 1, besideUnit: "ms of CPU of the three", start: startMesh, of: func(r *router) (float64, float64, error) {
			return synchronised(r, program, 10_000)
		}},
	}
}

func startMesh(program string) (*router, error) {
	r := &router{}
	return r, r.start(program, "--listen", "rembus+ws://127.0.0.1:0", "--log-level", "warn")
}

// startBelow starts a router that connects to another.
func startBelow(program string, above *router, name string) (*router, error) {
	dir, err := os.MkdirTemp("", "meshbench-")
	if err != nil {
		return nil, err
	}
	r := &router{dir: dir}
	file := filepath.Join(dir, name+".yaml")
	text := fmt.Sprintf("name: %s\nlisteners: [{url: 'rembus+ws://127.0.0.1:0'}]\nmesh: {peers: [{url: 'ws://%s'}]}\n", name, above.addr)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return r, r.start(program, "--config", file, "--log-level", "warn")
}

// component is a client of Rembus.
type component struct {
	*peer
	ids uint64
}

func newComponent(r *router, name string) (*component, error) {
	p, err := dial(r.addr, "/")
	if err != nil {
		return nil, err
	}
	c := &component{peer: p}
	return c, c.ask(cborText([]byte{0x83, 0, 0x48, 0, 0, 0, 0, 0, 0, 0, 0}, name))
}

// ask sends a request whose id is the ten bytes from the third on, and waits for its answer.
func (c *component) ask(frame []byte) error {
	c.ids++
	binary.LittleEndian.PutUint64(frame[3:], c.ids)
	c.addBinary(frame)
	if err := c.flush(); err != nil {
		return err
	}
	for done := false; !done; {
		var bad error
		err := c.read(func(b []byte) {
			if len(b) > 11 && b[1] == 4 && binary.LittleEndian.Uint64(b[3:]) == c.ids {
				if done = true; b[11] != 0 {
					bad = fmt.Errorf("status %d", b[11])
				}
			}
		})
		if err = errors.Join(err, bad); err != nil {
			return err
		}
	}
	return nil
}

// admin gives a command; more is what follows it in its map.
func (c *component) admin(topic, cmd string, pairs byte, more []byte) error {
	b := cborText([]byte{0x84, 3, 0x48, 0, 0, 0, 0, 0, 0, 0, 0}, topic)
	b = cborText(cborText(append(b, 0xa1+pairs), "cmd"), cmd)
	return c.ask(append(b, more...))
}

func (c *component) subscribe(topic string) error {
	if err := c.admin(topic, "subscribe", 0, nil); err != nil {
		return err
	}
	return c.reactive()
}

func (c *component) reactive() error {
	return c.admin("__config__", "reactive", 1, append(cborText(nil, "status"), 0xf5))
}

func cborHead(b []byte, major byte, n int) []byte {
	switch {
	case n < 24:
		return append(b, major<<5|byte(n))
	case n < 256:
		return append(b, major<<5|24, byte(n))
	}
	return append(b, major<<5|25, byte(n>>8), byte(n))
}

func cborText(b []byte, s string) []byte { return append(cborHead(b, 3, len(s)), s...) }

// publishOf is a publish of so many bytes.
func publishOf(topic string, n int) []byte {
	b := cborText([]byte{0x83, 1}, topic)
	return append(cborHead(append(b, 0x81), 2, n-3), make([]byte, n-3)...)
}

// publishes has one publisher and n subscribers, a window of publishes under way.
func publishes(r *router, n int, duration time.Duration) (perCopy, perSecond float64, err error) {
	var subs []*component
	for i := range n {
		s, err := newComponent(r, fmt.Sprintf("sub%d", i))
		if err == nil {
			err = s.subscribe("t")
		}
		if err != nil {
			return 0, 0, err
		}
		defer s.nc.Close()
		subs = append(subs, s)
	}
	pub, err := newComponent(r, "pub")
	if err != nil {
		return 0, 0, err
	}
	defer pub.nc.Close()
	const window = 256
	frame, copies := publishOf("t", 100), 0
	cpu, took, done, err := measured(r, duration, func() (bool, error) {
		for range window {
			pub.addBinary(frame)
		}
		if err := pub.flush(); err != nil {
			return false, err
		}
		for _, s := range subs {
			for got := 0; got < window; {
				if err := s.read(func(b []byte) {
					if b[1] == 1 {
						got++
					}
				}); err != nil {
					return false, err
				}
			}
			copies += window
		}
		return true, nil
	}, &copies)
	return float64(cpu.Nanoseconds()) / 1e3 / float64(done), float64(done) / took.Seconds(), err
}

// asks compares a request through the router, and an echo of the same bytes without it, one after the other in turn.
func asks(r *router, duration time.Duration) (beyond, echo float64, err error) {
	yard, err := startEcho()
	if err != nil {
		return 0, 0, err
	}
	defer yard.stop()
	nc, err := net.Dial("tcp", yard.addr)
	if err != nil {
		return 0, 0, err
	}
	defer nc.Close()
	exposer, err := newComponent(r, "exposer")
	if err != nil {
		return 0, 0, err
	}
	defer exposer.nc.Close()
	if err := exposer.admin("m", "expose", 0, nil); err != nil {
		return 0, 0, err
	}
	caller, err := newComponent(r, "caller")
	if err != nil {
		return 0, 0, err
	}
	defer caller.nc.Close()
	go func() {
		for exposer.read(func(b []byte) {
			if b[1] == 2 {
				exposer.addBinary(append(append([]byte{0x84, 4}, b[2:11]...), 0, 0x81, 1))
			}
		}) == nil && exposer.flush() == nil {
		}
	}()
	frame := append(cborText([]byte{0x85, 2, 0x48, 0, 0, 0, 0, 0, 0, 0, 0}, "m"), 0xf6, 0x81, 1)
	buf := make([]byte, len(frame)+6)
	var direct, through []time.Duration
	for end := time.Now().Add(duration); time.Now().Before(end); {
		began := time.Now()
		if err := caller.ask(frame); err != nil {
			return 0, 0, err
		}
		between := time.Now()
		if _, err = nc.Write(buf); err == nil {
			_, err = io.ReadFull(nc, buf)
		}
		if err != nil {
			return 0, 0, err
		}
		through, direct = append(through, between.Sub(began)), append(direct, time.Since(between))
	}
	slices.Sort(through)
	slices.Sort(direct)
	echo = float64(direct[len(direct)/2].Nanoseconds()) / 1e3
	return float64(through[len(through)/2].Nanoseconds())/1e3 - echo, echo, nil
}

// synchronised has a component at the first of three routers set up with so many topics, and tells when publishes to some of them, all over the list, come from the third.
func synchronised(r *router, program string, topics int) (seconds, cpu float64, err error) {
	second, err := startBelow(program, r, "second")
	if err != nil {
		return 0, 0, err
	}
	defer second.stop()
	third, err := startBelow(program, second, "third")
	if err != nil {
		return 0, 0, err
	}
	defer third.stop()
	c, err := newComponent(r, "c")
	if err == nil {
		err = c.subscribe("first")
	}
	if err != nil {
		return 0, 0, err
	}
	defer c.nc.Close()
	pub, err := newComponent(third, "pub")
	if err != nil {
		return 0, 0, err
	}
	defer pub.nc.Close()
	if err := c.hears(pub, []string{"first"}); err != nil { // the routers are linked
		return 0, 0, err
	}
	list := cborHead(cborText(nil, "subscribers"), 4, topics)
	var some []string
	for i := range topics {
		name := fmt.Sprintf("topic/%d", i)
		if list = cborText(list, name); i%(topics/100) == 0 {
			some = append(some, name)
		}
	}
	used := func() time.Duration { return r.cpu() + second.cpu() + third.cpu() }
	began, before := time.Now(), used()
	if err := c.admin("__config__", "setup", 2, cborHead(cborText(list, "exposers"), 4, 0)); err != nil {
		return 0, 0, err
	}
	if err := c.hears(pub, some); err != nil {
		return 0, 0, err
	}
	return time.Since(began).Seconds(), float64((used() - before).Milliseconds()), nil
}

// hears publishes to topics until each has come.
func (c *component) hears(pub *component, topics []string) error {
	missing := map[string]bool{}
	for _, t := range topics {
		missing[t] = true
	}
	for end := time.Now().Add(20 * time.Second); len(missing) > 0; {
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d topics are not known", len(missing), len(topics))
		}
		for t := range missing {
			pub.addBinary(publishOf(t, 8))
		}
		if err := pub.flush(); err != nil {
			return err
		}
		c.nc.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		err := c.read(func(b []byte) {
			for t := range missing {
				if strings.Contains(string(b), t) {
					delete(missing, t)
				}
			}
		})
		var late net.Error
		if err != nil && !(errors.As(err, &late) && late.Timeout()) {
			return err
		}
	}
	return c.nc.SetReadDeadline(time.Time{})
}
