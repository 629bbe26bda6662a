package mesh

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
)

func publishOf(topic string, n int) *Frame {
	return &Frame{Type: Publish, Name: []byte(topic), Data: appendHead([]byte{0x81}, majorUint, uint64(n))}
}

// lineText is a line for people: who, topic, data.
func lineText(t *testing.T, line []byte) string {
	t.Helper()
	var f Frame
	_, from, _, err := parseRecord(line, nil, &f)
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return fmt.Sprintf("%s %s %x", from, f.Name, f.Data)
}

// all reads what is kept, later than a stamp.
func (s *rest) all(t *testing.T, after int64) (texts []string) {
	t.Helper()
	var c cursor
	for s.from(&c, after); ; {
		lines, _ := s.read(&c)
		if len(lines) == 0 {
			return texts
		}
		for line := range bytes.Lines(lines) {
			if stamp, ok := stampOf(line); ok && stamp > after {
				texts = append(texts, lineText(t, line))
			}
		}
	}
}

// What is kept is read as it was recorded, from any time on, while it is written, by the next that opens the directory, and in memory.
func TestRestIsReadAsItWasRecorded(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		s := openRest(dir, time.Hour, 4<<20, slog.New(slog.DiscardHandler))
		var want []string
		var stamps []int64
		by := &link{}
		follower := cursor{}
		s.from(&follower, 0)
		var followed []string
		for i := range 3000 {
			from := []string{"alice", "b c/d", "é"}[i%3]
			f := publishOf(strings.Repeat("t", 1+rand.IntN(100)), i)
			stamps = append(stamps, s.record(by, escapeName(from), f, ID{}))
			want = append(want, fmt.Sprintf("%s %s %x", from, f.Name, f.Data))
			if i%100 == 99 {
				s.landed(by)
				lines, _ := s.read(&follower)
				for line := range bytes.Lines(lines) {
					followed = append(followed, lineText(t, line))
				}
			}
		}
		for lines, _ := s.read(&follower); len(lines) > 0; lines, _ = s.read(&follower) {
			for line := range bytes.Lines(lines) {
				followed = append(followed, lineText(t, line))
			}
		}
		if !slices.Equal(followed, want) {
			t.Errorf("in %q: who follows reads %d lines, want %d", dir, len(followed), len(want))
		}
		check := func() {
			t.Helper()
			for _, i := range []int{0, 1, 1500, 2998, 2999, 3000} {
				after := int64(0)
				if i > 0 {
					after = stamps[i-1]
				}
				if got := s.all(t, after); !slices.Equal(got, want[i:]) {
					t.Errorf("in %q, after %d: %d lines, want %d", dir, i, len(got), len(want)-i)
				}
			}
		}
		check()
		s.close()
		if dir == "" {
			continue
		}
		name := lastFile(t, dir)
		text, _ := os.ReadFile(name)
		if err := os.WriteFile(name, append(text, "0000"...), 0o600); err != nil { // a write that was interrupted
			t.Fatal(err)
		}
		s = openRest(dir, time.Hour, 4<<20, slog.New(slog.DiscardHandler))
		check()
		stamp := s.record(by, "next", publishOf("t", 1), ID{})
		if last := stamps[len(stamps)-1]; stamp <= last {
			t.Errorf("the next stamp is %d, the last was %d", stamp, last)
		}
		if got := s.all(t, stamps[2998]); len(got) != 2 || got[1] != "next t 8101" {
			t.Errorf("got %q", got)
		}
		s.close()
	}
}

func lastFile(t *testing.T, dir string) string {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(files) == 0 {
		t.Fatal("there are no files")
	}
	return files[len(files)-1]
}

// No more is kept than was said, and none longer; what is not there any more is passed over.
func TestRestIsBounded(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		const most = 4 << 20
		s := openRest(dir, time.Hour, most, slog.New(slog.DiscardHandler))
		var c cursor
		s.from(&c, 0)
		data := append([]byte{0x59, 0x40, 0}, make([]byte, 0x4000)...)
		for i := range 400 {
			s.record(&link{}, "bob", &Frame{Type: Publish, Name: []byte("t"), Data: data}, ID{})
			s.write()
			if s.size > most || i%20 == 0 && onDisk(t, dir) > most {
				t.Fatalf("in %q: %d bytes, %d on disk", dir, s.size, onDisk(t, dir))
			}
		}
		if n := len(s.all(t, 0)); n < 200 || n > most/0x4000 {
			t.Errorf("in %q: %d lines", dir, n)
		}
		if lines, _ := s.read(&c); len(lines) == 0 {
			t.Errorf("in %q: who stood in what was forgotten gets nothing", dir)
		}
		s.sweep(time.Now().Add(59 * time.Minute))
		if len(s.all(t, 0)) == 0 {
			t.Errorf("in %q: nothing is left before its time", dir)
		}
		s.sweep(time.Now().Add(61 * time.Minute))
		if n := len(s.all(t, 0)); n > 0 || onDisk(t, dir) > 0 {
			t.Errorf("in %q: %d lines are too old", dir, n)
		}
		s.close()
	}
}

