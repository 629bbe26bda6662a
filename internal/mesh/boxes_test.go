package mesh

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func number(n uint64) ID {
	id, _ := MakeID(binary.BigEndian.AppendUint64(nil, n))
	return id
}

// The outbox, step by step: what it has sent at which second.
func TestOutbox(t *testing.T) {
	start := time.Unix(1000, 0)
	r := retryPolicy{timeout: 2 * time.Second, retries: 3}
	for _, c := range []struct{ name, steps, want string }{
		{"QoS 0 goes and is forgotten", "push:1:0 next next", "1 -"},
		{"QoS 1 is waited for", "push:1:1 push:2:0 next next ack:1 next", "1 - acked 2"},
		{"the ack of another changes nothing", "push:1:1 next ack:2 next", "1 no -"},
		{"an ack before it was sent is another's", "push:1:1 ack:1 next", "no 1"},
		{"it is sent again each 2 s, 1 + 3 times in all, then given up", "push:1:1 push:2:1 next at:1 due at:2 due at:3 due at:4 due at:6 due at:7 due at:8 due next",
			"1 - again1 - again1 again1 - lost1 2"},
		{"an ack that is late ends it", "push:1:2 next at:2 due ack:1 at:9 due", "1 again1 acked -"},
		{"who is back gets it anew", "push:1:1 next at:2 due back next at:3 due at:4 due", "1 again1 1 - again1"},
		{"nothing is due of what was not sent", "push:1:1 at:99 due", "-"},
	} {
		var o outbox
		now := start
		var got []string
		for _, step := range strings.Fields(c.steps) {
			verb, arg, _ := strings.Cut(step, ":")
			var n, qos int
			fmt.Sscanf(arg, "%d:%d", &n, &qos)
			switch verb {
			case "push":
				o.push(parcel{frame: make([]byte, 10), id: number(uint64(n)), qos: byte([]int{0, flagQoS1, flagQoS2}[qos])})
			case "next":
				got = append(got, parcelName(o.next(now, r)))
			case "ack":
				if _, ok := o.acked(number(uint64(n))); ok {
					got = append(got, "acked")
				} else {
					got = append(got, "no")
				}
			case "at":
				now = start.Add(time.Duration(n) * time.Second)
			case "due":
				again, lost := o.due(now, r)
				switch {
				case again != nil:
					got = append(got, "again"+parcelName(again))
				case lost != nil:
					got = append(got, "lost"+parcelName(lost))
				default:
					got = append(got, "-")
				}
			case "back":
				o.interrupted()
			}
			if o.bytes != 10*len(o.waiting) {
				t.Errorf("%s: %d bytes for %d publishes", c.name, o.bytes, len(o.waiting))
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: got %s, want %s", c.name, s, c.want)
		}
	}
}

func parcelName(p *parcel) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprint(binary.BigEndian.Uint64(p.id.Bytes()))
}

// The inbox against one that remembers everything.
func TestInbox(t *testing.T) {
	var b inbox
	simple := map[ID]bool{}
	var order []ID
	x := uint64(1)
	for range 20_000 {
		x = x*6364136223846793005 + 1442695040888963407
		id := number(x >> 33 % 500)
		if x>>20&3 == 0 {
			b.release(id)
			if simple[id] {
				delete(simple, id)
				order = slices.DeleteFunc(order, func(o ID) bool { return o == id })
			}
			continue
		}
		if got, want := b.take(id), !simple[id]; got != want {
			t.Fatalf("%s: got %v, want %v", id, got, want)
		}
		if !simple[id] {
			simple[id] = true
			order = append(order, id)
		}
	}
	if got := b.ids(); !slices.Equal(got, order) {
		t.Errorf("got %d ids, want %d", len(got), len(order))
	}
}

