package mesh

import (
	"bytes"
	"context"
	"crypto/rsa"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/websocket"
	"github.com/fingerpost/fingerpost/routetable"
)

var rewrite = flag.Bool("rewrite", false, "write the answers into the conversations of testdata/rembus")

// router is a mesh with its node.
type router struct {
	t     testing.TB
	m     *Mesh
	node  *forwarder.Node
	table *routetable.Table
	once  sync.Once
	ws    string // host:port
	tcp   string
}

func startRouter(t testing.TB, o Options) *router {
	t.Helper()
	return startRouterOn(t, routetable.New(), o)
}

func startRouterOn(t testing.TB, table *routetable.Table, o Options) *router {
	t.Helper()
	return startRouterAs(t, table, o, "")
}

// startRouterAs starts the router whose node has an id, as it is after a restart.
func startRouterAs(t testing.TB, table *routetable.Table, o Options, id string) *router {
	t.Helper()
	core := admin.New(table, admin.Options{})
	r := &router{t: t, table: table, node: forwarder.New(core, forwarder.Options{Name: "router", ID: id})}
	if o.Version == "" {
		o.Version = "0"
	}
	r.m = New(r.node, core, o)
	for _, web := range []bool{true, false} {
		a, err := r.m.Listen(ListenOptions{Address: "127.0.0.1:0", WebSocket: web})
		if err != nil {
			t.Fatal(err)
		}
		if web {
			r.ws = a.String()
		} else {
			r.tcp = a.String()
		}
	}
	t.Cleanup(func() { r.once.Do(r.stop) })
	return r
}

// forgets waits until the router has no more connections than n.
func (r *router) forgets(n int) {
	r.t.Helper()
	r.until("connections are forgotten", func() bool {
		r.m.mu.Lock()
		defer r.m.mu.Unlock()
		return len(r.m.links) <= n
	})
}

// until waits for what another goroutine does.
func (r *router) until(what string, is func() bool) {
	r.t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("it does not come that %s", what)
		}
	}
}

func (r *router) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r.m.Stop(ctx)
	r.node.Stop(ctx)
}

// client is a component that says what the test has it say.
type client struct {
	t    testing.TB
	name string
	tr   transport
	json bool
	ids  uint64
	err  error // why it ended
	got  chan []byte
}

func (r *router) dial(name, kind string) *client {
	r.t.Helper()
	c := &client{t: r.t, name: name, json: kind == "json", got: make(chan []byte, 1<<14)}
	o := Options{}.withDefaults(r.node)
	if kind == "tcp" {
		nc, err := net.Dial("tcp", r.tcp)
		if err != nil {
			r.t.Fatal(err)
		}
		c.tr = newTCPTransport(nc, &o)
	} else {
		ws, err := websocket.Dial(context.Background(), "ws://"+r.ws+"/", websocket.DialOptions{Conn: websocket.Options{MaxMessage: maxMessage}})
		if err != nil {
			r.t.Fatal(err)
		}
		c.tr = webTransport{ws}
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			data, text, _, err := c.tr.next()
			if err != nil {
				c.err = err
				c.tr.end()
				close(c.got)
				return
			}
			if text {
				data = append([]byte("J"), data...)
			}
			c.got <- bytes.Clone(data)
		}
	}()
	r.t.Cleanup(func() { c.tr.Abort(errClosed); <-over })
	return c
}

func (c *client) raw(b []byte, text bool) {
	c.tr.Lock()
	c.tr.append(text, b)
	c.tr.Flush()
	c.tr.Unlock()
}

func (c *client) send(f *Frame) {
	if c.json {
		b, err := AppendJSON(nil, f, true)
		if err != nil {
			c.t.Fatal(err)
		}
		c.raw(b, true)
		return
	}
	c.raw(AppendFrame(nil, f), false)
}

func (c *client) id() ID {
	c.ids++
	id, _ := MakeID(binary.BigEndian.AppendUint64(nil, c.ids))
	return id
}

// barrier gives what the client got before the answer to a request that it makes now.
func (c *client) barrier() (frames [][]byte, over bool) {
	id := newID()
	c.send(&Frame{Type: Request, ID: id, Name: []byte("rid"), Data: []byte{0x80}})
	for {
		select {
		case b, ok := <-c.got:
			if !ok {
				return frames, true
			}
			var f Frame
			if parseEither(b, &f) == nil && f.Type == Response && f.ID.bare() == id.bare() {
				return frames, false
			}
			frames = append(frames, b)
		case <-time.After(20 * time.Second):
			c.t.Fatalf("%s gets no answer", c.name)
		}
	}
}

func parseEither(b []byte, f *Frame) error {
	if len(b) > 0 && b[0] == 'J' {
		return ParseJSON(b[1:], f)
	}
	return ParseFrame(b, f)
}

