package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// peer is one end of a WebSocket to the router.
type peer struct {
	nc  net.Conn
	in  []byte // read and not used
	buf []byte
	out []byte
}

func dial(addr string) (*peer, error) { return dialPath(addr, "/api/bench/relay/connect?token=bench") }

func dialPath(addr, path string) (*peer, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(nc, "GET "+path+" HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", addr)
	br := bufio.NewReaderSize(nc, 1024)
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		return nil, errors.New(res.Status)
	}
	p := &peer{nc: nc}
	if n := br.Buffered(); n > 0 {
		b, _ := br.Peek(n)
		p.in = bytes.Clone(b)
	}
	return p, nil
}

// add queues a message, masked with zeros.
func (p *peer) add(payload ...string) {
	n := 0
	for _, s := range payload {
		n += len(s)
	}
	p.out = append(p.out, 0x81)
	switch {
	case n < 126:
		p.out = append(p.out, 0x80|byte(n))
	case n < 1<<16:
		p.out = binary.BigEndian.AppendUint16(append(p.out, 0x80|126), uint16(n))
	default:
		p.out = binary.BigEndian.AppendUint64(append(p.out, 0x80|127), uint64(n))
	}
	p.out = append(p.out, 0, 0, 0, 0)
	for _, s := range payload {
		p.out = append(p.out, s...)
	}
}

// addBinary is add of a binary message.
func (p *peer) addBinary(payload []byte) {
	at := len(p.out)
	p.add(string(payload))
	p.out[at] = 0x82
}

func (p *peer) flush() error {
	_, err := p.nc.Write(p.out)
	p.out = p.out[:0]
	return err
}

// read waits for messages and calls f with each that is there.
func (p *peer) read(f func(payload []byte)) error {
	if p.buf == nil {
		p.buf = make([]byte, 1<<20)
	}
	for {
		any := false
		for {
			payload, size := frame(p.in)
			if size == 0 {
				break
			}
			f(payload)
			p.in, any = p.in[size:], true
		}
		if any {
			return nil
		}
		n := copy(p.buf, p.in)
		m, err := p.nc.Read(p.buf[n:])
		if err != nil {
			return err
		}
		p.in = p.buf[:n+m]
	}
}

// frame gives the first frame of b; size is 0 where it is not whole.
func frame(b []byte) (payload []byte, size int) {
	if len(b) < 2 {
		return nil, 0
	}
	n, head := int(b[1]&0x7f), 2
	switch {
	case n == 126 && len(b) >= 4:
		n, head = int(binary.BigEndian.Uint16(b[2:])), 4
	case n == 127 && len(b) >= 10:
		n, head = int(binary.BigEndian.Uint64(b[2:])), 10
	case n >= 126:
		return nil, 0
	}
	if len(b) < head+n {
		return nil, 0
	}
	return b[head : head+n], head + n
}

// field gives the text of a field, which has no escapes.
func field(payload []byte, name string) string {
	_, rest, _ := bytes.Cut(payload, []byte(`"`+name+`":"`))
	text, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(text)
}

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
	if s, err = dial(r.addr); err == nil {
		if err = serveTopic(s, "t"); err == nil {
			c, err = dial(r.addr)
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

// measured is how much CPU of the router and time passes while f runs, after it ran for a moment.
func measured(r *router, duration time.Duration, f func() (bool, error), count *int) (cpu, took time.Duration, n int, err error) {
	warm := time.Now().Add(duration / 5)
	for time.Now().Before(warm) {
		if _, err := f(); err != nil {
			return 0, 0, 0, err
		}
	}
	began, before, first := time.Now(), r.cpu(), *count
	for time.Since(began) < duration {
		if _, err := f(); err != nil {
			return 0, 0, 0, err
		}
	}
	return r.cpu() - before, time.Since(began), *count - first, nil
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
		if len(c.out) > 0 {
			if err := c.flush(); err != nil {
				return false, err
			}
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
		if len(c.out) > 0 {
			if err := c.flush(); err != nil {
				return false, err
			}
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
		p, err := dial(r.addr)
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
	s, err := dial(r.addr)
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
		c, err := dial(r.addr)
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

// echo sends back what it reads, on every connection.
func echo() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return
	}
	fmt.Println("ready http://" + ln.Addr().String())
	for {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			b := make([]byte, 4096)
			for {
				n, err := nc.Read(b)
				if err != nil {
					return
				}
				nc.Write(b[:n])
			}
		}()
	}
}

// measureEcho says what a read and a write cost on this machine now. A request one at a time is two reads and four writes.
func measureEcho(duration time.Duration) error {
	r, err := startEcho()
	if err != nil {
		return err
	}
	defer r.stop()
	nc, err := net.Dial("tcp", r.addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	b := make([]byte, 200)
	count := 0
	cpu, took, n, err := measured(r, duration, func() (bool, error) {
		if _, err := nc.Write(b); err != nil {
			return false, err
		}
		_, err := io.ReadFull(nc, b)
		count++
		return true, err
	}, &count)
	if err == nil {
		fmt.Printf("        a bare echo of 200 bytes, one at a time, for comparison: %.2f µs of CPU (%.0f a second)\n", float64(cpu.Microseconds())/float64(n), float64(n)/took.Seconds())
	}
	return err
}