// A peer that never says ack2 makes the inbox forget its oldest, and no more.
func TestInboxIsBounded(t *testing.T) {
	var b inbox
	for i := range uint64(3 * maxSeen) {
		if !b.take(number(i)) {
			t.Fatalf("%d is not new", i)
		}
	}
	if len(b.seen) > maxSeen || len(b.order) > maxSeen || b.take(number(3*maxSeen-1)) || !b.take(number(0)) {
		t.Errorf("%d ids, %d in order", len(b.seen), len(b.order))
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"foo": "foo", "/c": "c", "c/": "c", "//localhost/c": "c", "ws://h:1/c": "c", "ws://h:1/a/b/": "a/b", "a/b": "a/b", "ws://h:1": "", "": "", "://": "",
	} {
		if got := cleanName(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{"foo": ".", "foo.org": "org", "a.b.c": "b.c", "a.": ".", "a@ws://127.0.0.1:1": ".", "a.b@ws://127.0.0.1:1": "b"} {
		if got := tenantOf(name); got != want {
			t.Errorf("the tenant of %q is %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]bool{"foo": true, "123": false, "": false, newName(): false, "0123456789abcdef0123456789abcdef0123": true, "12a": true} {
		if got := isNamed(name); got != want {
			t.Errorf("%q is named: %v, want %v", name, got, want)
		}
	}
}

// Who has to prove a name may say nothing before, unless it is on this machine.
func TestPermitted(t *testing.T) {
	for _, c := range []struct{ strict, attested, loopback, want bool }{
		{false, false, false, true}, {true, false, false, false}, {true, true, false, true}, {true, false, true, true},
	} {
		l := &link{m: &Mesh{o: Options{Authenticated: c.strict}}, loopback: c.loopback, login: login{attested: c.attested}}
		if got := l.permitted(); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestFilesOfAcks(t *testing.T) {
	publish := func(id uint64, qos byte) string {
		return fmt.Sprintf("%x", AppendFrame(nil, &Frame{Type: Publish, Flags: qos, ID: number(id), HasID: true, Name: []byte("t"), Data: []byte{1}}))
	}
	one, two := publish(1, flagQoS1), publish(2, flagQoS2)
	for text, want := range map[string]string{
		"": "", "0000000000000001\n": "0000000000000001\n",
		"0000000000000001\n0707070707070707\n-0000000000000001\n":                      "0707070707070707\n",
		">" + one + "\n>" + two + "\n0000000000000003\n":                               "0000000000000003\n>" + one + "\n>" + two + "\n",
		">" + one + "\n>" + two + "\n<0000000000000001\n":                              ">" + two + "\n",
		">" + one + "\n>" + two + "\n<0000000000000002\n":                              ">" + one + "\n",
		">" + one + "\n<0000000000000001":                                              ">" + one + "\n", // half a line
		"0000000000000001\nzz\n0000000000000002\n":                                     "error 0000000000000001\n",
		"@0000000000000007\n@0000000000000009\n~0000000000000003\n~0000000000000004\n": "@0000000000000009\n~0000000000000003\n~0000000000000004\n",
		"~0000000000000003\n@0000000000000009\n":                                       "@0000000000000009\n", // what was missed was sent with it
		"@8000000000000000\n":                                                          "error ",
		"~00\n":                                                                        "error ",
		">00\n":                                                                        "error ",
		"<\n" + strings.Repeat("0", 34) + "\n":                                         "error ",
		">" + publish(1, flagSlot) + "\n":                                              "error ",
		"0\n":                                                                          "error ",
	} {
		x, err := parseAcks([]byte(text))
		got := string(appendAcks(nil, &x, 0))
		if err != nil {
			got = "error " + got
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func FuzzAcks(f *testing.F) {
	f.Add([]byte("0000000000000001\n-0000000000000001\n>841811480000000000000001617401\n<00\n@0000000000000009\n~0000000000000003\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, _ := parseAcks(b)
		text := appendAcks(nil, &x, 0)
		again, err := parseAcks(text)
		if got := appendAcks(nil, &again, 0); err != nil || !bytes.Equal(got, text) {
			t.Fatalf("%q: %q, then %q (%v)", b, text, got, err)
		}
		if again.out.bytes != x.out.bytes {
			t.Fatalf("%d bytes, then %d", x.out.bytes, again.out.bytes)
		}
	})
}