// next gives the next frame.
func (c *client) next() Frame {
	c.t.Helper()
	var f Frame
	select {
	case b, ok := <-c.got:
		if !ok {
			c.t.Fatalf("%s: %v", c.name, c.err)
		}
		if err := parseEither(b, &f); err != nil {
			c.t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		c.t.Fatalf("%s gets nothing", c.name)
	}
	return f
}

// ask sends a frame and gives its answer, dropping what comes before it.
func (c *client) ask(f *Frame) Frame {
	c.t.Helper()
	f.ID, f.HasID = c.id(), true
	c.send(f)
	for {
		if got := c.next(); got.Type == Response && got.ID.bare() == f.ID.bare() {
			return got
		}
	}
}

func (c *client) admin(topic, cmd string, more ...string) Frame {
	c.t.Helper()
	return c.ask(adminFrame(topic, cmd, more...))
}

// adminFrame makes a command; more are keys and JSON values.
func adminFrame(topic, cmd string, more ...string) *Frame {
	text := `{"cmd":` + strconv.Quote(cmd)
	for i := 0; i+1 < len(more) && more[i] != ""; i += 2 {
		text += "," + strconv.Quote(more[i]) + ":" + more[i+1]
	}
	data, err := cborOf(json.RawMessage(text + "}"))
	if err != nil {
		panic(err)
	}
	return &Frame{Type: Admin, Name: []byte(topic), Data: data}
}

func (c *client) identify(name string) Frame {
	c.t.Helper()
	return c.ask(&Frame{Type: Identity, Name: []byte(name)})
}

var eids = regexp.MustCompile(`\b[0-9]{19,20}\b`)
var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// show writes a frame as text, what is drawn by lot by a word.
func show(b []byte) string {
	text, err := cbor.Diagnose(b)
	if len(b) > 0 && b[0] == 'J' {
		text, err = string(b[1:]), nil
	}
	if err != nil {
		return hex.EncodeToString(b)
	}
	var f Frame
	if ParseFrame(b, &f) == nil && f.Type == Response && f.Status == StatusChallenge {
		text = strings.Replace(text, hex.EncodeToString(f.Data[1:]), "CHALLENGE", 1)
	}
	if ParseFrame(b, &f) == nil && f.Type == Admin && bytes.Count(f.ID.Bytes(), []byte{0}) < 4 { // drawn by the router
		text = strings.Replace(text, "h'"+f.ID.String()+"'", "ID", 1)
	}
	return uuids.ReplaceAllString(eids.ReplaceAllString(text, "EID"), "UUID")
}

// stage is one conversation.
type stage struct {
	r       *router
	clients map[string]*client
	keys    map[string]prover
	nonces  map[string][]byte

	subscribe bool // by HTTP
}

// run does a line of a conversation: NAME VERB ARGUMENTS. It tells what every client got.
func (s *stage) run(t *testing.T, line string) (out []string) {
	words := fields(line)
	switch words[0] {
	case "router":
		return s.rows()
	case "http":
		return s.http(words[1:])
	}
	name, verb, args := words[0], words[1], append(words[2:], "", "", "")
	c := s.clients[name]
	if c == nil && verb != "connect" {
		return []string{name + " is not connected"}
	}
	if verb == "connect" {
		c = s.r.dial(name, args[0])
		s.clients[name] = c
	} else if f := s.frame(t, c, verb, args); f != nil {
		c.send(f)
	}
	return s.settle(c)
}

// http makes a request of HTTP, from this machine: METHOD PATH NAME[:SECRET] BODY, where - is none.
func (s *stage) http(words []string) (out []string) {
	words = append(words, "-", "-")
	r := httptest.NewRequest(words[0], words[1], strings.NewReader(strings.TrimPrefix(words[3], "-")))
	r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost:8080"
	if words[2] != "-" {
		r.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(words[2])))
	}
	w := httptest.NewRecorder()
	s.r.m.Gateway(s.subscribe).ServeHTTP(w, r)
	out = append(out, strings.TrimSpace(fmt.Sprintf("%d %s", w.Code, w.Body)))
	for _, c := range s.clients {
		return append(out, s.settle(c)...)
	}
	return out
}

// settle waits until what one client has said is done, and then asks all.
func (s *stage) settle(first *client) (out []string) {
	names := []string{}
	for name := range s.clients {
		names = append(names, name)
	}
	slices.Sort(names)
	got := map[string][]string{}
	look := func(c *client) {
		frames, over := c.barrier()
		for _, b := range frames {
			s.note(c, b)
			got[c.name] = append(got[c.name], c.name+" < "+show(b))
		}
		if over {
			got[c.name] = append(got[c.name], c.name+" is closed")
			delete(s.clients, c.name)
			s.r.forgets(len(s.clients))
		}
	}
	look(first)
	for _, name := range names {
		if c := s.clients[name]; c != nil && c != first {
			look(c)
		}
	}
	for _, name := range names {
		out = append(out, got[name]...)
	}
	return out
}

// note keeps a challenge.
func (s *stage) note(c *client, b []byte) {
	var f Frame
	if ParseFrame(b, &f) == nil && f.Type == Response && f.Status == StatusChallenge {
		s.nonces[c.name], _, _ = readBytes(f.Data)
	}
}

