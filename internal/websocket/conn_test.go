package websocket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/gobwas/ws"

	"github.com/fingerpost/fingerpost/internal/house/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// sides gives a Conn over loopback, and the bare socket of its peer.
func sides(t *testing.T, client bool, o Options) (*Conn, net.Conn) {
	t.Helper()
	near, far := pair(t)
	return New(near, nil, client, o), far
}

func pair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if far, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if near, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	far.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { far.Close(); near.Close() })
	return near, far
}

// got is what a Conn read, one line a message: kind, length and beginning.
func read(c *Conn) (lines []string, err error) {
	for {
		m, _, err := c.Next()
		if err != nil {
			return lines, err
		}
		kind := "binary"
		if m.Text {
			kind = "text"
		}
		lines = append(lines, fmt.Sprintf("%s %d %.10s", kind, len(m.Data), m.Data))
	}
}

func join(frames ...[]byte) []byte { return bytes.Join(frames, nil) }

func TestMessages(t *testing.T) {
	long := strings.Repeat("0123456789", 20_000)
	for _, c := range []struct {
		name   string
		frames []byte
		want   string
	}{
		{"one", frame(ws.OpText, true, "one"), "text 3 one"},
		{"several in a read", join(frame(ws.OpText, true, "a"), frame(ws.OpBinary, true, "b"), frame(ws.OpText, true, "")), "text 1 a; binary 1 b; text 0 "},
		{"fragments", join(frame(ws.OpText, false, "a"), frame(ws.OpContinuation, false, ""), frame(ws.OpContinuation, true, "b")), "text 2 ab"},
		{"a ping between fragments", join(frame(ws.OpBinary, false, "a"), frame(ws.OpPing, true, "?"), frame(ws.OpContinuation, true, "b")), "binary 2 ab"},
		{"a character in two fragments", join(frame(ws.OpText, false, "\xe2\x82"), frame(ws.OpContinuation, true, "\xac")), "text 3 €"},
		{"long ones between short ones", join(frame(ws.OpText, true, "x"), frame(ws.OpBinary, true, long), frame(ws.OpText, true, "y"), frame(ws.OpText, true, long), frame(ws.OpText, true, "z")),
			"text 1 x; binary 200000 0123456789; text 1 y; text 200000 0123456789; text 1 z"},
		{"long fragments", join(frame(ws.OpText, false, long), frame(ws.OpContinuation, true, long), frame(ws.OpText, true, "z")), "text 400000 0123456789; text 1 z"},
		{"binary is no text", frame(ws.OpBinary, true, "\xff"), "binary 1 \xff"},
	} {
		for _, step := range []int{1 << 20, 1777, 1} {
			if step == 1 && len(c.frames) > 1000 {
				continue
			}
			conn, peer := sides(t, false, Options{})
			go func() {
				for f := join(c.frames, frame(ws.OpClose, true, "\x03\xe9bye")); len(f) > 0; {
					n := min(len(f), step)
					peer.Write(f[:n])
					f = f[n:]
				}
			}()
			lines, err := read(conn)
			if got := strings.Join(lines, "; "); got != c.want {
				t.Errorf("%s, by %d: got %q, want %q", c.name, step, got, c.want)
			}
			var ce *CloseError
			if !errors.As(err, &ce) || !ce.Remote || ce.Code != GoingAway || ce.Text != "bye" {
				t.Errorf("%s: ends with %v", c.name, err)
			}
			conn.End(0, "")
			var last ws.Frame
			for f, err := readFrame(peer); err == nil; f, err = readFrame(peer) {
				last = f
			}
			if last.Header.OpCode != ws.OpClose || string(last.Payload) != "\x03\xe9" {
				t.Errorf("%s: the close is answered with %v %q", c.name, last.Header, last.Payload)
			}
		}
	}
}

