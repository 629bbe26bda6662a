package relay

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/house/leaks"
	"github.com/fingerpost/fingerpost/routetable"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const testKeys = `{"keys": {
	"full":   {"token": "full",   "domain": "acme",  "relay": true,  "P": ["*"], "S": ["*"]},
	"client": {"token": "client", "domain": "acme",  "relay": true,  "P": ["*"]},
	"server": {"token": "server", "domain": "acme",  "relay": true,  "S": ["*"]},
	"none":   {"token": "none",   "domain": "acme"},
	"other":  {"token": "other",  "domain": "other", "relay": true,  "P": ["*"], "S": ["*"]}}}`

// harness is a broker behind an HTTP server.
type harness struct {
	testing.TB
	table *routetable.Table
	core  *admin.Core
	b     *Broker
	addr  string
	ops   admin.Caller // of an operator
}

func newHarness(t testing.TB, o Options) *harness {
	t.Helper()
	h := &harness{TB: t, table: routetable.New(), ops: admin.Caller{User: "op", Role: admin.RoleOperator}}
	h.core = admin.New(h.table, admin.Options{})
	h.b = New(h.core, o)
	h.keys(testKeys)
	mux := http.NewServeMux()
	mux.Handle("/api/{domain}/relay/connect", h.b)
	srv := httptest.NewServer(mux)
	h.addr = srv.Listener.Addr().String()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		h.b.Stop(ctx)
		srv.Close()
		if n := h.table.Snapshot().Len(); n > 0 {
			for r := range h.table.Snapshot().Routes() {
				if routetable.Learned(r.Origin) {
					t.Errorf("a row is left: %s --> %s of %s", r.Pattern, r.Address, r.Origin)
				}
			}
		}
	})
	return h
}

// newServed is a harness with a server of topic t, a connection of a client that nobody reads, and what its reader works with.
func newServed(t testing.TB) (h *harness, server *testPeer, client *Conn, w *work) {
	t.Helper()
	h = newHarness(t, Options{})
	server, client = h.dial("server"), h.bare("client")
	server.send(serveOf("t"))
	server.expect(servedAs("t", "active"))
	w = newWork(h.b)
	t.Cleanup(w.free)
	return h, server, client, w
}

func (h *harness) keys(text string) {
	h.Helper()
	k, err := ParseKeys([]byte(text))
	if err != nil {
		h.Fatal(err)
	}
	h.b.SetKeys(k)
}

// do does a command of an operator.
func (h *harness) do(cmd admin.Command) {
	h.Helper()
	if _, err := h.core.Do(h.ops, cmd); err != nil {
		h.Fatal(err)
	}
}

// dial connects with a key of acme, or of "other".
func (h *harness) dial(token string) *testPeer {
	h.Helper()
	domain := "acme"
	if token == "other" {
		domain = "other"
	}
	nc, err := net.Dial("tcp", h.addr)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { nc.Close() })
	fmt.Fprintf(nc, "GET /api/%s/relay/connect?token=%s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", domain, token, h.addr)
	p := &testPeer{h: h, nc: nc, in: bufio.NewReaderSize(nc, 64<<10)}
	res, err := http.ReadResponse(p.in, nil)
	if err != nil {
		h.Fatal(err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		h.Fatalf("status %d", res.StatusCode)
	}
	if h.b.keys.Load().find(token) != nil {
		p.quiet() // it is on the list now
	}
	return p
}

// bare makes a connection that nobody reads, for tests that play its reader. What is written to it is thrown away.
func (h *harness) bare(token string) *Conn {
	h.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.Fatal(err)
	}
	defer ln.Close()
	far, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		h.Fatal(err)
	}
	near, err := ln.Accept()
	if err != nil {
		h.Fatal(err)
	}
	c := h.b.newConn(near, nil, h.b.keys.Load().find(token), false)
	drained := make(chan struct{})
	go func() { io.Copy(io.Discard, far); far.Close(); close(drained) }()
	h.Cleanup(func() {
		c.end(io.EOF)
		h.b.reading.Done()
		<-drained
	})
	return c
}

// testPeer is the other end of a connection.
type testPeer struct {
	h  *harness
	nc net.Conn
	in *bufio.Reader
}

// masked is a message of a client, with a mask of zeros.
func masked(payload string) []byte { return maskedFrame(0x81, payload) }

func maskedFrame(first byte, payload string) []byte {
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	return append(append(b, 0, 0, 0, 0), payload...)
}

func (p *testPeer) send(messages ...string) {
	p.h.Helper()
	for _, m := range messages {
		if _, err := p.nc.Write(masked(m)); err != nil {
			p.h.Fatal(err)
		}
	}
}

// frame reads a frame.
func (p *testPeer) frame() (opcode byte, payload []byte, err error) {
	p.nc.SetReadDeadline(time.Now().Add(20 * time.Second))
	var head [10]byte
	if _, err := io.ReadFull(p.in, head[:2]); err != nil {
		return 0, nil, err
	}
	n := int(head[1])
	switch n {
	case 126:
		_, err = io.ReadFull(p.in, head[2:4])
		n = int(binary.BigEndian.Uint16(head[2:]))
	case 127:
		_, err = io.ReadFull(p.in, head[2:10])
		n = int(binary.BigEndian.Uint64(head[2:]))
	}
	if err != nil {
		return 0, nil, err
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(p.in, payload)
	return head[0] & 15, payload, err
}

// next reads a text message.
func (p *testPeer) next() []byte {
	p.h.Helper()
	opcode, payload, err := p.frame()
	if err != nil || opcode != 1 {
		p.h.Fatalf("no message: %d %q %v", opcode, payload, err)
	}
	return payload
}

// expect reads messages, which must be these: a string "$" in them stands for any, and "message" of errors is left out.
func (p *testPeer) expect(messages ...string) {
	p.h.Helper()
	for _, want := range messages {
		got := p.next()
		if !fits(p.h, got, want) {
			p.h.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

func fits(t testing.TB, got []byte, want string) bool {
	var g, w []map[string]any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("%s: %v", want, err)
	}
	for i := range g {
		delete(g[i], "message")
		if i < len(w) && w[i]["from"] == "$" && g[i]["from"] != nil {
			g[i]["from"] = "$"
		}
	}
	return reflect.DeepEqual(g, w)
}

// quiet holds that nothing comes: an op is answered, and its answer is what comes next.
func (p *testPeer) quiet() {
	p.h.Helper()
	p.send(`[{"op":"unserve","topic":"quiet","ref":"q"}]`)
	p.expect(`[{"op":"unserve:ok","topic":"quiet","ref":"q"}]`)
}

// closed reads on until the connection is closed, and gives the code.
func (p *testPeer) closed() int {
	p.h.Helper()
	for {
		opcode, payload, err := p.frame()
		if err != nil {
			p.h.Fatal(err)
		}
		if opcode == 8 {
			return int(binary.BigEndian.Uint16(payload))
		}
	}
}

// settled waits until all changes of the table are told.
func (h *harness) settled() {
	h.Helper()
	h.eventually("roles are told", func() bool {
		h.b.roles.mu.Lock()
		defer h.b.roles.mu.Unlock()
		return len(h.b.roles.items) == 0 && !h.b.roles.busy
	})
}

// eventually waits for a state that other goroutines bring about.
func (h *harness) eventually(what string, holds func() bool) {
	h.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			h.Fatal("not in time: ", what)
		}
	}
}
