package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// A router is killed again and again while many edit its table, and has each time exactly what it acknowledged.
func TestCrash(t *testing.T) {
	t.Parallel()
	c := newCrash(t, rand.Uint64(), routerProgram, routectlProgram)
	for range 8 {
		c.round()
	}
	c.finish()
}

// crash kills a router and compares what it has then with a model: a table in memory that is given the edits in the order of their
// revisions.
type crash struct {
	t       *testing.T
	rnd     *rand.Rand
	program string
	ctl     string // routectl
	dir     string // the state
	file    string // the table file
	ahead   int    // edits that a connection has under way, at most
	long    int    // one note in so many is long

	model    *routetable.Table
	acked    map[uint64]*tableEdit // by revision, those that model does not have yet
	inFlight []*tableEdit          // were sent and not answered
	latest   uint64                // the highest revision in an answer
	content  int                   // number of the table file's content
	loads    int                   // number of the content that model has
	edits    int                   // sent in all

	editing                                       time.Duration
	rounds, kills, starts, found, lost, snapshots int
}

// tableEdit is a change that was asked for.
type tableEdit struct {
	operation string
	arguments map[string]any
	command   string // as the history has it
	answer    reply
}

func newCrash(t *testing.T, seed uint64, program, ctl string) *crash {
	t.Logf("seed %d", seed)
	dir := t.TempDir()
	c := &crash{
		t: t, rnd: rand.New(rand.NewPCG(seed, 0)), program: program, ctl: ctl, ahead: 4, long: 4, dir: filepath.Join(dir, "state"), file: filepath.Join(dir, "crash.routes"),
		model: routetable.New(), acked: map[uint64]*tableEdit{},
	}
	c.writeFile()
	return c
}

func (c *crash) writeFile() {
	c.content++
	writeFile(c.t, c.file, c.fileText())
}

func (c *crash) fileText() string {
	var b strings.Builder
	for i := range fileRows {
		fmt.Fprintf(&b, "file/%d --> amqp://content-%d.example\n", i, c.content)
	}
	return b.String()
}

const fileRows = 4

// writeFile puts a file in the place of another in one step.
func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// round starts the router, checks what it has, edits it from many connections, and kills it.
func (c *crash) round() {
	c.rounds++
	for c.rnd.IntN(3) == 0 { // killed while it starts
		p := c.start()
		c.killAfter(p, time.Duration(c.rnd.IntN(120))*time.Millisecond, false)
	}
	r := c.ready()
	c.check(r)
	if c.t.Failed() {
		c.t.FailNow()
	}
	if c.rnd.IntN(3) == 0 {
		c.rollBack(r)
	}
	c.edit(r)
	c.checkState()
}

// finish starts the router once more, and ends it in order.
func (c *crash) finish() {
	r := c.ready()
	c.check(r)
	r.stop()
	if status := r.wait(); status != 0 {
		c.t.Errorf("exit status %d after SIGTERM", status)
	}
	c.t.Logf("%d rounds, %d kills in %d starts, %d of them at a snapshot; %d edits sent, %.0f/s while they were, %d revisions; in flight at a kill: %d kept, %d not; files: %v",
		c.rounds, c.kills, c.starts, c.snapshots, c.edits, float64(c.edits)/c.editing.Seconds(), c.model.Revision(), c.found, c.lost, fileNames(c.t, c.dir))
}

func (c *crash) start() *process {
	c.starts++
	return start(c.t, "router", c.program, "--listen", "amqp://127.0.0.1:0", "--state", c.dir, "--table", c.file)
}

func (c *crash) ready() *router {
	c.t.Helper()
	p := c.start()
	return &router{process: p, addr: strings.TrimPrefix(p.line(), "ready amqp://"), ctlProgram: c.ctl}
}

// killAfter kills a program after some time, or where atSnapshot is set when it is writing a snapshot before that.
func (c *crash) killAfter(p *process, d time.Duration, atSnapshot bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for waiting := true; waiting; {
		select {
		case <-timer.C:
			waiting = false
		case <-look.C:
			if list, _ := filepath.Glob(filepath.Join(c.dir, "*.snapshot.tmp")); atSnapshot && len(list) > 0 {
				c.snapshots++
				waiting = false
			}
		}
	}
	c.kills++
	p.kill()
}