func TestWhatAPeerDoesWrong(t *testing.T) {
	rsv := frame(ws.OpText, true, "x")
	rsv[0] |= 0x10
	for _, c := range []struct {
		name   string
		frames []byte
		want   int
	}{
		{"not masked", bare(ws.OpText, "x"), BadProtocol},
		{"reserved bits", rsv, BadProtocol},
		{"an unknown kind", frame(3, true, "x"), BadProtocol},
		{"an unknown kind of control", frame(11, true, "x"), BadProtocol},
		{"a ping in pieces", frame(ws.OpPing, false, "x"), BadProtocol},
		{"a long pong", frame(ws.OpPong, true, strings.Repeat("x", 126)), BadProtocol},
		{"a continuation of nothing", frame(ws.OpContinuation, true, "x"), BadProtocol},
		{"a continuation after the last", join(frame(ws.OpText, false, ""), frame(ws.OpContinuation, true, ""), frame(ws.OpContinuation, true, "x")), BadProtocol},
		{"a message inside another", join(frame(ws.OpText, false, ""), frame(ws.OpText, true, "x")), BadProtocol},
		{"text that is no UTF-8", frame(ws.OpText, true, "a\xff"), BadText},
		{"text that ends in a character", join(frame(ws.OpText, false, "\xe2\x82"), frame(ws.OpContinuation, true, "")), BadText},
		{"a surrogate", frame(ws.OpText, true, "\xed\xa0\x80"), BadText},
		{"a message of one byte too many", frame(ws.OpBinary, true, strings.Repeat("x", 1001)), TooBig},
		{"fragments of one byte too many", join(frame(ws.OpText, false, strings.Repeat("x", 1000)), frame(ws.OpContinuation, true, "x")), TooBig},
		{"a length beyond all numbers", []byte("\x82\xff\xff\xff\xff\xff\xff\xff\xff\xffmask"), TooBig},
		{"half a close code", frame(ws.OpClose, true, "\x03"), BadProtocol},
		{"close code 1005", frame(ws.OpClose, true, "\x03\xed"), BadProtocol},
		{"close code 1006", frame(ws.OpClose, true, "\x03\xee"), BadProtocol},
		{"close code 999", frame(ws.OpClose, true, "\x03\xe7"), BadProtocol},
		{"close code 5000", frame(ws.OpClose, true, "\x13\x88"), BadProtocol},
		{"a reason that is no UTF-8", frame(ws.OpClose, true, "\x03\xe8\xff"), BadText},
	} {
		conn, peer := sides(t, false, Options{MaxMessage: 1000})
		peer.Write(c.frames)
		lines, err := read(conn)
		var ce *CloseError
		if !errors.As(err, &ce) || ce.Remote || ce.Code != c.want {
			t.Errorf("%s: got %v and %v, want %d", c.name, lines, err, c.want)
		}
		if _, _, again := conn.Next(); again != err {
			t.Errorf("%s: then %v", c.name, again)
		}
		go conn.End(InternalFail, "")
		f, err := readFrame(peer)
		if err != nil || f.Header.OpCode != ws.OpClose {
			t.Errorf("%s: got %+v, %v", c.name, f.Header, err)
			continue
		}
		if code, _ := ws.ParseCloseFrameData(f.Payload); int(code) != c.want {
			t.Errorf("%s: closed with %d, want %d", c.name, code, c.want)
		}
		if n, err := io.Copy(io.Discard, peer); n != 0 || err != nil {
			t.Errorf("%s: after the close %d bytes, %v", c.name, n, err)
		}
	}
}

