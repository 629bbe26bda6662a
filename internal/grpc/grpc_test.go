package grpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is an owner that writes what comes.
type echo struct {
	s  *Stream
	mu sync.Mutex
	q  [][]byte
}

func (e *echo) Message(m []byte) error {
	if string(m) == "end" {
		return &Status{Aborted, "as asked: 100 %"}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.q = append(e.q, bytes.Clone(m))
	return nil
}

func (e *echo) Drained() { e.s.Flush() }

func (e *echo) Next() ([]byte, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.q) == 0 {
		return nil, false
	}
	return e.q[0], true
}

func (e *echo) Sent() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.q = e.q[1:]
}

func (e *echo) Settle() {}

const testMethod = "/s/m"

func testOptions() Options {
	return Options{MaxMessage: 1 << 20, Log: slog.New(slog.DiscardHandler), Quiet: 10 * time.Second, Methods: map[string]func(*Stream){testMethod: func(s *Stream) {
		m, err := s.First(context.Background())
		if err != nil {
			return
		}
		s.Start(&echo{s: s, q: [][]byte{m}})
		<-s.Done()
		if status, ok := errors.AsType[*Status](s.Err()); ok {
			s.End(status.Code, status.Message)
		}
	}}}
}

func startServer(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Listen("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); s.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Close(ctx)
		<-served
	})
	return s
}

// client speaks HTTP/2 by frames of another library.
type client struct {
	t  *testing.T
	nc net.Conn
	*http2.Framer
	enc *hpack.Encoder
	buf bytes.Buffer
}

func dial(t *testing.T, s *Server) *client {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(nc, preface)
	c := &client{t: t, nc: nc, Framer: http2.NewFramer(nc, nc)}
	c.AllowIllegalWrites = true
	c.enc = hpack.NewEncoder(&c.buf)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.WriteSettings()
	return c
}

func (c *client) open(id uint32, pairs ...string) {
	c.buf.Reset()
	for i := 0; i < len(pairs); i += 2 {
		c.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.buf.Bytes(), EndHeaders: true})
}

func (c *client) call(id uint32) {
	c.open(id, ":method", "POST", ":scheme", "http", ":path", testMethod, ":authority", "x", "content-type", "application/grpc", "te", "trailers")
}

func message(text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}

// said gives what the server says next, but for settings, pings and windows.
func (c *client) said() string {
	for {
		f, err := c.ReadFrame()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return "nothing"
		case err != nil:
			return "closed"
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			return fmt.Sprintf("data %d %q", f.StreamID, f.Data())
		case *http2.MetaHeadersFrame:
			text := fmt.Sprintf("headers %d", f.StreamID)
			for _, h := range f.Fields {
				text += " " + h.Name + "=" + h.Value
			}
			return text
		case *http2.RSTStreamFrame:
			return fmt.Sprintf("reset %d %v", f.StreamID, f.ErrCode)
		case *http2.GoAwayFrame:
			return fmt.Sprintf("goaway %v", f.ErrCode)
		}
	}
}

func (c *client) expect(want ...string) {
	c.t.Helper()
	for _, w := range want {
		if got := c.said(); got != w {
			c.t.Errorf("got  %s\nwant %s", got, w)
		}
	}
}

func TestMessages(t *testing.T) {
	c := dial(t, startServer(t, testOptions()))
	c.call(1)
	both := append(message("one"), message("two")...)
	c.WriteData(1, false, both[:4]) // a message in parts, and two in one frame
	c.WriteDataPadded(1, false, both[4:], make([]byte, 9))
	c.expect("headers 1 :status=200 content-type=application/grpc")
	c.expect(fmt.Sprintf("data 1 %q", message("one")), fmt.Sprintf("data 1 %q", message("two")))
	c.WriteData(1, false, message("end"))
	c.expect("headers 1 grpc-status=10 grpc-message=as asked: 100 %25", "reset 1 NO_ERROR")
	c.call(3)
	c.WriteData(3, true, message("last"))
	c.expect("headers 3 :status=200 content-type=application/grpc")
}

// A message is written as the peer's windows allow, and a stream that has no room keeps no other waiting.
func TestWindows(t *testing.T) {
	c := dial(t, startServer(t, testOptions()))
	c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 6})
	c.call(1)
	c.WriteData(1, false, message("a longer one"))
	c.expect("headers 1 :status=200 content-type=application/grpc", fmt.Sprintf("data 1 %q", message("a longer one")[:6]))
	c.call(3)
	c.WriteData(3, false, message("b"))
	c.expect("headers 3 :status=200 content-type=application/grpc", fmt.Sprintf("data 3 %q", message("b")))
	c.WriteWindowUpdate(1, 100)
	c.expect(fmt.Sprintf("data 1 %q", message("a longer one")[6:]))
}

