package websocket

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
)

// streamSides gives the two ends of a WebSocket over loopback: ours, and the bare socket of the peer.
func streamSides(t *testing.T, client bool) (*Stream, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	far, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, nc := range []net.Conn{far, near} {
		nc.SetDeadline(time.Now().Add(20 * time.Second))
		t.Cleanup(func() { nc.Close() })
	}
	return NewStream(near, nil, client), far
}

func frame(op ws.OpCode, fin bool, payload string) []byte {
	return ws.MustCompileFrame(ws.MaskFrameInPlace(ws.NewFrame(op, fin, []byte(payload))))
}

func bare(op ws.OpCode, payload string) []byte {
	return ws.MustCompileFrame(ws.NewFrame(op, true, []byte(payload)))
}

// readFrame reads a frame as gobwas reads its header.
func readFrame(r io.Reader) (f ws.Frame, err error) {
	if f.Header, err = ws.ReadHeader(r); err != nil {
		return f, err
	}
	if f.Header.Length > 64<<20 {
		return f, errors.New("a frame of that length is not what these tests send")
	}
	f.Payload = make([]byte, f.Header.Length)
	_, err = io.ReadFull(r, f.Payload)
	return f, err
}

func TestFramesAreAStream(t *testing.T) {
	long := strings.Repeat("0123456789", 20_000)
	c, peer := streamSides(t, false)
	go func() {
		for _, f := range [][]byte{
			frame(ws.OpBinary, true, "one"), frame(ws.OpBinary, true, ""), frame(ws.OpBinary, false, "t"), frame(ws.OpPing, true, "are you there?"),
			frame(ws.OpContinuation, false, "w"), frame(ws.OpContinuation, true, "o"), frame(ws.OpPong, true, "unasked"),
			frame(ws.OpBinary, true, long), frame(ws.OpClose, true, "\x03\xe8bye"),
		} {
			for len(f) > 0 { // in odd pieces
				n := min(len(f), 1777)
				peer.Write(f[:n])
				f = f[n:]
			}
		}
	}()
	got, err := io.ReadAll(struct{ io.Reader }{c})
	if string(got) != "onetwo"+long || err != nil {
		t.Fatalf("got %d bytes, %v", len(got), err)
	}
	for _, want := range []struct {
		op   ws.OpCode
		text string
	}{{ws.OpPong, "are you there?"}, {ws.OpClose, "\x03\xe8"}} {
		f, err := readFrame(peer)
		if err != nil || f.Header.OpCode != want.op || f.Header.Masked || string(f.Payload) != want.text {
			t.Errorf("got %+v %q, %v, want %v %q", f.Header, f.Payload, err, want.op, want.text)
		}
	}
	nothingMore(t, c, peer)
}

func TestWhatIsWrittenIsOneFrame(t *testing.T) {
	for _, client := range []bool{false, true} {
		for _, n := range []int{0, 1, 125, 126, 65535, 65536, 300_000} {
			c, peer := streamSides(t, client)
			p := bytes.Repeat([]byte("x"), n)
			before := string(p)
			go c.Write(p)
			f, err := readFrame(peer)
			if err != nil || f.Header.OpCode != ws.OpBinary || !f.Header.Fin || f.Header.Masked != client {
				t.Fatalf("client %v, %d bytes: got %+v, %v", client, n, f.Header, err)
			}
			if client {
				f = ws.UnmaskFrameInPlace(f)
			}
			if string(f.Payload) != before || string(p) != before {
				t.Errorf("client %v, %d bytes: the payload differs", client, n)
			}
		}
	}
}