func TestCloseCodesAreAnswered(t *testing.T) {
	for _, c := range []struct {
		body, want string
		code       int
	}{{"", "", NoCode}, {"\x03\xe8", "\x03\xe8", 1000}, {"\x03\xf0bad", "\x03\xf0", 1008}, {"\x0b\xb8", "\x0b\xb8", 3000}, {"\x13\x87", "\x13\x87", 4999}} {
		conn, peer := sides(t, false, Options{})
		peer.Write(frame(ws.OpClose, true, c.body))
		_, _, err := conn.Next()
		if ce := new(CloseError); !errors.As(err, &ce) || ce.Code != c.code || !ce.Remote {
			t.Errorf("%q: %v", c.body, err)
		}
		conn.End(Normal, "")
		if f, err := readFrame(peer); err != nil || string(f.Payload) != c.want {
			t.Errorf("%q: answered with %q, %v", c.body, f.Payload, err)
		}
	}
}

func TestAPeerThatGoesWithoutAWord(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes []byte
		want  error
	}{
		{"between messages", frame(ws.OpText, true, "x"), io.EOF},
		{"in a header", []byte{0x81}, io.ErrUnexpectedEOF},
		{"in a frame", frame(ws.OpText, true, "xyz")[:7], io.ErrUnexpectedEOF},
		{"between fragments", frame(ws.OpText, false, "xyz"), io.ErrUnexpectedEOF},
	} {
		conn, peer := sides(t, false, Options{})
		peer.Write(c.bytes)
		peer.Close()
		if _, err := read(conn); err != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		conn.End(0, "")
	}
}

func TestMoreTellsOfTheNextMessage(t *testing.T) {
	conn, peer := sides(t, false, Options{})
	peer.Write(join(frame(ws.OpText, true, "a"), frame(ws.OpPing, true, ""), frame(ws.OpText, false, "b"), frame(ws.OpPing, true, ""),
		frame(ws.OpContinuation, true, "b"), frame(ws.OpText, true, "c"), frame(ws.OpPing, true, ""), frame(ws.OpText, true, "dddd")[:8]))
	for _, want := range []bool{true, true, false} {
		if m, more, err := conn.Next(); more != want || err != nil {
			t.Errorf("after %q more is %t, %v", m.Data, more, err)
		}
	}
	conn.End(0, "")
}

// line is a Line of text frames.
type line struct {
	waiting []string
	wrote   int
	client  bool
}

func (l *line) Output(b []byte) []byte {
	if len(l.waiting) == 0 {
		return nil
	}
	for _, s := range l.waiting {
		b = AppendFrame(b, true, []byte(s), l.client)
	}
	l.waiting = nil
	return b
}

func (l *line) Wrote(n int) { l.wrote += n }

// trimmed takes back what was not begun, one frame at a time.
type trimmed struct {
	line
	taken []int // bytes taken back
	frame int   // bytes of a frame; all are as long
}

func (l *trimmed) Trim(rest []byte) int {
	keep := len(rest) % l.frame
	if keep == 0 {
		keep = l.frame
	}
	for n := keep; n < len(rest); n += l.frame {
		l.waiting = append(l.waiting, strings.Repeat("x", l.frame-4))
	}
	l.taken = append(l.taken, len(rest)-keep)
	return keep
}

// gated is a connection whose writes wait for a word.
type gated struct {
	net.Conn
	gate chan struct{}
}

func (g gated) Write(b []byte) (int, error) {
	<-g.gate
	return g.Conn.Write(b)
}

// What was said before a close is told before it, however slowly it is written.
func TestACloseComesBehindWhatWasSaid(t *testing.T) {
	for _, end := range []string{"close", "end"} {
		near, peer := pair(t)
		g := gated{near, make(chan struct{})}
		conn := New(g, nil, false, Options{})
		conn.Lock()
		conn.Append(true, []byte("first"))
		conn.Flush() // is under way
		conn.Append(true, []byte("second"))
		conn.Unlock()
		over := make(chan struct{})
		go func() {
			defer close(over)
			if end == "close" {
				conn.Close(Normal, "")
				conn.Next()
			}
			conn.End(Normal, "")
		}()
		if end == "close" {
			eventuallyClosing(conn)
		}
		close(g.gate)
		for _, want := range []string{"first", "second", ""} {
			f, err := readFrame(peer)
			if err != nil {
				t.Fatalf("%s: want %q: %v", end, want, err)
			}
			if want == "" && f.Header.OpCode != ws.OpClose || want != "" && string(f.Payload) != want {
				t.Fatalf("%s: got %q of kind %v, want %q", end, f.Payload, f.Header.OpCode, want)
			}
		}
		peer.Close()
		<-over
	}
}