func onDisk(t *testing.T, dir string) (size int) {
	t.Helper()
	if dir == "" {
		return 0
	}
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			size += int(info.Size())
		}
	}
	return size
}

func FuzzRecords(f *testing.F) {
	f.Add([]byte("0000000000000001 a%20b \x83\x01at\xf6\n"))
	f.Add([]byte("0000000000000001 a \x83\x01at\x42\x1bn\x1be\n"))
	f.Add([]byte("0000000000000001 a 0102030405060708 \x83\x01at\xf6\n"))
	f.Add(appendRecord(nil, 1<<62, "", number(5), AppendFrame(nil, publishOf("t", 1000))))
	f.Fuzz(func(t *testing.T, line []byte) {
		var p, again Frame
		stamp, from, frame, err := parseRecord(line, nil, &p)
		if err != nil {
			return
		}
		text := appendRecord(nil, stamp, escapeName(from), ID{}, frame)
		stamp2, from2, frame2, err := parseRecord(text, nil, &again)
		if err != nil || stamp2 != stamp || from2 != from || !bytes.Equal(frame, frame2) {
			t.Fatalf("%q, then %q: %v", line, text, err)
		}
		if id, ok := (&rest{}).idOf(line); ok && p.HasID && line[bytes.IndexByte(line[stampDigits+1:], ' ')+stampDigits+2] >= 0x80 && id.bare() != p.ID.bare() {
			t.Fatalf("%q: the id is %x, want %x", line, id.Bytes(), p.ID.Bytes())
		}
	})
}

// A file of publishes may be anything: what is no line is passed over.
func FuzzRestFile(f *testing.F) {
	f.Add([]byte("0000000000000001 a \x83\x01at\xf6\nrubbish\n0000000000000003 b \x83\x01at\xf6\n0000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "0000000000000001"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		s := openRest(dir, 1<<63-1, 4<<20, slog.New(slog.DiscardHandler))
		defer s.close()
		n, whole := 0, bytes.LastIndexByte(b, '\n')+1
		var c cursor
		for s.from(&c, 0); ; {
			lines, _ := s.read(&c)
			if len(lines) == 0 {
				break
			}
			n += len(lines)
		}
		if n != whole {
			t.Fatalf("%d bytes of %d", n, whole)
		}
		s.record(&link{}, "", publishOf("t", 1), ID{})
		if lines, _ := s.read(&c); len(bytes.Split(lines, []byte("\n"))) != 2 {
			t.Fatalf("behind it: %q", lines)
		}
	})
}

// restOptions keep everything below a directory.
func restOptions(dir string) Options {
	return Options{Acks: filepath.Join(dir, "acks"), Rest: filepath.Join(dir, "rest"), AckTimeout: time.Hour}
}

// A component gets what it has missed over the end of the router, once: also where that was no orderly end (A55).
func TestMissedOverTheEndOfTheRouter(t *testing.T) {
	dir := t.TempDir()
	r := startRouter(t, restOptions(dir))
	bob := r.component("bob")
	for i := range 2 {
		bob.send(publishOf("t", i))
	}
	bob.send(&Frame{Type: Publish, Flags: flagQoS2, ID: number(7), HasID: true, Name: []byte("t"), Data: []byte{0x81, 2}})
	bob.barrier()
	again := func(want ...int) {
		t.Helper()
		copied := t.TempDir()
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil { // as it is when a router is killed
			t.Fatal(err)
		}
		dir = copied
		r = startRouter(t, restOptions(dir))
		alice := r.dial("alice", "ws")
		alice.identify("alice")
		alice.admin("t", "subscribe", "msg_from", "1e18")
		alice.react()
		for _, n := range want {
			f := alice.publish()
			if int(f.Data[1]) != n {
				t.Errorf("got %x, want %d", f.Data, n)
			}
			if f.QoS() != 0 {
				alice.send(&Frame{Type: Ack, ID: f.ID})
			}
		}
		alice.quiet()
	}
	again(0, 1, 2)
	again()
	bob = r.component("bob")
	bob.send(publishOf("t", 3))
	bob.barrier()
	again() // it was there
	bob = r.component("bob")
	r.m.twinOf("alice").current().t.Abort(errClosed)
	r.until("alice has gone", func() bool { return !r.m.twinOf("alice").open.Load() })
	bob.send(publishOf("t", 4))
	bob.barrier()
	again(4)
}