// edit edits the table from many connections at once until the router is killed: some time after that began, or where it writes a snapshot.
func (c *crash) edit(r *router) {
	span, atSnapshot := time.Duration(10+c.rnd.IntN(390))*time.Millisecond, c.rnd.IntN(3) == 0
	if atSnapshot {
		span = time.Second
	}
	c.editUntil(r, func() { c.killAfter(r.process, span, atSnapshot) })
}

// editUntil edits while end runs, which ends the router.
func (c *crash) editUntil(r *router, end func()) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	reloads := c.rnd.IntN(2) == 0
	content := c.content // the one that edits of its rows name
	if reloads {
		content++
	}
	began := time.Now()
	for i := range 8 {
		e := &editor{
			rnd: rand.New(rand.NewPCG(c.rnd.Uint64(), 0)), name: fmt.Sprintf("%d-%d", c.rounds, i), content: content, ahead: 1 + c.rnd.IntN(c.ahead), long: c.long,
		}
		wg.Go(func() {
			done, inFlight, err := e.run(ctx, r.url())
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				c.t.Errorf("connection %d: %v", i, err)
			}
			c.edits += e.sent
			c.inFlight = append(c.inFlight, inFlight...)
			for _, x := range done {
				c.latest = max(c.latest, x.answer.revision)
				if !x.answer.changed() {
					continue
				}
				if c.acked[x.answer.revision] != nil {
					c.t.Errorf("revision %d was given to two edits", x.answer.revision)
				}
				c.acked[x.answer.revision] = x
			}
		})
	}
	if reloads {
		part := time.Duration(c.rnd.IntN(200)) * time.Millisecond
		wg.Go(func() {
			select {
			case <-time.After(part):
			case <-r.ended:
			}
			c.writeFile()
			r.cmd.Process.Signal(syscall.SIGHUP)
		})
	}
	end()
	wg.Wait()
	c.editing += time.Since(began)
}

// editor edits by one connection.
type editor struct {
	rnd     *rand.Rand
	name    string
	content int
	ahead   int // edits under way
	long    int // one note in so many is long
	sent    int
	last    uint64 // the last revision that it was told
}

// run edits until the connection is lost. It gives the edits that were answered, and those that were not.
func (e *editor) run(ctx context.Context, url string) (done, inFlight []*tableEdit, err error) {
	d, err := openDoor(ctx, url)
	if err != nil {
		return nil, nil, nil // killed so early
	}
	defer d.close()
	for {
		for len(inFlight) < e.ahead {
			x := e.next()
			inFlight = append(inFlight, x)
			if d.send(ctx, x.operation, x.arguments) != nil {
				return done, inFlight, ctx.Err()
			}
		}
		if e.rnd.IntN(200) == 0 { // a receiver comes, and stays
			session, err := d.conn.NewSession(ctx, nil)
			if err == nil {
				_, err = session.NewReceiver(ctx, fmt.Sprintf("live/%d", e.rnd.IntN(4)), nil)
			}
			if err != nil {
				return done, inFlight, ctx.Err()
			}
		}
		a, err := d.answer(ctx)
		if err != nil {
			return done, inFlight, ctx.Err()
		}
		if a.status >= 500 {
			return done, inFlight, fmt.Errorf("%s: status %d: %s", inFlight[0].command, a.status, a.text)
		}
		inFlight[0].answer = a
		done, inFlight = append(done, inFlight[0]), inFlight[1:]
		e.last = max(e.last, a.revision)
	}
}

func (e *editor) pattern() string { return fmt.Sprintf("crash/%d", e.rnd.IntN(40)) }
func (e *editor) address() string { return fmt.Sprintf("amqp://h%d.example:5672", e.rnd.IntN(5)) }

// note is text that no other edit has, now and then a long one, so that snapshots are due.
func (e *editor) note() string {
	e.sent++
	note := fmt.Sprintf("note-%s-%d", e.name, e.sent)
	if e.rnd.IntN(e.long) == 0 {
		note += strings.Repeat("n", e.rnd.IntN(60_000))
	}
	return note
}

// next makes an edit.
func (e *editor) next() *tableEdit {
	switch n := e.rnd.IntN(100); {
	case n < 12:
		ops := make([]any, 2+e.rnd.IntN(5))
		var first string
		for i := range ops {
			kind := []int{0, 60, 60, 80}[e.rnd.IntN(4)]
			if i == 0 && kind == 80 {
				kind = 60 // its note tells the batch from all others in the history
			}
			x := e.one(kind)
			op := map[string]any{"operation": x.operation}
			for k, v := range x.arguments {
				op[k] = v
			}
			if ops[i] = op; i == 0 {
				first = x.command
			}
		}
		return &tableEdit{operation: "APPLY", arguments: map[string]any{"ops": ops}, command: cut(fmt.Sprintf("apply of %d: %s …", len(ops), first))}
	case n < 14 && e.last > 1:
		return &tableEdit{operation: "ROLLBACK", arguments: map[string]any{"revision": e.last - 1}, command: fmt.Sprintf("rollback %d", e.last-1)}
	}
	return e.one(e.rnd.IntN(100))
}

