package admin_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

var rewrite = flag.Bool("rewrite", false, "write what is got over what is expected")

// A conversation is a file of steps on one table:
//
//	ROLE OPERATION [property=value]... | subscribe NAME ADDRESS ORIGIN | withdraw ORIGIN | sleep DURATION
//	[a body in JSON, over any number of lines]
//	----
//	STATUS DESCRIPTION [property=value]...
//	[the body]
//
// Lines that begin with # are kept.
func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no conversations: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := converse(t, string(want))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("%s: %s", file, firstDifference(got, string(want)))
			}
		})
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d:\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("got %d lines, want %d", len(g), len(w))
}

// door is a core with a clock and the variables of a conversation.
type door struct {
	core *admin.Core
	now  time.Time
	vars map[string]string // $session
}

func newDoor() *door {
	d := &door{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), vars: map[string]string{}}
	d.core = admin.New(routetable.New(), admin.Options{
		Name: "east-1", NodeID: "00ff00ff00ff00ff", Version: "1.2.3",
		Now:      func() time.Time { return d.now },
		Counters: func() map[string]uint64 { return map[string]uint64{"unrouted": 3} },
		RowCounters: func(r *routetable.Route) admin.RowCounters {
			return admin.RowCounters{Matched: uint64(len(r.Pattern)), LastUsed: d.now}
		},
	})
	d.core.Register(&connections{names: []string{"alice", "bob"}})
	return d
}

// connections is a provider whose entities can be closed.
type connections struct{ names []string }

func (*connections) Type() string         { return "connection" }
func (*connections) Attributes() []string { return []string{"container", "peer"} }
func (c *connections) List() []admin.Entity {
	var list []admin.Entity
	for _, n := range c.names {
		list = append(list, admin.Entity{"name": n, "identity": "connection/" + n, "container": n + "-1", "peer": "amqp://u:p@" + n})
	}
	return list
}
func (c *connections) Delete(identity string) error {
	i := slices.Index(c.names, strings.TrimPrefix(identity, "connection/"))
	if i < 0 {
		return admin.Refuse(admin.StatusNotFound, "%s is gone", identity)
	}
	c.names = slices.Delete(c.names, i, i+1)
	return nil
}

func converse(t *testing.T, script string) string {
	t.Helper()
	d := newDoor()
	var out strings.Builder
	lines := strings.Split(script, "\n")
	for i := 0; i < len(lines); {
		line := lines[i]
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			out.WriteString(line)
			if i++; i < len(lines) {
				out.WriteByte('\n')
			}
			continue
		}
		var body []string
		for i++; i < len(lines) && lines[i] != "----"; i++ {
			body = append(body, lines[i])
		}
		if i == len(lines) {
			t.Fatalf("no ---- behind %q", line)
		}
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != ""; i++ { // what was expected
		}
		fmt.Fprintln(&out, line)
		for _, b := range body {
			fmt.Fprintln(&out, b)
		}
		fmt.Fprintln(&out, "----")
		out.WriteString(d.step(t, strings.Fields(line), strings.Join(body, "\n")))
	}
	return out.String()
}

func (d *door) step(t *testing.T, words []string, body string) string {
	t.Helper()
	change := func(ch routetable.Change, err error) string {
		if err != nil {
			return "error: " + err.Error() + "\n"
		}
		return fmt.Sprintf("generation %d: %d added, %d removed %s\n", ch.Generation, len(ch.Added), len(ch.Removed), ch.Note)
	}
	switch words[0] {
	case "subscribe":
		return change(d.core.Do(admin.Caller{Via: "test"}, admin.Subscribe{Pattern: words[1], Address: words[2], Origin: words[3]}))
	case "withdraw":
		return change(d.core.Do(admin.Caller{Via: "test"}, admin.Withdraw{Origin: words[1]}))
	case "sleep":
		by, err := time.ParseDuration(words[1])
		if err != nil {
			t.Fatal(err)
		}
		d.now = d.now.Add(by)
		return "\n"[:0]
	}
	role, err := admin.ParseRole(words[0])
	if err != nil {
		t.Fatal(err)
	}
	m := wire.Message{Properties: &wire.Properties{MessageID: uint64(7), ReplyTo: "back", HasReplyTo: true}}
	m.ApplicationProperties = wire.Map{{Key: "operation", Value: words[1]}}
	for _, w := range words[2:] {
		k, v, _ := strings.Cut(w, "=")
		m.ApplicationProperties = append(m.ApplicationProperties, wire.KV{Key: k, Value: d.scalar(v)})
	}
	if body = strings.TrimSpace(body); body != "" {
		for name, value := range d.vars {
			body = strings.ReplaceAll(body, name, value)
		}
		m.HasValue, m.Value = true, fromJSON(t, body)
	}
	request, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	caller := admin.Caller{Role: role, Remote: "test", User: "u"}
	if role == admin.RoleNone {
		caller.User = ""
	}
	reply, to := d.core.Handle(caller, request)
	if to != "back" {
		t.Fatalf("reply to %q", to)
	}
	var a wire.Message
	if err := a.Parse(reply); err != nil {
		t.Fatalf("the reply is no message: %v", err)
	}
	if a.Properties == nil || a.Properties.CorrelationID != any(uint64(7)) {
		t.Fatalf("the reply has no correlation id: %+v", a.Properties)
	}
	return d.show(t, &a)
}

