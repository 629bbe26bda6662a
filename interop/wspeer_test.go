package interop

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// The library ws, of node, as the client of our end of a WebSocket: all sizes, fragments, pings, compression that is not taken, a close.
func TestAForeignWebSocketClient(t *testing.T) {
	over := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if nc, already := (websocket.Gate{}).Upgrade(w, r); nc != nil {
			go func() { over <- echoWebSocket(nc, already) }()
		}
	}))
	defer srv.Close()
	p := start(t, "ws client", nodeProgram, "ws/peer.js", "client", "ws://"+srv.Listener.Addr().String())
	if l := p.line(); l != "done" {
		t.Error(l)
	}
	var ce *websocket.CloseError
	if err := <-over; !errors.As(err, &ce) || !ce.Remote || ce.Code != 4000 || ce.Text != "bye" {
		t.Error(err)
	}
	if status := p.wait(); status != 0 {
		t.Errorf("status %d: %s", status, p.log)
	}
}

func echoWebSocket(nc net.Conn, already []byte) error {
	c := websocket.New(nc, already, false, websocket.Options{})
	for {
		m, more, err := c.Next()
		if err != nil {
			c.End(0, "")
			return err
		}
		c.Lock()
		c.Append(m.Text, m.Data)
		if !more {
			c.Flush()
		}
		c.Unlock()
	}
}

// The library ws as the server of our client end.
func TestAForeignWebSocketServer(t *testing.T) {
	p := start(t, "ws server", nodeProgram, "ws/peer.js", "server")
	c, err := websocket.Dial(t.Context(), "ws://127.0.0.1:"+p.line(), websocket.DialOptions{Protocols: []string{"echo"}, Conn: websocket.Options{PingEvery: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	say := func(text string) {
		c.Lock()
		c.Append(true, []byte(text))
		c.Flush()
		c.Unlock()
	}
	for _, text := range []string{"hello", "", strings.Repeat("€", 100_000)} {
		say(text)
		for _, want := range []string{text, "pong are you there?"} {
			if m, _, err := c.Next(); err != nil || string(m.Data) != want {
				t.Fatalf("got %.30q, %v, want %.30q", m.Data, err, want)
			}
		}
	}
	say("close")
	_, _, err = c.Next()
	if ce := new(websocket.CloseError); !errors.As(err, &ce) || ce.Code != websocket.GoingAway || ce.Text != "as you like" {
		t.Error(err)
	}
	c.End(0, "")
	if status := p.wait(); status != 0 {
		t.Errorf("status %d: %s", status, p.log)
	}
}