// While others publish without pause, a component comes and goes: it gets every publish of each once, in order.
func TestMissedInOrderAndOnce(t *testing.T) {
	dir := t.TempDir()
	o := restOptions(dir)
	o.HardQueue = 256 << 10
	r := startRouter(t, o)
	const publishers, each = 3, 3000
	var running sync.WaitGroup
	var sent atomic.Int64
	for p := range publishers {
		c := r.component(fmt.Sprintf("pub%d", p))
		running.Go(func() {
			for i := range each {
				f := publishOf(fmt.Sprintf("t/%d", p), i)
				if i%50 == 49 {
					f.Flags, f.ID, f.HasID = []byte{flagQoS1, flagQoS2}[i/50%2], newID(), true
				}
				c.send(f)
				sent.Add(1)
				if i%10 == 9 {
					c.barrier() // and so others take turns
				}
			}
		})
	}
	got := map[string]int{}
	turns := 0
	for left := publishers * each; left > 0; turns++ {
		c := r.dial("sub", "ws")
		for c.identify("sub").Status != StatusOK { // it was just here
		}
		for p := range publishers {
			if turns == 0 {
				c.admin(fmt.Sprintf("t/%d", p), "subscribe", "msg_from", "1e18")
			}
		}
		c.react()
		for n := min(left, 1+rand.IntN(1500)); n > 0; n-- {
			left -= c.takes(got)
		}
		off := adminFrame("__config__", "reactive", "status", "false")
		off.ID = c.id()
		c.send(off)
		frames, _ := c.barrier()
		for _, b := range frames {
			left -= c.counts(got, b)
		}
		c.close()
		r.until("it has gone", func() bool { return !r.m.twinOf("sub").open.Load() })
	}
	running.Wait()
	t.Logf("%d publishes in %d turns, %d of them again", sent.Load(), turns, r.m.count.replayed.Load())
}

// takes takes one publish.
func (c *client) takes(got map[string]int) int {
	c.t.Helper()
	for {
		select {
		case b, ok := <-c.got:
			if !ok {
				c.t.Fatal(c.err)
			}
			if n := c.counts(got, b); n > 0 {
				return n
			}
		case <-time.After(20 * time.Second):
			c.t.Fatalf("nothing comes any more: %v", got)
		}
	}
}

// counts holds that a publish is the next of its topic.
func (c *client) counts(got map[string]int, b []byte) int {
	c.t.Helper()
	var f Frame
	if ParseFrame(b, &f) != nil || f.Type != Publish {
		return 0
	}
	if f.QoS() != 0 {
		c.send(&Frame{Type: Ack, ID: f.ID})
	}
	h, err := readHead(f.Data[1:])
	if topic := string(f.Name); err != nil || int(h.arg) != got[topic] {
		c.t.Fatalf("%s: got %d, want %d", topic, h.arg, got[topic])
	}
	got[string(f.Name)]++
	return 1
}

// A component that does not read what it is sent gets it later, all of it and in order, and holds up nobody.
func TestFallsBehind(t *testing.T) {
	r := startRouter(t, Options{HardQueue: 64 << 10})
	alice := r.component("alice", "t")
	nc, err := net.Dial("tcp", r.tcp)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	say := func(i int, f *Frame) {
		f.ID = number(uint64(i))
		b := AppendFrame(nil, f)
		if _, err := nc.Write(append(appendTCPHeader(nil, len(b)), b...)); err != nil {
			t.Fatal(err)
		}
	}
	say(1, &Frame{Type: Identity, Name: []byte("slow")})
	say(2, adminFrame("t", "subscribe"))
	say(3, adminFrame("__config__", "reactive", "status", "true"))
	r.until("it is reactive", func() bool { tw := r.m.twinOf("slow"); return tw != nil && tw.isReactive() })
	bob := r.component("bob")
	n := 0
	for ; !r.hasReactive(true) || n%100 != 0; n++ {
		if n > 20_000 {
			t.Fatal("it does not fall behind")
		}
		f := &Frame{Type: Publish, Name: []byte("t"), Data: append(appendHead(append([]byte{0x82, 0x59, 0x10, 0}, make([]byte, 0x1000)...), majorUint, uint64(n)), nil...)}
		bob.send(f)
		alice.publish()
	}
	o := Options{}.withDefaults(r.node)
	tr := newTCPTransport(nc, &o)
	defer tr.end()
	nc.SetReadDeadline(time.Now().Add(20 * time.Second))
	for want := 0; want < n; {
		b, _, _, err := tr.next()
		if err != nil {
			t.Fatalf("after %d of %d: %v", want, n, err)
		}
		var f Frame
		if ParseFrame(b, &f) != nil || f.Type != Publish {
			continue
		}
		if h, _ := readHead(f.Data[0x1004:]); int(h.arg) != want {
			t.Fatalf("got %d, want %d", h.arg, want)
		}
		want++
	}
	r.until("it has caught up", func() bool { return !r.hasReactive(true) })
	if dropped := r.m.count.dropped.Load(); dropped > 0 {
		t.Errorf("%d are dropped", dropped)
	}
}