// scalar reads a property: a number, or text. A name that begins with $ is a variable.
func (d *door) scalar(v string) any {
	if value, ok := d.vars[v]; ok {
		v = value
	}
	if n, err := strconv.ParseUint(v, 10, 32); err == nil {
		return uint32(n)
	}
	return v
}

func (d *door) show(t *testing.T, a *wire.Message) string {
	var out strings.Builder
	var rest []string
	status, text := any(nil), any(nil)
	for _, kv := range a.ApplicationProperties {
		switch kv.Key {
		case "statusCode":
			status = kv.Value
			if _, ok := kv.Value.(int32); !ok {
				t.Errorf("statusCode is a %T", kv.Value)
			}
		case "statusDescription":
			text = kv.Value
		default:
			rest = append(rest, fmt.Sprintf("%s=%v", kv.Key, kv.Value))
		}
	}
	if m, ok := a.Value.(wire.Map); ok {
		if id, ok := m.Get("session"); ok {
			d.vars["$session"] = fmt.Sprint(id)
		}
	}
	fmt.Fprintf(&out, "%v %v", status, text)
	for _, r := range rest {
		out.WriteString(" " + r)
	}
	out.WriteByte('\n')
	if !a.HasValue {
		t.Errorf("the body of the answer is no amqp-value")
	}
	body := toJSON(a.Value)
	if body != "{}" {
		out.WriteString(body)
		out.WriteByte('\n')
	}
	return regexp.MustCompile(`\b[0-9a-f]{32}\b`).ReplaceAllString(out.String(), "$$session")
}

func fromJSON(t *testing.T, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var convert func(v any) any
	convert = func(v any) any {
		switch v := v.(type) {
		case json.Number:
			n, err := v.Int64()
			if err != nil {
				f, _ := v.Float64()
				return f
			}
			return int32(n)
		case map[string]any:
			m := wire.Map{}
			for k, x := range v {
				m = append(m, wire.KV{Key: k, Value: convert(x)})
			}
			return m
		case []any:
			l := wire.List{}
			for _, x := range v {
				l = append(l, convert(x))
			}
			return l
		}
		return v
	}
	return convert(v)
}

// toJSON prints maps a key a line where they are long, in the order of the wire.
func toJSON(v any) string {
	var b bytes.Buffer
	var put func(v any)
	put = func(v any) {
		switch v := v.(type) {
		case wire.Map:
			b.WriteByte('{')
			for i, kv := range v {
				if i > 0 {
					b.WriteByte(',')
				}
				fmt.Fprintf(&b, "%q:", kv.Key)
				put(kv.Value)
			}
			b.WriteByte('}')
		case wire.List:
			b.WriteByte('[')
			for i, x := range v {
				if i > 0 {
					b.WriteByte(',')
				}
				put(x)
			}
			b.WriteByte(']')
		case []byte:
			fmt.Fprintf(&b, "binary(%q)", v)
		default:
			var one bytes.Buffer
			e := json.NewEncoder(&one)
			e.SetEscapeHTML(false)
			if err := e.Encode(v); err != nil {
				fmt.Fprintf(&b, "%T(%v)", v, v)
				return
			}
			b.Write(bytes.TrimSpace(one.Bytes()))
		}
	}
	put(v)
	s := b.String()
	// one result, match or row a line
	for _, list := range []string{`"results":[`, `"matches":[`, `"rows":[{`, `"warnings":[{`} {
		if at := strings.Index(s, list); at >= 0 {
			open := at + strings.Index(list, "[") + 1
			sep := "},{"
			if list == `"results":[` {
				sep = "],["
			}
			s = s[:open] + strings.ReplaceAll(s[open:], sep, sep[:2]+"\n "+sep[2:])
		}
	}
	return s
}
