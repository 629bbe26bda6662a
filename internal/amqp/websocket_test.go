package amqp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
)

func serveWeb(t *testing.T, secure *tls.Config) (address string) {
	t.Helper()
	ln, err := amqp.ListenWith("127.0.0.1:0", amqp.ListenOptions{TLS: secure, WebSocket: &amqp.WebSocketOptions{}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- ln.Serve(func(nc net.Conn) *amqp.Conn {
			return amqp.NewConn(nc, engine.Config{ContainerID: "server", Mechanisms: []engine.Mechanism{amqp.Anonymous()}}, nil,
				func(*amqp.Conn) amqp.Owner { return quiet{} })
		}, nil)
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		ln.Close(ctx)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

func TestWebSocketConnections(t *testing.T) {
	address := serveWeb(t, nil)
	for _, path := range []string{"/", "/amqp"} {
		c, err := dial(t, amqp.DialOptions{Address: address, WebSocket: path})
		if err != nil {
			t.Fatal(err)
		}
		c.Lock()
		if !c.Engine.IsOpen() {
			t.Error("not open")
		}
		c.Release()
		c.Close(nil)
		<-c.Done()
		if err := c.Err(); err != nil {
			t.Errorf("an orderly close ends with %v", err)
		}
	}
}

func TestWebSocketOverTLS(t *testing.T) {
	certified := httptest.NewTLSServer(nil) // for its certificate
	defer certified.Close()
	pool := x509.NewCertPool()
	pool.AddCert(certified.Certificate())
	address := serveWeb(t, &tls.Config{Certificates: certified.TLS.Certificates})
	c, err := dial(t, amqp.DialOptions{Address: address, WebSocket: "/", TLS: &tls.Config{RootCAs: pool, ServerName: "example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Transport(); got != "websocket+tls" {
		t.Errorf("transport %s", got)
	}
	if c, err := dial(t, amqp.DialOptions{Address: address, WebSocket: "/"}); err == nil {
		t.Errorf("without TLS: %v", c)
	}
}

func TestWebSocketHandshakes(t *testing.T) {
	ln := amqp.NewListener(amqp.ListenOptions{})
	defer ln.Close(context.Background())
	h := ln.WebSocket(amqp.WebSocketOptions{Origins: []string{"https://app.example"}}, func(net.Conn) *amqp.Conn { return nil }, nil)
	srv := httptest.NewServer(h)
	defer srv.Close()
	host := srv.Listener.Addr().String()
	for _, c := range []struct {
		name, method, upgrade, protocol, origin, host string
		want                                          int
	}{
		{"a program", "GET", "websocket", "amqp", "", host, 101},
		{"one protocol of many", "GET", "WebSocket", "mqtt, amqp", "", host, 101},
		{"no WebSocket", "GET", "", "", "", host, 426},
		{"no subprotocol", "GET", "websocket", "", "", host, 400},
		{"another subprotocol", "GET", "websocket", "amqps", "", host, 400},
		{"not a GET", "POST", "websocket", "amqp", "", host, 405},
		{"a page that is listed", "GET", "websocket", "amqp", "https://app.example", "router.example", 101},
		{"a page that is not", "GET", "websocket", "amqp", "https://evil.example", host, 403},
		{"a page of this address", "GET", "websocket", "amqp", "http://" + host, host, 101},
		{"a page of a name that somebody made lead here", "GET", "websocket", "amqp", "http://evil.example", "evil.example", 403},
		{"a page of localhost", "GET", "websocket", "amqp", "http://localhost:8080", "localhost:8080", 101},
		{"a page of another port here", "GET", "websocket", "amqp", "http://localhost:9999", "localhost:8080", 403},
		{"a page without a name", "GET", "websocket", "amqp", "null", host, 403},
	} {
		r, err := http.NewRequest(c.method, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		r.Header.Set("Sec-WebSocket-Version", "13")
		r.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
		for name, v := range map[string]string{"Upgrade": c.upgrade, "Sec-WebSocket-Protocol": c.protocol, "Origin": c.origin} {
			if v != "" {
				r.Header.Set(name, v)
			}
		}
		if c.upgrade != "" {
			r.Header.Set("Connection", "keep-alive, Upgrade")
		}
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		answer.Body.Close()
		if answer.StatusCode != c.want {
			t.Errorf("%s: got %s, want %d", c.name, answer.Status, c.want)
		}
		if c.want == 101 && answer.Header.Get("Sec-WebSocket-Protocol") != "amqp" {
			t.Errorf("%s: no subprotocol in the answer", c.name)
		}
	}
}

// A peer that says nothing after the handshake does not stay: AMQP has to be opened in time, and silence ends it.
func TestASilentWebSocketIsClosed(t *testing.T) {
	ln, err := amqp.ListenWith("127.0.0.1:0", amqp.ListenOptions{WebSocket: &amqp.WebSocketOptions{}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ln.Serve(func(nc net.Conn) *amqp.Conn {
			return amqp.NewConn(nc, engine.Config{IdleTimeout: 50 * time.Millisecond}, nil, func(*amqp.Conn) amqp.Owner { return quiet{} })
		}, func(_ *amqp.Conn, err error) { ended <- err })
	}()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	mute, err := amqp.DialWebSocket(t.Context(), nc, ln.Addr().String(), "/")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(mute, "AMQP\x00\x01\x00\x00\x00\x00\x00\x16\x02\x00\x00\x00\x00\x53\x10\xc0\x09\x03\xa1\x01x\x40\x70\x00\x00\x02\x00")
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it ended in order")
		}
	case <-time.After(20 * time.Second):
		t.Error("the silent peer is still connected")
	}
	ln.Close(context.Background())
	<-done
}