func (t *twin) isReactive() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reactive
}

// What was on its way when a component went, behind a newer publish of another sender that it got, it gets when it is back.
func TestMissedOnItsWay(t *testing.T) {
	dir := t.TempDir()
	r := startRouter(t, restOptions(dir))
	bob, alice := r.component("bob"), r.dial("alice", "ws")
	alice.identify("alice")
	alice.admin("t", "subscribe", "msg_from", "1e18")
	alice.admin("__config__", "reactive", "status", "true")
	alice.barrier() // it has caught up
	on := &link{}
	stamp := r.m.rest.record(on, "bob", publishOf("t", 1), ID{})
	bob.send(publishOf("t", 2))
	if f := alice.publish(); f.Data[1] != 2 {
		t.Errorf("got %x", f.Data)
	}
	alice.close()
	tw := r.m.twinOf("alice")
	r.until("it has gone", func() bool { return !tw.open.Load() })
	tw.mu.Lock()
	if tw.isDue(stamp, false) {
		t.Error("it goes out")
	}
	tw.noteMark()
	tw.commit()
	tw.mu.Unlock()
	r.m.rest.landed(on)
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*router{r, startRouter(t, restOptions(copied))} {
		alice := r.dial("alice", "ws")
		alice.identify("alice")
		alice.admin("t", "subscribe", "msg_from", "1e18")
		alice.react()
		if f := alice.publish(); f.Data[1] != 1 {
			t.Errorf("got %x", f.Data)
		}
		alice.quiet()
		alice.react()
		alice.quiet()
	}
}

// What AMQP clients send to a topic is kept too: once, whoever is there.
func TestMissedOfAMQP(t *testing.T) {
	r := startRouter(t, Options{})
	alice, bob := r.component("alice", "t"), r.dial("bob", "ws")
	bob.identify("bob")
	bob.admin("t", "subscribe", "msg_from", "1e18")
	snd, err := r.session().NewSender(within(t), "topic:t", nil)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	go func() { told <- snd.Send(context.Background(), amqp.NewMessage([]byte{7}), nil) }()
	f := alice.publish()
	alice.send(&Frame{Type: Ack, ID: f.ID})
	if err := <-told; err != nil {
		t.Fatal(err)
	}
	bob.react()
	if f := bob.publish(); f.QoS() != flagQoS1 || !bytes.Equal(f.Data, []byte{0x81, 0x41, 7}) {
		t.Errorf("got %+v", f)
	} else {
		bob.send(&Frame{Type: Ack, ID: f.ID})
	}
	alice.admin("t", "subscribe", "msg_from", "1e18")
	alice.react()
	bob.quiet()
	alice.quiet()
}

// Where nothing is to be kept, nothing is.
func TestNothingIsKept(t *testing.T) {
	dir := t.TempDir()
	o := restOptions(dir)
	o.Retention = -1
	r := startRouter(t, o)
	bob, alice := r.component("bob"), r.dial("alice", "ws")
	bob.send(publishOf("t", 1))
	bob.barrier()
	alice.identify("alice")
	alice.admin("t", "subscribe", "msg_from", "1e18")
	alice.react()
	alice.quiet()
	bob.send(publishOf("t", 2))
	if f := alice.publish(); f.Data[1] != 2 {
		t.Errorf("got %x", f.Data)
	}
	if _, err := os.Stat(o.Rest); err == nil {
		t.Error("there is a directory")
	}
}