func (s *stage) frame(t *testing.T, c *client, verb string, args []string) *Frame {
	value := func(text string) []byte {
		if text == "" {
			text = "[]"
		}
		b, err := cborOf(json.RawMessage(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return b
	}
	id := c.id()
	f := &Frame{ID: id, HasID: true, Name: []byte(args[0])}
	switch verb {
	case "identity":
		f.Type = Identity
		if args[1] != "" {
			f.Data = value(args[1])
		}
	case "publish", "publish1", "publish2", "publish-again":
		f.Type, f.Data = Publish, value(args[1])
		f.Flags = map[string]byte{"publish": 0, "publish1": flagQoS1, "publish2": flagQoS2, "publish-again": flagQoS2}[verb]
		if verb == "publish-again" {
			c.ids--
			f.ID, _ = MakeID(binary.BigEndian.AppendUint64(nil, c.ids))
		}
		f.HasID = f.Flags != 0
	case "rpc":
		f.Type, f.Data = Request, value(args[1])
	case "direct":
		f.Type, f.Target, f.Name, f.Data = Request, []byte(args[0]), []byte(args[1]), value(args[2])
	case "respond", "fail":
		c.ids--
		b, _ := hex.DecodeString(args[0])
		f.ID, _ = MakeID(b)
		f.Type, f.Data = Response, value(args[1])
		if verb == "fail" {
			f.Status = StatusException
		}
	case "ack", "ack2":
		c.ids--
		b, _ := hex.DecodeString(args[0])
		f.ID, _ = MakeID(b)
		f.Type = map[string]Type{"ack": Ack, "ack2": Ack2}[verb]
	case "admin":
		a := adminFrame(args[0], args[1], args[2:]...)
		f.Type, f.Data = Admin, a.Data
	case "register":
		k := s.keys[args[0]]
		f.Type, f.Pin = Register, []byte(args[1])
		f.Key, f.KeyType = k.public(t)
	case "attest":
		f.Type = Attestation
		f.Key = s.keys[args[0]].prove(t, s.nonces[c.name], args[0])
		if args[1] == "badly" {
			f.Key[3] ^= 1
		}
	case "unregister":
		f.Type = Unregister
	case "close":
		c.ids--
		c.tr.close(normalClosure, "")
		return nil
	case "hex":
		c.ids--
		b, _ := hex.DecodeString(args[0])
		c.raw(b, false)
		return nil
	case "text":
		c.ids--
		c.raw([]byte(args[0]), true)
		return nil
	default:
		t.Fatalf("no such verb: %s", verb)
	}
	return f
}

// rows gives the table.
func (s *stage) rows() (out []string) {
	for r := range s.r.table.Snapshot().Routes() {
		text := fmt.Sprintf("%s --> %s (%s) %s", r.Pattern, r.Address, r.Pick, r.Origin)
		if r.Note != "" {
			text += " " + r.Note
		}
		out = append(out, uuids.ReplaceAllString(text, "UUID"))
	}
	slices.Sort(out)
	return out
}

// fields splits a line at blanks; what is between back quotes is one field.
func fields(line string) []string {
	var list []string
	for i, part := range strings.Split(line, "`") {
		if i%2 == 1 {
			list = append(list, part)
		} else {
			list = append(list, strings.Fields(part)...)
		}
	}
	return list
}

// Conversations: lines of the form NAME VERB ARGUMENTS, then ----, then what the clients got. The first line of a file may set options.
func TestConversations(t *testing.T) {
	files, _ := filepath.Glob("../../testdata/rembus/*.txt")
	if len(files) == 0 {
		t.Fatal("no conversations")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { converse(t, file) })
	}
}

func converse(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Tenants: map[string]string{".": "11223344", "org": "55"}, AckTimeout: time.Hour}
	s := &stage{clients: map[string]*client{}, keys: provers(t), nonces: map[string][]byte{}}
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		commands, _, _ := strings.Cut(block, "\n----")
		var got []string
		for line := range strings.Lines(commands) {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, "options"):
				s.subscribe = set(t, &o, strings.Fields(line)[1:])
			default:
				if s.r == nil {
					s.r = startRouter(t, o)
					s.r.m.keys.memory["keeper"] = &key{secret: "s3"}
					s.r.m.keys.memory["signer"] = &key{rsa: &rsa.PublicKey{}}
				}
				got = append(got, s.run(t, line)...)
			}
		}
		out.WriteString(commands + "\n----\n")
		for _, line := range got {
			out.WriteString(line + "\n")
		}
		out.WriteString("\n")
	}
	want, now := strings.TrimSpace(string(text))+"\n", strings.TrimSpace(out.String())+"\n"
	if *rewrite {
		if err := os.WriteFile(file, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if now != want {
		t.Errorf("%s: got\n%s\nwant\n%s", file, now, want)
	}
}

func set(t *testing.T, o *Options, words []string) (subscribe bool) {
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "server":
			o.Server = true
		case "policy":
			o.Policy = value
		case "authenticated":
			o.Authenticated = true
		case "overwrite":
			o.Overwrite = true
		case "admins":
			o.Admins = strings.Split(value, ",")
		case "subscribe":
			subscribe = true
		default:
			t.Fatalf("no such option: %s", key)
		}
	}
	return subscribe
}
