package interop

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "record anew what foreign clients say")

// recorded are conversations of real clients: what each said to a router, from its first byte. They are seeds of fuzzers.
var recorded = filepath.Join("..", "testdata", "conversations")

// What clients said when they were recorded is still understood.
func TestRecordedConversations(t *testing.T) {
	if *rewrite {
		for _, kind := range allClients {
			record(t, kind)
		}
	}
	r := startRouter(t, "replay", rows("COLOSSUS", "null"))
	files, err := filepath.Glob(filepath.Join(recorded, "*.bytes"))
	if err != nil || len(files) < 2*len(allClients) {
		t.Fatalf("%d conversations, %v", len(files), err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			said, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			c := dialBare(t, r.addr)
			if err := c.bytes(said); err != nil {
				t.Fatal(err)
			}
			for {
				f, err := readAny(c, patience)
				if err != nil {
					t.Fatalf("no answer to the close: %v", err)
				}
				if f.code == closing { // a session may end with an error: receivers tell of messages that do not come this time
					if e := condition(f.at(0)); e != "" {
						t.Errorf("the router says %v", f)
					}
					return
				}
			}
		})
	}
}

// record has a client receive and send through cables, and writes down what it said.
func record(t *testing.T, kind string) {
	b := batchOf{address: "COLOSSUS", to: "COLOSSUS", id: "m", count: 3, sizes: []int{10, 300}}
	r := startRouter(t, "recorder", rows("COLOSSUS", "null"))
	in, out := layCable(t, r.addr), layCable(t, r.addr)
	t.Run(kind, func(t *testing.T) {
		wait := receiveBy(t, kind, "amqp://"+in.addr, b.address, b.count)
		sameOutcomes(t, kind, sendBy(t, kind, "amqp://"+out.addr, b), "accepted")
		wait()
	})
	in.close()
	out.close()
	for name, c := range map[string]*cable{"recv": in, "send": out} {
		if err := os.WriteFile(filepath.Join(recorded, kind+"-"+name+".bytes"), c.said, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