func TestStreamsRefused(t *testing.T) {
	for name, x := range map[string]struct {
		pairs []string
		want  string
	}{
		"another method": {[]string{":method", "POST", ":path", "/x", "content-type", "application/grpc"}, "headers 1 :status=200 content-type=application/grpc grpc-status=12 grpc-message=unknown method"},
		"GET":            {[]string{":method", "GET", ":path", testMethod}, "headers 1 :status=405"},
		"no gRPC":        {[]string{":method", "POST", ":path", testMethod, "content-type", "text/plain"}, "headers 1 :status=415"},
		"compressed":     {[]string{":method", "POST", ":path", testMethod, "content-type", "application/grpc+proto", "grpc-encoding", "gzip"}, "headers 1 :status=200 content-type=application/grpc grpc-status=12 grpc-message=messages are not compressed here"},
		"upper case":     {[]string{":method", "POST", "X-A", "b"}, "reset 1 PROTOCOL_ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, startServer(t, testOptions()))
			c.open(1, x.pairs...)
			c.expect(x.want)
		})
	}
}

func TestMessagesRefused(t *testing.T) {
	for name, x := range map[string]struct {
		data []byte
		want string
	}{
		"too large":  {[]byte{0, 0, 0x10, 0, 1}, "headers 1 grpc-status=8 grpc-message=received message larger than max"},
		"compressed": {[]byte{1, 0, 0, 0, 0}, "headers 1 grpc-status=13 grpc-message=messages are not compressed here"},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, startServer(t, testOptions()))
			c.call(1)
			c.WriteData(1, false, message("a"))
			c.expect("headers 1 :status=200 content-type=application/grpc", fmt.Sprintf("data 1 %q", message("a")))
			c.WriteData(1, false, x.data)
			c.expect(x.want)
		})
	}
}

// What breaks the rules of HTTP/2 ends the connection, with the reason.
func TestBadPeers(t *testing.T) {
	for name, x := range map[string]struct {
		do   func(c *client)
		want string
	}{
		"data of no stream":     {func(c *client) { c.WriteData(1, false, nil) }, "goaway PROTOCOL_ERROR"},
		"an even stream":        {func(c *client) { c.call(2) }, "goaway PROTOCOL_ERROR"},
		"a frame too large":     {func(c *client) { c.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 17<<10)) }, "goaway FRAME_SIZE_ERROR"},
		"a ping of no size":     {func(c *client) { c.WriteRawFrame(http2.FramePing, 0, 0, nil) }, "goaway FRAME_SIZE_ERROR"},
		"settings of a stream":  {func(c *client) { c.WriteRawFrame(http2.FrameSettings, 0, 1, nil) }, "goaway PROTOCOL_ERROR"},
		"a push":                {func(c *client) { c.WriteRawFrame(http2.FramePushPromise, 0, 1, nil) }, "goaway PROTOCOL_ERROR"},
		"a continuation alone":  {func(c *client) { c.WriteRawFrame(http2.FrameContinuation, 0, 1, nil) }, "goaway PROTOCOL_ERROR"},
		"a window of nothing":   {func(c *client) { c.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, make([]byte, 4)) }, "goaway PROTOCOL_ERROR"},
		"a window too large":    {func(c *client) { c.WriteWindowUpdate(0, 1<<31-1) }, "goaway FLOW_CONTROL_ERROR"},
		"no headers":            {func(c *client) { c.WriteRawFrame(http2.FrameHeaders, 4, 1, []byte{0xff, 0xff, 0xff}) }, "goaway COMPRESSION_ERROR"},
		"padding of everything": {func(c *client) { c.call(1); c.WriteRawFrame(http2.FrameData, 8, 1, []byte{9, 0}) }, "goaway PROTOCOL_ERROR"},
		"headers without an end": {func(c *client) {
			c.WriteRawFrame(http2.FrameHeaders, 0, 1, []byte{0x82})
			c.WritePing(false, [8]byte{})
		}, "goaway PROTOCOL_ERROR"},
		"no preface": {func(c *client) {}, "goaway PROTOCOL_ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, testOptions())
			var c *client
			if name == "no preface" {
				nc, err := net.Dial("tcp", s.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				io.WriteString(nc, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				c = &client{t: t, nc: nc, Framer: http2.NewFramer(nc, nc)}
			} else {
				c = dial(t, s)
			}
			x.do(c)
			c.expect(x.want)
		})
	}
}