// eventuallyClosing waits until the close is on its way.
func eventuallyClosing(c *Conn) {
	for closing := false; !closing; runtime.Gosched() {
		c.mu.Lock()
		closing = c.control.closing
		c.mu.Unlock()
	}
}

func TestALineIsToldWhatTheSocketTook(t *testing.T) {
	l := &trimmed{frame: 1004}
	conn, peer := sides(t, false, Options{Line: l})
	conn.Lock()
	const n = 12_000
	for range n {
		l.waiting = append(l.waiting, strings.Repeat("x", 1000))
	}
	conn.Flush()
	wrote, taken := l.wrote, l.taken
	conn.Unlock()
	if wrote == 0 || wrote >= n*1004 || len(taken) != 1 || wrote+taken[0] > n*1004 || n*1004-wrote-taken[0] > 1004 {
		t.Fatalf("wrote %d of %d, taken back %v: want all but the frame that was begun", wrote, n*1004, taken)
	}
	// A pong goes between the frames, and is no part of the count.
	peer.Write(frame(ws.OpPing, true, "hello"))
	over := make(chan struct{})
	go func() { conn.Next(); close(over) }()
	pongs := 0
	for range n + 1 {
		f, err := readFrame(peer)
		if err != nil {
			t.Fatal(err)
		}
		if f.Header.OpCode == ws.OpPong {
			pongs++
		} else if len(f.Payload) != 1000 {
			t.Fatalf("a frame of %d bytes", len(f.Payload))
		}
	}
	conn.Lock()
	if l.wrote != n*1004 || pongs != 1 {
		t.Errorf("wrote %d of %d, %d pongs", l.wrote, n*1004, pongs)
	}
	conn.Unlock()
	conn.Abort(io.ErrClosedPipe)
	<-over
	conn.End(0, "")
}

func TestFramesThatAreWritten(t *testing.T) {
	for _, client := range []bool{false, true} {
		for _, n := range []int{0, 1, 125, 126, 127, 65535, 65536, 300_000} {
			p := bytes.Repeat([]byte("0123456789"), n/10+1)[:n]
			whole := AppendFrame([]byte("before"), true, p, client)
			b, at := BeginFrame([]byte("before"), client)
			inPlace := EndFrame(append(b, p...), at, true, client)
			for _, b := range [][]byte{whole, inPlace} {
				f, err := readFrame(bytes.NewReader(bytes.TrimPrefix(b, []byte("before"))))
				if client {
					f = ws.UnmaskFrameInPlace(f)
				}
				if err != nil || f.Header.OpCode != ws.OpText || !f.Header.Fin || f.Header.Masked && client || !bytes.Equal(f.Payload, p) || !bytes.HasPrefix(b, []byte("before")) {
					t.Errorf("client %t, %d bytes: %+v, %v", client, n, f.Header, err)
				}
			}
			if len(whole) != len(inPlace) {
				t.Errorf("client %t, %d bytes: %d and %d", client, n, len(whole), len(inPlace))
			}
		}
	}
}

