package websocket_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// echo serves WebSockets that send back what they get. wait waits until n of them are over.
func echo(gate websocket.Gate, o websocket.Options) (h http.Handler, wait func(n int)) {
	over := make(chan struct{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Query().Get("token") == "bad":
				http.Error(w, "no such token\nat all", http.StatusUnauthorized)
				return
			case r.URL.Path == "/endless":
				w.WriteHeader(http.StatusTeapot)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				return
			}
			if nc, already := gate.Upgrade(w, r); nc != nil {
				go func() {
					serveEcho(websocket.New(nc, already, false, o))
					over <- struct{}{}
				}()
			}
		}), func(n int) {
			for range n {
				<-over
			}
		}
}

func serveEcho(c *websocket.Conn) {
	for {
		m, more, err := c.Next()
		if err != nil {
			break
		}
		c.Lock()
		c.Append(m.Text, m.Data)
		if !more {
			c.Flush()
		}
		c.Unlock()
	}
	c.End(0, "")
}

func TestDial(t *testing.T) {
	h, wait := echo(websocket.Gate{}, websocket.Options{})
	for _, secure := range []bool{false, true} {
		srv, scheme, o := httptest.NewUnstartedServer(h), "ws://", websocket.DialOptions{}
		if secure {
			srv.StartTLS()
			scheme = "wss://"
			pool := x509.NewCertPool()
			pool.AddCert(srv.Certificate())
			o.TLS = &tls.Config{RootCAs: pool}
		} else {
			srv.Start()
		}
		address := scheme + srv.Listener.Addr().String()
		c, err := websocket.Dial(t.Context(), address+"/a%2Fb?token=x", o)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"hello", strings.Repeat("long", 20_000), ""} {
			c.Lock()
			c.AppendWith(true, func(b []byte) []byte { return append(b, text...) })
			c.Flush()
			c.Unlock()
			if m, _, err := c.Next(); err != nil || !m.Text || string(m.Data) != text {
				t.Errorf("%s: got %d bytes, %v", scheme, len(m.Data), err)
			}
		}
		c.Close(websocket.Normal, "")
		if _, _, err := c.Next(); err == nil {
			t.Error("it reads on")
		}
		c.End(0, "")

		_, err = websocket.Dial(t.Context(), address+"/?token=bad", o)
		var refused *websocket.RefusedError
		if !errors.As(err, &refused) || refused.Status != 401 || refused.Text != "no such token" || strings.Contains(err.Error(), "token=") {
			t.Errorf("a refusal: %v", err)
		}
		if _, err = websocket.Dial(t.Context(), address+"/endless", o); !errors.As(err, &refused) || refused.Status != 418 {
			t.Errorf("a refusal without end: %v", err)
		}
		o.Protocols = []string{"other"}
		if _, err = websocket.Dial(t.Context(), address, o); err == nil {
			t.Error("a subprotocol that the server does not take")
		}
		srv.Close()
		wait(2)
	}
}

func TestDialRefusesOddURLs(t *testing.T) {
	for _, address := range []string{"", "http://127.0.0.1:1/", "ws://", "ws:///x?token=secret", "ws://a b/?token=secret", "ws://127.0.0.1:port/?token=secret"} {
		if _, err := websocket.Dial(t.Context(), address, websocket.DialOptions{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// A server that takes the socket and says nothing holds up Dial no longer than its context lives.
func TestDialEndsWithItsContext(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		nc, err := ln.Accept()
		if err == nil {
			nc.Read(make([]byte, 1)) // it has begun
			cancel(nil)
			nc.Read(make([]byte, 1))
			nc.Close()
		}
	}()
	if _, err := websocket.Dial(ctx, "ws://"+ln.Addr().String(), websocket.DialOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A frame that comes in one piece with the request is not lost.
func TestBytesBehindTheRequest(t *testing.T) {
	h, wait := echo(websocket.Gate{}, websocket.Options{})
	srv := httptest.NewServer(h)
	nc, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	nc.Write([]byte(request + "\x81\x85\x00\x00\x00\x00hello"))
	got := make([]byte, 1000)
	n := 0
	for !strings.HasSuffix(string(got[:n]), "\x81\x05hello") {
		m, err := nc.Read(got[n:])
		if err != nil {
			t.Fatalf("got %q, %v", got[:n], err)
		}
		n += m
	}
	nc.Close()
	wait(1)
	srv.Close()
}

const request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// An idle connection, one that has had traffic, is to cost 16 KiB at most, its goroutine included.
func TestAnIdleConnectionHoldsLittle(t *testing.T) {
	const n, most = 300, 12 << 10
	h, wait := echo(websocket.Gate{}, websocket.Options{PingEvery: time.Minute})
	srv := httptest.NewServer(h)
	conns := make([]net.Conn, 0, n)
	connect := func() {
		nc, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		nc.SetDeadline(time.Now().Add(20 * time.Second))
		nc.Write([]byte(request + "\x81\x85\x00\x00\x00\x00hello"))
		var got [1000]byte
		for n := 0; !strings.HasSuffix(string(got[:n]), "\x81\x05hello"); {
			m, err := nc.Read(got[n:])
			if err != nil {
				t.Fatal(err)
			}
			n += m
		}
		conns = append(conns, nc)
	}
	connect()
	before := held()
	for range n {
		connect()
	}
	each := (held() - before) / n
	t.Logf("%d bytes a connection, both ends", each)
	if each > most {
		t.Errorf("%d bytes a connection, at most %d are allowed", each, most)
	}
	for _, nc := range conns {
		nc.Close()
	}
	wait(len(conns))
	srv.Close()
}

func held() int {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse + m.StackInuse)
}