// A peer whose messages nobody has asked for yet may send its window and no more: also of one long message, whose sender nobody knows.
func TestWindowOfThePeer(t *testing.T) {
	for name, first := range map[string][]byte{"many messages": make([]byte, 16<<10), "one long message": append(message(string(make([]byte, 1<<20)))[:5], make([]byte, 16<<10-5)...)} {
		t.Run(name, func(t *testing.T) {
			o := testOptions()
			o.Quiet = time.Hour
			o.Methods[testMethod] = func(s *Stream) { <-s.Done() } // nothing is read
			c := dial(t, startServer(t, o))
			c.call(1)
			c.WriteData(1, false, first)
			for range window/(16<<10) + 1 {
				c.WriteData(1, false, make([]byte, 16<<10))
			}
			if got := c.said(); got != "goaway FLOW_CONTROL_ERROR" && got != "closed" {
				t.Errorf("got %s", got)
			}
		})
	}
}

// lone is a listener that takes nobody.
type lone struct{ net.Listener }

func (lone) Close() error { return nil }

// A server that closes does not wait for peers that have not said who they are.
func TestCloseDuringAHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions()
		o.TLS = &tls.Config{}
		s := newServer(lone{}, o)
		near, far := net.Pipe()
		defer near.Close()
		s.running.Go(func() { s.serve(far) })
		synctest.Wait()
		began := time.Now()
		s.Close(context.Background())
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// A peer that is silent is asked, and lost where it does not answer; one that answers stays.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(lone{}, testOptions())
		near, far := net.Pipe()
		s.running.Go(func() { s.serve(far) })
		io.WriteString(near, preface)
		f := http2.NewFramer(near, near)
		pings, asked, began := 0, time.Time{}, time.Now()
		for {
			x, err := f.ReadFrame()
			if err != nil {
				break
			}
			if p, ok := x.(*http2.PingFrame); ok && !p.IsAck() {
				if pings++; pings <= 3 {
					f.WritePing(true, p.Data)
				}
				asked = time.Now()
			}
		}
		if pings != 4 || time.Since(asked) != 5*time.Second || asked.Sub(began) != 40*time.Second {
			t.Errorf("%d pings, the last after %v, and lost %v later", pings, asked.Sub(began), time.Since(asked))
		}
		s.Close(t.Context())
	})
}

// A peer that is gone is noticed: its streams end, and the connection with them.
func TestPeerThatIsGone(t *testing.T) {
	o, ended := testOptions(), make(chan error, 1)
	o.Methods[testMethod] = func(s *Stream) { <-s.Done(); ended <- s.Err() }
	s := startServer(t, o)
	c := dial(t, s)
	c.call(1)
	c.WritePing(false, [8]byte{1})
	for f, err := c.ReadFrame(); ; f, err = c.ReadFrame() {
		if p, ok := f.(*http2.PingFrame); err != nil || ok && p.IsAck() {
			break // the stream is there
		}
	}
	c.nc.Close()
	select {
	case err := <-ended:
		if !errors.Is(err, errLost) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the stream of a peer that is gone goes on")
	}
}

// More streams than a connection may have are refused, one by one.
// Pings are answered together, each with what it said, and again when more come.
func TestPings(t *testing.T) {
	c := dial(t, startServer(t, testOptions()))
	for turn := range byte(3) {
		c.WritePing(false, [8]byte{turn, 1})
		c.WritePing(false, [8]byte{turn, 2})
		for n := byte(1); n <= 2; {
			f, err := c.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if p, ok := f.(*http2.PingFrame); ok && p.IsAck() {
				if p.Data != [8]byte{turn, n} {
					t.Fatalf("turn %d, ping %d: answered %v", turn, n, p.Data)
				}
				n++
			}
		}
	}
}

func TestTooManyStreams(t *testing.T) {
	c := dial(t, startServer(t, testOptions()))
	for i := range uint32(maxStreams + 1) {
		c.call(2*i + 1)
	}
	c.expect(fmt.Sprintf("reset %d REFUSED_STREAM", 2*maxStreams+1))
}

func FuzzConn(f *testing.F) {
	var b bytes.Buffer
	fr := http2.NewFramer(&b, nil)
	var h bytes.Buffer
	enc := hpack.NewEncoder(&h)
	for _, x := range [][2]string{{":method", "POST"}, {":path", testMethod}, {"content-type", "application/grpc"}} {
		enc.WriteField(hpack.HeaderField{Name: x[0], Value: x[1]})
	}
	fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3})
	fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h.Bytes(), EndHeaders: true})
	fr.WriteData(1, false, append(message("one"), message("two")...))
	fr.WriteWindowUpdate(1, 7)
	fr.WritePing(false, [8]byte{1})
	fr.WriteData(1, true, message("end"))
	fr.WriteRSTStream(1, 8)
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		o := testOptions()
		s := newServer(lone{}, o)
		near, far := net.Pipe()
		go io.Copy(io.Discard, near)
		done := make(chan struct{})
		go func() { defer close(done); newConn(s, far).run() }()
		near.SetWriteDeadline(time.Now().Add(10 * time.Second))
		near.Write(append([]byte(preface), in...))
		near.Close()
		<-done
	})
}