func (e *editor) one(n int) *tableEdit {
	pattern, address := e.pattern(), e.address()
	switch {
	case n < 25:
		return edited("ADD", "add", pattern, address, "note", e.note())
	case n < 30:
		return edited("INSERT", "insert", pattern, address, "before", e.pattern(), "note", e.note())
	case n < 50:
		return edited("SET", "set", pattern, address, "note", e.note())
	case n < 60:
		file := fmt.Sprintf("file/%d", e.rnd.IntN(fileRows))
		return edited("SET", "set", file, fmt.Sprintf("amqp://content-%d.example", e.content), "note", e.note())
	case n < 80:
		return edited("REPLACE", "replace", pattern, address, "note", e.note())
	case n < 97:
		return edited("DELETE-ROUTE", "delete", pattern, address)
	}
	return &tableEdit{operation: "DELETE-PATTERN", arguments: map[string]any{"pattern": pattern}, command: "delete-pattern " + pattern}
}

func edited(operation, verb, pattern, address string, more ...string) *tableEdit {
	x := &tableEdit{operation: operation, arguments: map[string]any{"pattern": pattern, "address": address}}
	command := verb + " " + pattern + " " + address
	for i := 0; i < len(more); i += 2 {
		x.arguments[more[i]] = more[i+1]
		command += " --" + more[i] + " " + more[i+1]
	}
	x.command = cut(command)
	return x
}

// cut bounds a command as the history does.
func cut(command string) string {
	if runes := []rune(command); len(runes) > 200 {
		return string(runes[:199]) + "…"
	}
	return command
}

// listedRevision is an entry of routectl history.
type listedRevision struct {
	Revision                uint64
	From, Command           string
	Added, Removed, Updated uint64
}

// check gives model what the router has beyond it, and compares them.
func (c *crash) check(r *router) {
	c.t.Helper()
	var list []listedRevision
	if err := json.Unmarshal([]byte(r.ctl(c.t, "history", "-o", "json", "--limit", fmt.Sprint(len(c.acked)+len(c.inFlight)+16))), &list); err != nil {
		c.t.Fatal(err)
	}
	revision := uint64(0)
	if len(list) > 0 {
		revision = list[0].Revision
	}
	if revision < c.latest {
		c.t.Errorf("the router is at revision %d, but revision %d was acknowledged", revision, c.latest)
	}
	slices.Reverse(list)
	for _, x := range list {
		if x.Revision > c.model.Revision() {
			c.advance(x)
		}
	}
	if got := c.model.Revision(); got != revision {
		c.t.Errorf("the router is at revision %d, the model at %d", revision, got)
	}
	for n, x := range c.acked {
		c.t.Errorf("revision %d was acknowledged and is not there: %s", n, x.command)
	}
	c.lost += len(c.inFlight)
	c.inFlight, c.latest = nil, revision
	c.compare(r)
}

// advance does in model what a revision of the router did.
func (c *crash) advance(listed listedRevision) {
	c.t.Helper()
	x := c.acked[listed.Revision]
	delete(c.acked, listed.Revision)
	if x == nil {
		x = c.unanswered(listed)
	} else if a := x.answer; a.added != listed.Added || a.removed != listed.Removed || a.updated != listed.Updated {
		c.t.Errorf("revision %d: got %+v in the history, and %+v in the answer", listed.Revision, listed, a)
	}
	if x.command != listed.Command {
		c.t.Errorf("revision %d: got %q in the history, want %q", listed.Revision, listed.Command, x.command)
	}
	change, err := x.apply(c.model)
	if err != nil || change.Revision != listed.Revision {
		c.t.Fatalf("revision %d: the model says %d, %v: %s", listed.Revision, change.Revision, err, x.command)
	}
	if a, d, u := configured(change.Added), configured(change.Removed), configured(change.Updated); a != listed.Added || d != listed.Removed || u != listed.Updated {
		c.t.Errorf("revision %d: got %+v, the model says +%d -%d ~%d", listed.Revision, listed, a, d, u)
	}
}