func TestBadFramesEndTheConnectionWithAReason(t *testing.T) {
	rsv := frame(ws.OpBinary, true, "x")
	rsv[0] |= 0x40
	odd := frame(ws.OpBinary, true, "x")
	odd[0] = 0x83
	for _, c := range []struct {
		name   string
		frames []byte
		want   ws.StatusCode
	}{
		{"text", frame(ws.OpText, true, "hello"), ws.StatusUnsupportedData},
		{"not masked", bare(ws.OpBinary, "x"), ws.StatusProtocolError},
		{"reserved bits", rsv, ws.StatusProtocolError},
		{"an unknown kind", odd, ws.StatusProtocolError},
		{"a ping in pieces", frame(ws.OpPing, false, "x"), ws.StatusProtocolError},
		{"a long ping", frame(ws.OpPing, true, strings.Repeat("x", 126)), ws.StatusProtocolError},
		{"a continuation of nothing", frame(ws.OpContinuation, true, "x"), ws.StatusProtocolError},
		{"a message inside another", append(frame(ws.OpBinary, false, ""), frame(ws.OpBinary, true, "x")...), ws.StatusProtocolError},
		{"a huge frame", []byte("\x82\xff\x00\x00\x00\x00\x10\x00\x00\x00mask"), ws.StatusMessageTooBig},
		{"a close with half a code", frame(ws.OpClose, true, "\x03"), ws.StatusProtocolError},
		{"a close with a code that nobody may send", frame(ws.OpClose, true, "\x03\xed"), ws.StatusProtocolError},
		{"a close whose reason is no text", frame(ws.OpClose, true, "\x03\xe8\xff"), ws.StatusInvalidFramePayloadData},
		{"a frame beyond all numbers", []byte("\x82\xff\xff\xff\xff\xff\xff\xff\xff\xffmask"), ws.StatusMessageTooBig},
	} {
		conn, peer := streamSides(t, false)
		peer.Write(c.frames)
		if n, err := conn.Read(make([]byte, 10)); n != 0 || !errors.As(err, new(*CloseError)) {
			t.Errorf("%s: read gives %d, %v", c.name, n, err)
		}
		if _, err := conn.Read(make([]byte, 10)); err == nil {
			t.Errorf("%s: read goes on", c.name)
		}
		f, err := readFrame(peer)
		if err != nil || f.Header.OpCode != ws.OpClose {
			t.Errorf("%s: got %+v, %v", c.name, f.Header, err)
			continue
		}
		if code, _ := ws.ParseCloseFrameData(f.Payload); code != c.want {
			t.Errorf("%s: closed with %d, want %d", c.name, code, c.want)
		}
		nothingMore(t, conn, peer)
	}
}

// nothingMore has a stream that sent a close write, and holds it to what may follow that: nothing (RFC 6455, 5.5.1).
func nothingMore(t *testing.T, conn *Stream, peer net.Conn) {
	t.Helper()
	if n, err := conn.Write([]byte("late")); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write after a close gives %d, %v", n, err)
	}
	conn.control(ws.OpPing, []byte("late"))
	conn.Conn.Close()
	if more, _ := io.ReadAll(peer); len(more) > 0 {
		t.Errorf("behind the close comes %q", more)
	}
}

func TestADeadlineInAFrameLosesNothing(t *testing.T) {
	c, peer := streamSides(t, false)
	whole := append(frame(ws.OpPing, true, "ping"), frame(ws.OpBinary, true, "hello")...)
	var got []byte
	for i := range whole {
		c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		p := make([]byte, 10)
		n, err := c.Read(p)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("before byte %d: %v", i, err)
		}
		got = append(got, p[:n]...)
		peer.Write(whole[i : i+1])
	}
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	for len(got) < 5 {
		p := make([]byte, 10)
		n, err := c.Read(p)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p[:n]...)
	}
	if string(got) != "hello" {
		t.Errorf("got %q", got)
	}
}

