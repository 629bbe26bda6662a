package ctl

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// doorCaller makes calls on a core in this process, by the bytes that would be on the wire.
type doorCaller struct {
	t    *testing.T
	core *admin.Core
	as   admin.Caller
	next uint64
	log  []string // operations called
}

func (d *doorCaller) close()          {}
func (d *doorCaller) replyTo() string { return "back" }

func (d *doorCaller) call(_ context.Context, q call) (reply, error) {
	d.next++
	d.log = append(d.log, q.operation)
	request, err := q.message(d.next, "back").MarshalBinary()
	if err != nil {
		d.t.Fatal(err)
	}
	answer, to := d.core.Handle(d.as, request)
	if to != "back" {
		d.t.Fatalf("%s: reply to %q", q.operation, to)
	}
	var m amqp.Message
	if err := m.UnmarshalBinary(answer); err != nil {
		d.t.Fatalf("%s: %v", q.operation, err)
	}
	if m.Properties.CorrelationID != any(d.next) {
		d.t.Fatalf("%s: got correlation id %v, want %d", q.operation, m.Properties.CorrelationID, d.next)
	}
	return readReply(&m)
}

func newDoor(t *testing.T, role admin.Role) *doorCaller {
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	core := admin.New(routetable.New(), admin.Options{Name: "r", Now: func() time.Time { return noon }})
	return &doorCaller{t: t, as: admin.Caller{User: "u", Remote: "127.0.0.1:4711", Role: role}, core: core}
}

// The verbs do the same on a router: each session of testdata/ctl/router is run on one.
func TestRouterSessions(t *testing.T) {
	files, err := filepath.Glob("../../testdata/ctl/router/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sessions: %v", err)
	}
	for _, file := range files {
		file, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			role := admin.RoleOperator
			if strings.HasPrefix(filepath.Base(file), "viewer") {
				role = admin.RoleViewer
			}
			d := newDoor(t, role)
			if _, err := d.core.Do(admin.Caller{}, admin.Subscribe{Pattern: "learned", Address: "link:7", Origin: "link:7"}); err != nil {
				t.Fatal(err)
			}
			if role == admin.RoleViewer {
				boss := admin.Caller{User: "boss", Via: "file:default.yaml", Role: admin.RoleAdmin}
				if _, err := d.core.Do(boss, admin.Add{Route: routetable.NewRoute("COLOSSUS", "amqp://user:secret@5.6.7.8:1234")}); err != nil {
					t.Fatal(err)
				}
			}
			got := runSession(t, string(want), func(context.Context) (editor, error) { return &remote{caller: d}, nil })
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

func TestListPagesOverOneSnapshot(t *testing.T) {
	d := newDoor(t, admin.RoleAdmin)
	var ops []routetable.Op
	for i := range 2*pageRows + 7 {
		ops = append(ops, routetable.Op{Verb: routetable.VerbAdd, Route: routetable.NewRoute("name-"+string(rune('a'+i%26))+strings.Repeat("x", i/26), "amqp://h")})
	}
	if _, err := d.core.Table().Apply(ops...); err != nil {
		t.Fatal(err)
	}
	rows, err := (&remote{caller: d}).rows(context.Background(), filter{})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(ops) || len(d.log) != 3 {
		t.Fatalf("got %d rows by %v, want %d by 3 queries", len(rows), d.log, len(ops))
	}
	for i, r := range rows {
		if r.Pattern != ops[i].Route.Pattern {
			t.Fatalf("row %d is %q, want %q", i, r.Pattern, ops[i].Route.Pattern)
		}
	}
	last := ops[len(ops)-1].Route.Pattern
	rows, err = (&remote{caller: d}).rows(context.Background(), filter{RouteFilter: admin.RouteFilter{OfPattern: true, Pattern: last}})
	if err != nil || len(rows) != 1 || rows[0].Pattern != last || len(d.log) != 4 {
		t.Errorf("of one pattern: got %d rows by %v, %v, want 1 by one query more", len(rows), d.log, err)
	}
	for i, f := range []admin.RouteFilter{{Origin: "link"}, {Space: "topic"}} {
		rows, err = (&remote{caller: d}).rows(context.Background(), filter{RouteFilter: f})
		if err != nil || len(rows) != 0 || len(d.log) != 5+i {
			t.Errorf("of %v: got %d rows by %v, %v, want none by one query more", f, len(rows), d.log, err)
		}
	}
}

func TestLoadGoesInChunks(t *testing.T) {
	d := newDoor(t, admin.RoleAdmin)
	f := &routetable.File{}
	for i := range 12_000 {
		f.Routes = append(f.Routes, routetable.NewRoute("some/rather/long/name/for/a/pattern/"+string(rune('a'+i%26))+strings.Repeat("é", i%40)+strings.Repeat("z", i/400)+strings.Repeat("y", i%400/40), "amqp://host.example:5672/some/where"))
	}
	var told []string
	x, err := (&remote{caller: d}).load(context.Background(), f, loadOptions{progress: func(s string) { told = append(told, s) }})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(told); n < 4 || told[0] != "writing 12000 rows" || !strings.HasPrefix(told[n-2], "sent 100% of 12000 rows (") || told[n-1] != "the router checks and loads 12000 rows" {
		t.Errorf("got progress %q", told)
	}
	if n := d.core.Table().Snapshot().Len(); n != x.Added || n < 8_000 {
		t.Errorf("got %d rows in the table, %d added", n, x.Added)
	}
	got, err := (&remote{caller: d}).store(context.Background(), false)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Routes) != x.Added {
		t.Errorf("stored %d rows, want %d", len(got.Routes), x.Added)
	}
}