// Both ends are ours: each says what it has to while the other does not read yet, and neither is held up.
func TestBothEndsAtOnce(t *testing.T) {
	near, far := pair(t)
	far.SetDeadline(time.Time{})
	server, client := New(near, nil, false, Options{}), New(far, nil, true, Options{})
	const n = 2000
	body := []byte(strings.Repeat("x", 5000))
	var over sync.WaitGroup
	for _, c := range []*Conn{server, client} {
		c.Lock()
		for range n {
			c.Append(false, body)
		}
		c.Flush()
		c.Unlock()
		over.Go(func() {
			for range n {
				if m, _, err := c.Next(); err != nil || !bytes.Equal(m.Data, body) {
					t.Errorf("%d bytes, %v", len(m.Data), err)
					return
				}
			}
		})
	}
	over.Wait()
	client.Close(Normal, "done")
	_, _, err := server.Next()
	if ce := new(CloseError); !errors.As(err, &ce) || ce.Text != "done" {
		t.Errorf("the server sees %v", err)
	}
	server.End(0, "")
	if _, _, err := client.Next(); err == nil {
		t.Error("the client reads on")
	}
	client.End(0, "")
}

func TestASilentPeerIsAskedAndThenLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := New(near, nil, false, Options{PingEvery: 30 * time.Second, PongWait: 10 * time.Second})
		began := time.Now()
		over := make(chan error)
		go func() { _, err := read(c); over <- err }()
		for i := range 3 { // it answers twice
			f, err := readFrame(far)
			if err != nil || f.Header.OpCode != ws.OpPing {
				t.Fatalf("got %v, %v", f.Header, err)
			}
			if i < 2 {
				far.Write(frame(ws.OpPong, true, ""))
			}
		}
		if err := <-over; err != ErrSilent {
			t.Error(err)
		}
		if d := time.Since(began); d < 100*time.Second || d > 200*time.Second {
			t.Errorf("after %v", d)
		}
		go io.Copy(io.Discard, far)
		c.End(BadPolicy, "silent")
		far.Close()
	})
}

// An owner that does not read, for its own reasons, does not take the peer for silent.
func TestAnOwnerThatPausesIsNotThePeersFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := New(near, nil, false, Options{PingEvery: 30 * time.Second})
		go io.Copy(io.Discard, far)
		go far.Write(frame(ws.OpText, true, "x"))
		if _, _, err := c.Next(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		go far.Write(frame(ws.OpText, true, "y"))
		if _, _, err := c.Next(); err != nil {
			t.Fatal(err)
		}
		c.End(Normal, "")
		far.Close()
	})
}

func TestAbortTellsWhy(t *testing.T) {
	conn, _ := sides(t, false, Options{})
	why := errors.New("why")
	conn.Abort(why)
	if _, _, err := conn.Next(); err != why {
		t.Error(err)
	}
	conn.End(InternalFail, strings.Repeat("é", 100))
}

// endless is a connection that gives the same bytes again and again, and takes all.
type endless struct {
	net.Conn
	frames []byte
	at     int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.frames[e.at:])
	e.at = (e.at + n) % len(e.frames)
	return n, nil
}
func (e *endless) Write(p []byte) (int, error) { return len(p), nil }

func TestMessagesAllocateNothing(t *testing.T) {
	near, far := pair(t)
	c, peer := New(near, nil, false, Options{}), New(far, nil, true, Options{})
	far.SetDeadline(time.Time{})
	for _, size := range []int{100, 40_000} {
		p := bytes.Repeat([]byte("x"), size)
		turn := func() {
			peer.Lock()
			peer.Append(true, p)
			peer.Flush()
			peer.Unlock()
			if m, _, err := c.Next(); err != nil || len(m.Data) != size {
				t.Fatal(len(m.Data), err)
			}
		}
		for range 100 {
			turn()
		}
		if n := testing.AllocsPerRun(500, turn); n > 0 && !raceEnabled {
			t.Errorf("%v allocations for a message of %d bytes", n, size)
		}
	}
	c.End(0, "")
	peer.End(0, "")
}