// A ping that comes while a writer waits for the peer does not hold up the reader; the answer goes out behind what is written.
func TestPingsAreAnsweredBehindASlowWrite(t *testing.T) {
	c, peer := streamSides(t, false)
	big := bytes.Repeat([]byte("x"), 16<<20)
	wrote := make(chan error, 1)
	go func() { _, err := c.Write(big); wrote <- err }()
	var head [1]byte
	io.ReadFull(peer, head[:]) // the writer has begun
	peer.Write(append(frame(ws.OpPing, true, "1"), append(frame(ws.OpPing, true, "2"), frame(ws.OpBinary, true, "go on")...)...))
	p := make([]byte, 10)
	if n, err := c.Read(p); string(p[:n]) != "go on" || err != nil {
		t.Fatalf("got %q, %v", p[:n], err)
	}
	in := bufio.NewReader(io.MultiReader(bytes.NewReader(head[:]), peer))
	f, err := readFrame(in)
	if err != nil || len(f.Payload) != len(big) {
		t.Fatalf("got %d bytes, %v", len(f.Payload), err)
	}
	if f, err = readFrame(in); err != nil || f.Header.OpCode != ws.OpPong || string(f.Payload) != "2" {
		t.Errorf("got %+v %q, %v", f.Header, f.Payload, err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

func TestCloseTellsThePeer(t *testing.T) {
	c, peer := streamSides(t, true)
	done := make(chan struct{})
	go func() { defer close(done); c.Close() }()
	f, err := readFrame(peer)
	if err != nil || f.Header.OpCode != ws.OpClose || !f.Header.Masked {
		t.Errorf("got %+v, %v", f.Header, err)
	}
	peer.Close()
	<-done
}

// sink is a connection that gives bytes and takes all.
type sink struct {
	net.Conn
	in io.Reader
}

func (s sink) Read(p []byte) (int, error)       { return s.in.Read(p) }
func (s sink) Write(p []byte) (int, error)      { return len(p), nil }
func (s sink) SetWriteDeadline(time.Time) error { return nil }

func TestReadingAllocatesNothing(t *testing.T) {
	one := frame(ws.OpBinary, true, strings.Repeat("x", 200))
	in := bytes.NewReader(bytes.Repeat(one, 2000))
	c := NewStream(sink{in: in}, nil, false)
	p := make([]byte, 1000)
	if n := testing.AllocsPerRun(1000, func() { c.Read(p) }); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
	w := NewStream(sink{}, nil, true)
	w.Write(p)
	if n := testing.AllocsPerRun(1000, func() { w.Write(p) }); n != 0 {
		t.Errorf("%v allocations a write", n)
	}
}

// Whatever comes, the reader gives the payloads that gobwas's own reader gives, up to the first frame that is not allowed.
func FuzzWebSocketFrames(f *testing.F) {
	f.Add(append(frame(ws.OpBinary, false, "hello"), frame(ws.OpContinuation, true, "world")...), uint8(3))
	f.Add(append(frame(ws.OpPing, true, "hello"), frame(ws.OpBinary, true, strings.Repeat("x", 300))...), uint8(200))
	f.Add(append(frame(ws.OpBinary, true, "x"), frame(ws.OpClose, true, "\x03\xe8")...), uint8(1))
	f.Fuzz(func(t *testing.T, text []byte, step uint8) {
		c := NewStream(sink{in: bytes.NewReader(text)}, nil, false)
		var got []byte
		p := make([]byte, int(step)+1)
		for {
			n, err := c.Read(p)
			got = append(got, p[:n]...)
			if err != nil {
				break
			}
		}
		in := bytes.NewReader(text)
		var want []byte
		check := &Stream{}
		for {
			h, err := ws.ReadHeader(in)
			if err != nil || check.check(h) != nil || h.OpCode == ws.OpClose {
				break
			}
			payload := make([]byte, min(h.Length, int64(in.Len())))
			io.ReadFull(in, payload)
			ws.Cipher(payload, h.Mask, 0)
			if !h.OpCode.IsControl() {
				want = append(want, payload...)
				check.fragmented = !h.Fin
			}
			if int64(len(payload)) < h.Length {
				break
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("got %d bytes, want %d", len(got), len(want))
		}
	})
}

// Who closes a connection takes nothing from under who reads it: what is left of a frame would be taken for the next one.
func TestCloseWhileSomebodyReads(t *testing.T) {
	for range 3 {
		s, far := streamSides(t, true)
		go func() {
			zeros := bare(ws.OpBinary, strings.Repeat("\x00", 3000))
			for {
				if _, err := far.Write(zeros); err != nil {
					return
				}
			}
		}()
		began, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			p := make([]byte, 100)
			_, err := s.Read(p)
			for close(began); err == nil; {
				_, err = s.Read(p)
			}
			ended <- err
		}()
		<-began
		s.Close()
		var wrong *CloseError
		if err := <-ended; errors.As(err, &wrong) {
			t.Fatalf("the reader got %v", err)
		}
		far.Close()
	}
}
