package interop

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

// What a router has learned is stored from it and loaded into another, which then does the same.
func TestStoreAndLoad(t *testing.T) {
	p, addr := serveBy(t, rhea)
	first := startRouter(t, "first", rows("COLOSSUS", addr, "HAL9000", "null"))
	first.ctl(t, "add", "GUARDIAN", "amqp://"+addr+"/guardian", "--note", "second arm; of two", "--pick", "any", "--weight", "3")
	first.ctl(t, "add", "eu/%/*", "amqp://"+addr+"/$1-$2", "--order", "5")
	first.ctl(t, "add", "*", "amqp://"+addr+"/rest", "--fallback")
	first.ctl(t, "add", "COLOSSUS", "amqp://127.0.0.1:9/tap", "--optional", "--retry", "1")
	first.ctl(t, "delete", "COLOSSUS", "amqp://127.0.0.1:9/tap")

	for _, name := range []string{"table.routes", "table.yaml"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), name)
			first.ctl(t, "store", file)
			second := startRouter(t, "second", "")
			second.ctl(t, "load", file)
			want, have := listed(t, first), listed(t, second)
			for i := range max(len(want), len(have)) {
				if i >= len(want) || i >= len(have) {
					t.Errorf("rows: got %d, want %d", len(have), len(want))
					break
				}
				if !reflect.DeepEqual(want[i], have[i]) {
					t.Errorf("row %d:\n got %v\nwant %v", i, have[i], want[i])
				}
			}
			if t.Failed() {
				text, _ := os.ReadFile(file)
				t.Logf("%s:\n%s", name, text)
			}
			// The same behaviour, down to the name on the hop's link.
			for _, r := range []*router{first, second} {
				for to, target := range map[string]string{"COLOSSUS": "", "GUARDIAN": "guardian", "eu/x/y": "x-y", "anything": "rest"} {
					b := batchOf{to: to, id: r.name, count: 1, sizes: []int{10}}
					sameOutcomes(t, r.name, sendBy(t, goAMQP, r.url(), b), "accepted")
					e := nextMessage(p)
					if e.text("to") != to || target != "" && e.text("target") != target {
						t.Errorf("%s: got a message to %q on a link to %q, want to %q on a link to %q", r.name, e.text("to"), e.text("target"), to, target)
					}
				}
				b := batchOf{to: "HAL9000", id: r.name, count: 1, sizes: []int{10}}
				sameOutcomes(t, r.name, sendBy(t, goAMQP, r.url(), b), "accepted")
			}
		})
	}
}

// nextMessage gives the next message of a foreign client as its event.
func nextMessage(p *process) event {
	p.t.Helper()
	for {
		switch e := p.next(); e.text("event") {
		case "message", "reply":
			return e
		case "error":
			p.t.Fatalf("%s: %v", p.name, e)
		}
	}
}

// columns are what makes a row; what is not among them tells where it came from and what passed.
var columns = []string{"pattern", "address", "pick", "balance", "weight", "hash-key", "order", "fallback", "optional", "when", "timeout", "retry", "dynamic-host", "note"}

// listed gives the rows of a router by their columns.
func listed(t *testing.T, r *router) []map[string]any {
	t.Helper()
	var all []map[string]any
	text := r.ctl(t, "list", "-o", "json")
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("list -o json: %v in %s", err, text)
	}
	for _, row := range all {
		for column := range row {
			if !slices.Contains(columns, column) {
				delete(row, column)
			}
		}
	}
	return all
}

// Three routers, each of which translates the name again: by the message's own address, which never changes, and by the
// name of the link where a hop has one.
func TestAChainOfThree(t *testing.T) {
	end := listenRaw(t, nil)
	third := startRouter(t, "third", rows("COLOSSUS", end.url("by-address"), "stage3", end.url("by-link")))
	second := startRouter(t, "second", rows("COLOSSUS", third.addr, "stage2", "amqp://"+third.addr+"/stage3"))
	first := startRouter(t, "first", rows("COLOSSUS", second.addr, "NEMO", "amqp://"+second.addr+"/stage2"))
	s := newRawSender(t, first.addr, nil)
	for n, c := range []struct{ to, target string }{{"COLOSSUS", "by-address"}, {"NEMO", "by-link"}} {
		sent := messageOf(batchOf{to: c.to, id: "m", sizes: []int{100}}, n)
		if o := s.deliver(t, sent); o.state != "accepted" {
			t.Errorf("%s: got %v, want accepted", c.to, o)
			continue
		}
		d := end.wait(t, n+1)[n]
		sameMessage(t, c.to, sent, d.payload, 3)
		if d.target != c.target {
			t.Errorf("%s: came on a link to %q, want %q", c.to, d.target, c.target)
		}
	}
}

// Outcomes of the last receiver come back through the chain.
func TestOutcomesComeBackThroughAChain(t *testing.T) {
	states := map[string][]byte{
		"accepted":                          composite(accepted),
		"rejected amqp:precondition-failed": composite(rejected, composite(errorCode, sym("amqp:precondition-failed"), str("as the test asked"))),
		"modified":                          composite(modified, boolean(true)),
	}
	for want, state := range states {
		t.Run(want, func(t *testing.T) {
			end := listenRaw(t, func(*rawDelivery) []byte { return state })
			second := startRouter(t, "second", rows("COLOSSUS", end.url("")))
			first := startRouter(t, "first", rows("COLOSSUS", second.addr))
			s := newRawSender(t, first.addr, nil)
			o := s.deliver(t, messageOf(batchOf{to: "COLOSSUS", id: "m", sizes: []int{1}}, 0))
			if o.String() != want {
				t.Errorf("got %v (%v), want %s", o, o.value, want)
			}
		})
	}
}

// A loop of two ends with the error of a loop, and a way out of the loop is enough.
func TestALoopOfTwo(t *testing.T) {
	out := listenRaw(t, nil)
	second := startRouter(t, "second", "")
	first := startRouter(t, "first", rows("ROUND", second.addr, "OUT", second.addr))
	second.ctl(t, "add", "ROUND", first.url())
	second.ctl(t, "add", "OUT", first.url())
	second.ctl(t, "add", "OUT", out.url(""))
	s := newRawSender(t, first.addr, nil)
	for to, want := range map[string]string{"ROUND": "rejected fingerpost:loop", "OUT": "accepted"} {
		if o := s.deliver(t, messageOf(batchOf{to: to, id: "m", sizes: []int{1}}, 0)); o.String() != want {
			t.Errorf("%s: got %v (%v), want %s", to, o, o.value, want)
		}
	}
	if n := len(out.all()); n != 1 {
		t.Errorf("the way out has %d messages, want 1", n)
	}
}