func BenchmarkNext(b *testing.B) {
	for _, size := range []int{100, 1000, 30_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			c := New(&endless{frames: bytes.Repeat(frame(ws.OpText, true, strings.Repeat("x", size)), 100)}, nil, false, Options{})
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := c.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Whatever comes, and in what pieces, a Conn gives the messages that a plain reading by gobwas's own parser gives, up to the first that is not allowed.
func FuzzConn(f *testing.F) {
	f.Add(join(frame(ws.OpText, false, "hello"), frame(ws.OpPing, true, ""), frame(ws.OpContinuation, true, "world")), uint8(3))
	f.Add(join(frame(ws.OpText, true, "\xff"), frame(ws.OpBinary, true, strings.Repeat("x", 300))), uint8(200))
	f.Add(join(frame(ws.OpBinary, true, "x"), frame(ws.OpClose, true, "\x03\xe8")), uint8(1))
	f.Add([]byte("\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xffmask"), uint8(1))
	f.Fuzz(func(t *testing.T, text []byte, step uint8) {
		const limit = 1000
		c := New(sink{in: &steps{text, int(step) + 1}}, nil, false, Options{MaxMessage: limit})
		var got []string
		for {
			m, _, err := c.Next()
			if err != nil {
				break
			}
			if m.Text && !utf8.Valid(m.Data) || len(m.Data) > limit {
				t.Fatalf("%d bytes of %q", len(m.Data), m.Data)
			}
			got = append(got, string(m.Data))
		}
		if want := plainly(text, limit); strings.Join(got, "|") != strings.Join(want, "|") || len(got) != len(want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// steps gives n bytes a read.
type steps struct {
	text []byte
	n    int
}

func (s *steps) Read(p []byte) (int, error) {
	n := copy(p, s.text[:min(len(s.text), s.n)])
	s.text = s.text[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func plainly(text []byte, limit int64) (messages []string) {
	in := bytes.NewReader(text)
	var message []byte
	fragmented, isText := false, false
	for {
		h, err := ws.ReadHeader(in)
		if err != nil || checkHeader(h, false, fragmented) != nil || h.Length > int64(in.Len()) || h.OpCode == ws.OpClose {
			return messages
		}
		payload := make([]byte, h.Length)
		io.ReadFull(in, payload)
		ws.Cipher(payload, h.Mask, 0)
		if h.OpCode.IsControl() {
			continue
		}
		if !fragmented {
			isText, message = h.OpCode == ws.OpText, nil
		}
		if message = append(message, payload...); int64(len(message)) > limit {
			return messages
		}
		if fragmented = !h.Fin; fragmented {
			continue
		}
		if isText && !utf8.Valid(message) {
			return messages
		}
		messages = append(messages, string(message))
	}
}

// lateSender is a peer that goes on sending for a while after it was told that it may not.
type lateSender struct {
	net.Conn // none
	reads    int
	closed   bool
	early    bool // it was closed before all was sent
}

func (l *lateSender) Read(p []byte) (int, error) {
	if l.reads == 0 {
		return 0, io.EOF
	}
	time.Sleep(lingerWait / 4)
	l.reads--
	return len(p), nil
}

func (l *lateSender) Write(p []byte) (int, error)      { return len(p), nil }
func (l *lateSender) SetReadDeadline(time.Time) error  { return nil }
func (l *lateSender) SetWriteDeadline(time.Time) error { return nil }
func (l *lateSender) CloseWrite() error                { return nil }
func (l *lateSender) Close() error {
	l.early = !l.closed && l.reads > 0
	l.closed = true
	return nil
}

// What a peer still sends when it is told of a close is read, so that no reset overtakes that: to its end, or for a while.
func TestAPeerThatStillSendsIsWaitedFor(t *testing.T) {
	for reads, early := range map[int]bool{1: false, 30: false, 1000: true} {
		synctest.Test(t, func(t *testing.T) {
			l := &lateSender{reads: reads}
			New(l, nil, false, Options{}).End(TooBig, "the message is too long")
			if !l.closed || l.early != early {
				t.Errorf("%d reads: closed %t, before the end %t", reads, l.closed, l.early)
			}
		})
	}
}
