package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// said is a connection on which the far side says what it is given, and takes all.
type said struct {
	net.Conn
	text io.Reader
}

func (s said) Read(p []byte) (int, error)       { return s.text.Read(p) }
func (s said) Write(p []byte) (int, error)      { return len(p), nil }
func (s said) SetReadDeadline(time.Time) error  { return nil }
func (s said) SetWriteDeadline(time.Time) error { return nil }
func (s said) Close() error                     { return nil }

// Whatever a relay says, to a client that has a request open and serves a topic, the client lives, and all that it had open ends with the connection.
func FuzzWhatTheRelaySays(f *testing.F) {
	for _, text := range []string{
		`[]`, `{}`, `[null]`, `[{"op":"error","code":"unknown_op","ref":7}]`,
		`[{"op":"head:ok","topic":"t","id":"1","ref":"1"},{"op":"head","topic":"t","id":"1","data":null},{"op":"body","topic":"t","id":"1","done":true}]`,
		`[{"op":"head:error","topic":"t","id":"1","ref":"1","code":"busy"},{"op":"body:error","ref":"2","code":"x"}]`,
		`[{"op":"head","topic":"s","id":"9","from":"A","data":{"a":1}},{"op":"body","topic":"s","id":"9","from":"A","data":"0123456789012345678901234567890123456789"},{"op":"cancel","topic":"s","id":"9","from":"A"}]`,
		`[{"op":"role","topic":"s","role":"none"},{"op":"head","topic":"u","id":"9","from":"A","done":true}]`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		frames := websocket.AppendFrame(nil, true, text, false)
		c := &Client{o: Options{Buffer: 30, Hold: -1, NoReconnect: true, Timeout: -1}, done: make(chan struct{}), refs: map[string]func(*op){}, topics: map[string]*served{},
			requests: map[string]*Response{}, serving: map[servedKey]*Request{}}
		c.o.defaults()
		c.ctx, c.cancel = context.WithCancel(t.Context())
		c.topics["s"] = &served{topic: "s", handler: func(_ context.Context, r *Request) error {
			for p, err := range r.Body() {
				if err != nil {
					return err
				}
				if !json.Valid(p) {
					t.Errorf("the handler got %q", p)
				}
				if err := r.Send(p); err != nil {
					return err
				}
			}
			return nil
		}}
		c.conn = websocket.New(said{text: bytes.NewReader(frames)}, nil, true, websocket.Options{Mutex: &c.mu, Release: c.release, MaxMessage: 1 << 20})
		r, err := c.newResponse(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		if err := r.out.send(t.Context(), "head", nil, true); err != nil {
			t.Fatal(err)
		}
		c.run(c.conn)
		for p, err := range r.Body() {
			if err == nil && !json.Valid(p) {
				t.Errorf("the response has %q", p)
			}
		}
		c.Close()
		if len(c.requests)+len(c.serving)+len(c.refs) != 0 {
			t.Errorf("left: %d requests, %d served, %d refs", len(c.requests), len(c.serving), len(c.refs))
		}
	})
}

// Any JSON is bytes or other JSON, and bytes come back.
func FuzzParseBytes(f *testing.F) {
	f.Add([]byte(`"x"`), []byte("\xff"))
	f.Add([]byte(`{"base64":"/wA="}`), []byte("€"))
	f.Add([]byte(`{"base64":null}`), []byte(""))
	f.Fuzz(func(t *testing.T, data, p []byte) {
		ParseBytes(data)
		Failure(data)
		if back, isOther := ParseBytes(Bytes(p)); !bytes.Equal(back, p) || isOther {
			t.Errorf("%q comes back as %q", p, back)
		}
	})
}