func TestRefusedLoadIsAborted(t *testing.T) {
	d := newDoor(t, admin.RoleAdmin)
	_, err := (&remote{caller: d}).load(context.Background(), &routetable.File{Routes: []routetable.Route{routetable.NewRoute("A", "amqp://:99999")}}, loadOptions{})
	if statusOf(err) != exitNo {
		t.Errorf("got %v", err)
	}
}

func TestExitStatusOfAnswers(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want int
		text string
	}{
		{"a refused change", &statusError{status: 400, text: "bad address"}, exitNo, "bad address"},
		{"not allowed", &statusError{status: 403, text: "needs role operator"}, exitNo, "needs role operator"},
		{"their fault", &statusError{status: 500, text: "internal error"}, exitNo, "add: the router failed: internal error: see its log"},
		{"no words", &statusError{status: 409}, exitNo, "refused with status 409"},
		{"gone", unreachable("amqp://x: connection lost"), exitUnreachable, "amqp://x: connection lost"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &remote{caller: failing{c.err}}
			_, err := r.apply(context.Background(), []edit{{operation: "ADD"}}, applyOptions{})
			if got := statusOf(err); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
			if err.Error() != c.text {
				t.Errorf("got %q, want %q", err, c.text)
			}
		})
	}
}

type failing struct{ err error }

func (f failing) call(context.Context, call) (reply, error) { return reply{}, f.err }
func (failing) close()                                      {}
func (failing) replyTo() string                             { return "" }

// interruptedAt is a caller whose user interrupts at the first call of an operation, once it was answered.
type interruptedAt struct {
	*doorCaller
	operation string
	interrupt context.CancelFunc
}

func (c interruptedAt) call(ctx context.Context, q call) (reply, error) {
	if ctx.Err() != nil {
		return reply{}, no("interrupted")
	}
	a, err := c.doorCaller.call(ctx, q)
	if q.operation == c.operation {
		c.interrupt()
	}
	return a, err
}

func TestInterruptedLoadChangesNothingOrAll(t *testing.T) {
	f := &routetable.File{}
	for i := range 200 {
		f.Routes = append(f.Routes, routetable.NewRoute(fmt.Sprint(i)+strings.Repeat("x", 10_000), "amqp://h"))
	}
	for _, c := range []struct {
		at   string
		rows int
		log  string
	}{
		{"LOAD-BEGIN", 0, "[LOAD-BEGIN LOAD-ABORT]"},
		{"LOAD-CHUNK", 0, "[LOAD-BEGIN LOAD-CHUNK LOAD-ABORT]"},
		{"LOAD-COMMIT", 200, "[LOAD-BEGIN LOAD-CHUNK LOAD-CHUNK LOAD-COMMIT]"},
	} {
		t.Run(c.at, func(t *testing.T) {
			d := newDoor(t, admin.RoleAdmin)
			ctx, interrupt := context.WithCancel(context.Background())
			defer interrupt()
			said := ""
			_, err := (&remote{caller: interruptedAt{d, c.at, interrupt}}).load(ctx, f, loadOptions{say: func(text string) { said = text }})
			if strings.Contains(said, "loads it or refuses it") != (c.at == "LOAD-COMMIT") {
				t.Errorf("said %q", said)
			}
			if (err == nil) != (c.rows > 0) || err != nil && (statusOf(err) != exitNo || errorText(err) != "interrupted") {
				t.Errorf("got error %v", err)
			}
			s := d.core.Table().Snapshot()
			if s.Len() != c.rows || s.Revision() > 1 || fmt.Sprint(d.log) != c.log {
				t.Errorf("got %d rows at revision %d by %v, want %d by %s", s.Len(), s.Revision(), d.log, c.rows, c.log)
			}
		})
	}
}

// lostAt is a caller whose connection ends at an operation, before the answer.
type lostAt struct {
	*doorCaller
	operation string
}