func configured(rows []*routetable.Route) (n uint64) {
	for _, r := range rows {
		if routetable.Configured(r.Origin) {
			n++
		}
	}
	return n
}

// unanswered finds the edit of a revision that nobody was told of.
func (c *crash) unanswered(listed listedRevision) *tableEdit {
	c.t.Helper()
	if listed.From == "file:crash.routes" {
		if c.loads == c.content {
			c.t.Errorf("revision %d: the same content of the table file was loaded once more", listed.Revision)
		}
		c.loads = c.content
		return &tableEdit{operation: "load", arguments: map[string]any{"text": c.fileText()}, command: "load crash.routes"}
	}
	i := slices.IndexFunc(c.inFlight, func(x *tableEdit) bool { return x.command == listed.Command })
	if i < 0 {
		c.t.Fatalf("revision %d was never asked for: %+v", listed.Revision, listed)
	}
	x := c.inFlight[i]
	c.inFlight = slices.Delete(c.inFlight, i, i+1)
	c.found++
	return x
}

// apply does the edit in a table.
func (x *tableEdit) apply(t *routetable.Table) (routetable.Change, error) {
	switch x.operation {
	case "ROLLBACK":
		return t.Apply(routetable.Op{Verb: routetable.VerbRollback, To: x.arguments["revision"].(uint64)})
	case "load":
		f, err := routetable.ParseFile("crash.routes", []byte(x.arguments["text"].(string)))
		if err != nil {
			return routetable.Change{}, err
		}
		op := f.Op(routetable.LoadReplace)
		op.Origin, op.SetMatch = "file:crash.routes", false
		return t.Apply(op)
	}
	command, err := admin.ParseCommand(x.operation, x.arguments)
	if err != nil {
		return routetable.Change{}, err
	}
	return t.Plan(routetable.Author{}, func(s *routetable.Snapshot) ([]routetable.Op, error) { return admin.Plan(command, s) })
}

// compare holds the rows of the router to those of model, in their order.
func (c *crash) compare(r *router) {
	c.t.Helper()
	var list []struct{ Pattern, Address, Origin, Note string }
	if err := json.Unmarshal([]byte(r.ctl(c.t, "list", "-o", "json")), &list); err != nil {
		c.t.Fatal(err)
	}
	var got, want []string
	for _, x := range list {
		got = append(got, fmt.Sprintf("%s --> %s of %s %s", x.Pattern, x.Address, x.Origin, x.Note))
	}
	for x := range c.model.Snapshot().Routes() {
		want = append(want, fmt.Sprintf("%s --> %s of %s %s", x.Pattern, x.Address, x.Origin, x.Note))
	}
	sameLines(c.t, fmt.Sprintf("revision %d", c.model.Revision()), got, want)
}

// sameLines compares two lists and tells where they part.
func sameLines(t testing.TB, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("%s: row %d of %d: got %.150q, want %.150q of %d", what, i, len(got), g, w, len(want))
			return
		}
	}
}

// rollBack takes the last revision back.
func (c *crash) rollBack(r *router) {
	c.t.Helper()
	last := c.model.Revision()
	if last == 0 {
		return
	}
	x := &tableEdit{operation: "ROLLBACK", arguments: map[string]any{"revision": last - 1}, command: fmt.Sprintf("rollback %d", last-1)}
	before := last
	change, err := x.apply(c.model)
	if err != nil {
		c.t.Fatal(err)
	}
	r.ctl(c.t, "rollback", fmt.Sprint(last-1))
	if change.Revision != before+1 {
		c.t.Errorf("the model went from revision %d to %d", before, change.Revision)
	}
	c.latest = change.Revision
	c.compare(r)
}

// checkState has routectl look at the directory of a router that is not running.
func (c *crash) checkState() {
	c.t.Helper()
	if out, status := stateCommand(c.t, c.ctl, "check", c.dir); status != 0 || !strings.Contains(out, " is whole\n") {
		c.t.Errorf("state check: exit status %d\n%s", status, out)
	}
}

// fileNames are the files of a directory.
func fileNames(t testing.TB, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		names = append(names, f.Name())
	}
	return names
}

// stateCommand runs routectl state.
func stateCommand(t testing.TB, program, verb, dir string) (out string, status int) {
	t.Helper()
	p := start(t, "routectl state "+verb, program, "state", verb, dir)
	var b strings.Builder
	for line := range p.lines {
		b.WriteString(line + "\n")
	}
	status = p.wait()
	return b.String() + p.log.String(), status
}