func (c lostAt) call(ctx context.Context, q call) (reply, error) {
	if q.operation == c.operation {
		return reply{}, unreachable("h: connection lost")
	}
	return c.doorCaller.call(ctx, q)
}

func TestALoadWhoseAnswerIsLostSaysSo(t *testing.T) {
	f := &routetable.File{Routes: []routetable.Route{routetable.NewRoute("A", "amqp://h")}}
	_, err := (&remote{caller: lostAt{newDoor(t, admin.RoleAdmin), "LOAD-COMMIT"}}).load(context.Background(), f, loadOptions{})
	if statusOf(err) != exitUnreachable || !strings.Contains(errorText(err), "whether the load was done is not known") {
		t.Errorf("got %v", err)
	}
	_, err = (&remote{caller: lostAt{newDoor(t, admin.RoleAdmin), "LOAD-CHUNK"}}).load(context.Background(), f, loadOptions{})
	if statusOf(err) != exitUnreachable || strings.Contains(errorText(err), "not known") {
		t.Errorf("before the commit: got %v", err)
	}
}

func TestDiffComesInPages(t *testing.T) {
	d := newDoor(t, admin.RoleAdmin)
	f := &routetable.File{}
	for i := range 10_500 {
		f.Routes = append(f.Routes, routetable.NewRoute(fmt.Sprintf("N%05d", i), "amqp://h"))
	}
	x, err := (&remote{caller: d}).diffFile(context.Background(), "many", f)
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Rows) != len(f.Routes) || x.Rows[10_499].After.Pattern != "N10499" || x.To != "many" {
		t.Errorf("got %d rows", len(x.Rows))
	}
	if got := strings.Join(d.log, " "); got != "LOAD-BEGIN LOAD-CHUNK DIFF DIFF" {
		t.Errorf("got %s", got)
	}
	if d.core.Table().Revision() != 0 {
		t.Error("a diff changed the table")
	}
}

// What a router says of an operation is said of the verb that was typed.
func TestVerbOfAnOperation(t *testing.T) {
	for operation, want := range map[string]string{"LOAD-COMMIT": "load", "DELETE-ROUTE": "delete", "DELETE-PATTERN": "delete-pattern", "ADD": "add"} {
		if got := verbOf(operation); got != want {
			t.Errorf("%s: got %s, want %s", operation, got, want)
		}
	}
}

// Input without an end is refused, not waited for.
func TestInputIsBounded(t *testing.T) {
	var errs strings.Builder
	r := &run{env: Env{Stdin: strings.NewReader(strings.Repeat("# nothing\n", maxInput/10+1)), Stdout: io.Discard, Stderr: &errs, Getenv: func(string) string { return "" }}}
	if status := r.run(context.Background(), []string{"--file", filepath.Join(t.TempDir(), "t.routes"), "apply", "-"}); status != exitUsage || !strings.Contains(errs.String(), "standard input: more than 64 MiB") {
		t.Errorf("got exit %d, %s", status, errs.String())
	}
}

// What all commands have is told once, and not with each.
func TestHelpOfACommand(t *testing.T) {
	for _, args := range [][]string{{"help", "add"}, {"add", "--help"}, {"help", "state", "check"}} {
		var out strings.Builder
		r := &run{env: Env{Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }}}
		if status := r.run(context.Background(), args); status != 0 || strings.Contains(out.String(), "--ca ") || !strings.Contains(out.String(), "routectl --help tells") || strings.Contains(out.String(), `="true"`) {
			t.Errorf("%v: got exit %d, %s", args, status, out.String())
		}
	}
}

// A batch that is too large for one request is refused by name: the router is there.
func TestTooLargeABatch(t *testing.T) {
	m := &manager{at: endpoint{addr: "amqp://h:5672"}}
	err := m.failed(&amqp.LinkError{RemoteErr: &amqp.Error{Condition: amqp.ErrCondMessageSizeExceeded, Description: "more than 16 MiB of a request"}}, time.Second)
	if statusOf(err) != exitNo || !strings.Contains(err.Error(), "more than 16 MiB") || !strings.Contains(err.Error(), "load") {
		t.Errorf("got %v, exit %d", err, statusOf(err))
	}
}

// What a router says when it goes is told in words, however the error is wrapped.
func TestAConnectionThatIsLostIsToldInWords(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&amqp.ConnError{RemoteErr: &amqp.Error{Condition: "amqp:connection:forced", Description: "the router is going away"}},
			"h: connection lost: amqp:connection:forced: the router is going away"},
		{io.EOF, "h: connection lost: EOF"},
	} {
		if err := connectionLost("h", c.err); statusOf(err) != exitUnreachable || err.Error() != c.want {
			t.Errorf("got %v, exit %d, want %s", err, statusOf(err), c.want)
		}
	}
}
