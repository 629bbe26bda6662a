package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
)

// startKept runs the router with a state directory and waits until it is ready.
func startKept(t testing.TB, dir string, args ...string) *router {
	t.Helper()
	p := start(t, "router", routerProgram, keptArgs(dir, args...)...)
	return &router{process: p, addr: strings.TrimPrefix(p.line(), "ready amqp://")}
}

func keptArgs(dir string, args ...string) []string {
	return append([]string{"--listen", "amqp://127.0.0.1:0", "--state", dir}, args...)
}

// refusesToStart runs the router, which must end with a status and an error that says all of what.
func refusesToStart(t testing.TB, status int, args []string, what ...string) {
	t.Helper()
	p := start(t, "router", routerProgram, args...)
	if got := p.wait(); got != status {
		t.Errorf("exit status %d, want %d", got, status)
	}
	text := p.log.String()
	if strings.Count(text, "router: ") != 1 {
		t.Errorf("not one error:\n%s", text)
	}
	for _, w := range what {
		if !strings.Contains(text, w) {
			t.Errorf("the error does not say %q:\n%s", w, text)
		}
	}
}

func TestTwoRoutersOnOneDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	r := startKept(t, dir)
	r.ctl(t, "add", "COLOSSUS", "amqp://one")
	refusesToStart(t, 1, keptArgs(dir), dir, fmt.Sprintf("is in use by another router (pid %d)", r.cmd.Process.Pid))
	r.ctl(t, "add", "COLOSSUS", "amqp://two")
	out, status := stateCommand(t, routectlProgram, "check", dir)
	if status != 0 || !strings.Contains(out, "is in use by a router") {
		t.Errorf("state check of a router that runs: exit status %d\n%s", status, out)
	}
	if out, status := stateCommand(t, routectlProgram, "repair", dir); status != 1 || !strings.Contains(out, "is in use by another router") {
		t.Errorf("state repair of a router that runs: exit status %d\n%s", status, out)
	}
	r.kill()
	startKept(t, dir).wantRows(t, "COLOSSUS amqp://one", "COLOSSUS amqp://two")
}

// wantRows holds the rows of a router but those of connections, pattern and address, to a list.
func (r *router) wantRows(t testing.TB, want ...string) {
	t.Helper()
	var rows []string
	for i, line := range strings.Split(strings.TrimSpace(r.ctl(t, "list")), "\n") {
		if fields := strings.Fields(line); i > 0 && len(fields) > 1 && !strings.HasPrefix(fields[1], "link:") {
			rows = append(rows, fields[0]+" "+fields[1])
		}
	}
	sameLines(t, "rows", rows, want)
}

func TestADirectoryThatCannotBeOne(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "text")
	refusesToStart(t, 1, keptArgs(file), file, "not a directory")
	refusesToStart(t, 1, keptArgs(filepath.Join(file, "state")), file, "not a directory")
	out, status := stateCommand(t, routectlProgram, "check", file+".none")
	if status != 2 || !strings.Contains(out, "no such directory") {
		t.Errorf("state check of nothing: exit status %d\n%s", status, out)
	}
}

// mounts is a mount name space of its own with a small file system on one directory. Programs run in it; the file system lasts as long as the
// test.
type mounts struct {
	dir string
	pid string
}

// mountSmall mounts a file system of a few KiB where the test may do that, and else the test is left out.
func mountSmall(t *testing.T, kib int) *mounts {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a file system takes root")
	}
	m := &mounts{dir: t.TempDir()}
	script := fmt.Sprintf("mount -t tmpfs -o size=%dk none '%s' && echo mounted && cat", kib, m.dir)
	cmd := exec.Command("unshare", "-m", "sh", "-c", script)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); cmd.Wait() }) // behind the cleanups of the programs
	var said [8]byte
	if n, _ := out.Read(said[:]); n == 0 {
		stdin.Close()
		cmd.Wait()
		if text := errs.String(); strings.Contains(text, "not permitted") || strings.Contains(text, "denied") {
			t.Skip("mounting a file system is not permitted here: " + text)
		}
		t.Fatalf("mount: %s", &errs)
	}
	m.pid = fmt.Sprint(cmd.Process.Pid)
	return m
}

// outside is the path of a file in the name space for those who are not.
func (m *mounts) outside(name string) string {
	return filepath.Join("/proc", m.pid, "root", m.dir, name)
}

// start runs the router in the name space.
func (m *mounts) start(t *testing.T, args ...string) *process {
	t.Helper()
	return start(t, "router", "nsenter", append([]string{"-m", "-t", m.pid, "--", routerProgram}, args...)...)
}

// run runs a command in the name space, which must succeed.
func (m *mounts) run(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("nsenter", append([]string{"-m", "-t", m.pid, "--"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
}

func TestAReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	m := mountSmall(t, 4096)
	dir := filepath.Join(m.dir, "state")
	refused := func(what ...string) {
		t.Helper()
		p := m.start(t, keptArgs(dir)...)
		if status := p.wait(); status != 1 {
			t.Errorf("exit status %d, want 1", status)
		}
		for _, w := range what {
			if text := p.log.String(); !strings.Contains(text, w) {
				t.Errorf("the error does not say %q:\n%s", w, text)
			}
		}
	}
	m.run(t, "mount", "-o", "remount,ro", m.dir)
	refused("open state "+dir, "read-only file system")
	m.run(t, "mount", "-o", "remount,rw", m.dir)
	p := m.start(t, keptArgs(dir)...)
	r := &router{process: p, addr: strings.TrimPrefix(p.line(), "ready amqp://")}
	r.ctl(t, "add", "A", "amqp://one")
	r.stop()
	m.run(t, "mount", "-o", "remount,ro", m.dir)
	refused("open state "+dir, "read-only file system")
}

// A disk that is full refuses edits and nothing else, and takes them again when there is room.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	m := mountSmall(t, 1024)
	dir, filler := filepath.Join(m.dir, "state"), m.outside("filler")
	begin := func() *router {
		p := m.start(t, keptArgs(dir)...)
		return &router{process: p, addr: strings.TrimPrefix(p.line(), "ready amqp://")}
	}
	r := begin()
	r.ctl(t, "add", "GUARDIAN", "amqp://one.example")
	want := []string{"GUARDIAN amqp://one.example"}
	stays := receiveBy(t, goAMQP, r.url(), "STAYS", 2)
	for round := range 2 {
		fillDisk(t, filler)
		history := r.ctl(t, "history")
		_, stderr, status := r.tryCtl(t, "add", "REFUSED", "amqp://two.example", "--note", tooLong)
		if status != 1 || !strings.Contains(stderr, "nothing was changed") || !strings.Contains(stderr, "write "+dir) || !strings.Contains(stderr, "no space left on device") {
			t.Errorf("exit status %d: %s", status, stderr)
		}
		goOnWithAFullDisk(t, r)
		sameOutcomes(t, "STAYS", sendBy(t, goAMQP, r.url(), batchOf{to: "STAYS", id: "m", count: 1, sizes: []int{100}}), "accepted")
		if got := r.ctl(t, "history"); got != history {
			t.Errorf("edits that were refused are in the history:\n%s", got)
		}
		r.wantRows(t, want...)
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		pattern := fmt.Sprintf("ROOM-%d", round)
		r.ctl(t, "add", pattern, "amqp://three.example", "--note", tooLong)
		want = append(want, pattern+" amqp://three.example")
	}
	stays()
	text := r.log.String() // where the second time comes within 10 s, it is told later
	for _, line := range []string{"changes of the table cannot be kept", "changes of the table are kept again"} {
		if n := strings.Count(text, line); n < 1 || n > 2 {
			t.Errorf("%q is told %d times, want each time told once:\n%s", line, n, text)
		}
	}
	history := r.ctl(t, "history")
	r.kill()
	r = begin()
	r.wantRows(t, want...)
	if got := r.ctl(t, "history"); got != history {
		t.Errorf("got history\n%s\nwant\n%s", got, history)
	}
	r.stop()
	fillDisk(t, filler)
	r = begin() // takes no room
	r.wantRows(t, want...)
	r.stop()
	table := filepath.Join(t.TempDir(), "new.routes")
	writeFile(t, table, "NEW --> amqp://four.example ; note="+tooLong+"\n")
	p := m.start(t, keptArgs(dir, "--table", table)...)
	if status := p.wait(); status != 1 || !strings.Contains(p.log.String(), "no space left on device") {
		t.Errorf("a new table file: exit status %d\n%s", status, p.log)
	}
}

// tooLong is a note that does not fit into what is left of a page.
var tooLong = strings.Repeat("n", 5000)

func fillDisk(t testing.TB, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for page := make([]byte, 4096); err == nil; {
		_, err = f.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// goOnWithAFullDisk has receivers come, get messages and go while many edits are refused.
func goOnWithAFullDisk(t *testing.T, r *router) {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var wg sync.WaitGroup
	for i := range 4 {
		d, err := openDoor(ctx, r.url())
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer d.close()
			for n := 0; ctx.Err() == nil; n++ {
				x := edited("ADD", "add", fmt.Sprintf("REFUSED-%d-%d", i, n), "amqp://two.example", "note", tooLong)
				a, err := d.call(ctx, x.operation, x.arguments)
				if err == nil && (a.status != 500 || !strings.Contains(a.text, "no space left on device")) {
					t.Errorf("got status %d: %s", a.status, a.text)
				}
			}
		})
	}
	for n := range 20 {
		session := dialGo(t, r.url())
		receiver, err := session.NewReceiver(ctx, "COLOSSUS", nil)
		if err != nil {
			t.Fatalf("receiver %d is turned away: %v", n, err)
		}
		sender, err := session.NewSender(ctx, "COLOSSUS", nil)
		if err != nil {
			t.Fatal(err)
		}
		sent := make(chan error, 1)
		go func() { sent <- sender.Send(ctx, amqp.NewMessage([]byte("hello")), nil) }()
		m, err := receiver.Receive(ctx, nil)
		if err == nil {
			err = receiver.AcceptMessage(ctx, m)
		}
		if err == nil {
			err = <-sent
		}
		if err == nil {
			err = receiver.Close(ctx)
		}
		if err != nil {
			t.Fatalf("message %d: %v", n, err)
		}
	}
	cancel()
	wg.Wait()
	eventually(t, "no rows of connections that are gone", func() bool { return strings.Count(r.ctl(t, "list"), " link:") == 2 }) // with the one that stays, and its origin
}

// A directory of another version, or with what is no journal, is refused as it is.
func TestADirectoryThatIsNotUnderstood(t *testing.T) {
	t.Parallel()
	const journalFile, snapshotFile = "table.00000001.journal", "table.00000002.snapshot"
	for name, c := range map[string]struct {
		file string
		text func() []byte
		want []string
	}{
		"a journal of another version":  {journalFile, func() []byte { return header("fpstjrnl", 2, 1) }, []string{journalFile + ": journal version 2: this program reads version 1"}},
		"a snapshot of another version": {snapshotFile, func() []byte { return append(header("fpstsnap", 7, 2), make([]byte, 100)...) }, []string{snapshotFile + ": snapshot version 7: this program reads version 1"}},
		"garbage":                       {journalFile, func() []byte { return bytes.Repeat([]byte("garbage "), 100) }, []string{journalFile + ": offset 0: this is no journal", "routectl state check ", "routectl state repair "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, c.file)
			if err := os.WriteFile(path, c.text(), 0o600); err != nil {
				t.Fatal(err)
			}
			refusesToStart(t, 1, keptArgs(dir), append(c.want, dir)...)
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, c.text()) {
				t.Errorf("the file was changed: %v", err)
			}
			if out, status := stateCommand(t, routectlProgram, "check", dir); status != 1 || !strings.Contains(out, "problem: ") {
				t.Errorf("state check: exit status %d\n%s", status, out)
			}
		})
	}
}

// header is the first 32 bytes of a file in a state directory.
func header(magic string, version uint32, number uint64) []byte {
	b := append([]byte(magic), make([]byte, 24)...)
	le := binary.LittleEndian
	le.PutUint32(b[8:], version)
	le.PutUint64(b[16:], number)
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	le.PutUint32(b[12:], crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, b[16:]))
	return b
}

// keptRows makes a state directory with ten rows, and gives its journal.
func keptRows(t *testing.T) (dir, journal string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "state")
	r := startKept(t, dir)
	d, err := openDoor(within(t), r.url())
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	for n := range 10 {
		x := edited("ADD", "add", fmt.Sprintf("ROW-%d", n), "amqp://one.example")
		if a, err := d.call(within(t), x.operation, x.arguments); err != nil || a.revision != uint64(n+1) {
			t.Fatal(a, err)
		}
	}
	r.kill()
	return dir, filepath.Join(dir, "table.00000001.journal")
}

func rowNames(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("ROW-%d amqp://one.example", i))
	}
	return list
}

// A byte in the middle of the journal is another one: the router says where, and repair keeps what is before it.
func TestADamagedJournal(t *testing.T) {
	t.Parallel()
	dir, journal := keptRows(t)
	b, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte("ROW-6"))
	b[at] ^= 1
	if err := os.WriteFile(journal, b, 0o600); err != nil {
		t.Fatal(err)
	}
	refusesToStart(t, 1, keptArgs(dir), journal+": offset ", "behind it 3 entries can be read", "routectl state repair "+dir)
	if got, _ := os.ReadFile(journal); !bytes.Equal(got, b) {
		t.Error("a refused start has changed the journal")
	}
	out, status := stateCommand(t, routectlProgram, "check", dir)
	if status != 1 || !strings.Contains(out, "problem: offset ") || !strings.Contains(out, " is damaged\n") {
		t.Errorf("state check: exit status %d\n%s", status, out)
	}
	if out, status = stateCommand(t, routectlProgram, "repair", dir); status != 0 || !strings.Contains(out, "done: table.00000001.journal is cut at offset ") {
		t.Errorf("state repair: exit status %d\n%s", status, out)
	}
	r := startKept(t, dir)
	r.wantRows(t, rowNames(6)...)
	if out := r.ctl(t, "add", "ROW-6", "amqp://one.example"); !strings.Contains(out, "7") {
		t.Errorf("want revision 7, got %s", out)
	}
	r.kill()
	startKept(t, dir).wantRows(t, rowNames(7)...)
}

// The last entry is half there: it was never acknowledged, and is cut off.
func TestATornJournal(t *testing.T) {
	t.Parallel()
	dir, journal := keptRows(t)
	b, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(journal, int64(len(b)-9)); err != nil {
		t.Fatal(err)
	}
	if out, status := stateCommand(t, routectlProgram, "check", dir); status != 0 || !strings.Contains(out, "a torn end") {
		t.Errorf("state check: exit status %d\n%s", status, out)
	}
	r := startKept(t, dir)
	r.wantRows(t, rowNames(9)...)
	if text := r.log.String(); !strings.Contains(text, "the torn end of a journal is cut off") || !strings.Contains(text, journal) {
		t.Errorf("the log does not tell:\n%s", text)
	}
}

// A router is asked to end while many edit its table: it ends well, and what it acknowledged is there.
func TestTermWithEditsInFlight(t *testing.T) {
	t.Parallel()
	c := newCrash(t, rand.Uint64(), routerProgram, routectlProgram)
	for range 3 {
		r := c.ready()
		c.check(r)
		c.editUntil(r, func() {
			began := time.Now()
			timer := time.NewTimer(time.Duration(20+c.rnd.IntN(200)) * time.Millisecond)
			defer timer.Stop()
			<-timer.C
			r.cmd.Process.Signal(syscall.SIGTERM)
			if status := r.wait(); status != 0 {
				t.Errorf("exit status %d", status)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v: edits that come while it ends hold it up", took)
			}
		})
		c.checkState()
	}
	c.finish()
}

func TestANodeKeepsItsID(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	id := func(r *router) string {
		receiver, err := dialGo(t, r.url()).NewReceiver(within(t), "", &amqp.ReceiverOptions{DynamicAddress: true})
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(receiver.Address(), "/") // $reply/ID/…
		if len(parts) != 3 || len(parts[1]) != 16 {
			t.Fatalf("got the address %q", receiver.Address())
		}
		return parts[1]
	}
	r := startKept(t, dir)
	first := id(r)
	r.kill()
	r = startKept(t, dir)
	if got := id(r); got != first {
		t.Errorf("got %s after a kill, want %s", got, first)
	}
	r.stop()
	if got := id(startKept(t, dir)); got != first {
		t.Errorf("got %s after an orderly end, want %s", got, first)
	}
	if got := id(startKept(t, dir+"2")); got == first {
		t.Error("another directory has the same id")
	}
}

// Edits of the rows of a table file outlive the router as long as the file is the same.
func TestAnEditOfATableFilesRow(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	table := filepath.Join(t.TempDir(), "live.routes")
	writeFile(t, table, "A --> amqp://one.example\nB --> amqp://two.example\n")
	begin := func() *router { return startKept(t, dir, "--table", table) }
	r := begin()
	r.ctl(t, "delete", "B", "amqp://two.example")
	r.ctl(t, "set", "A", "amqp://one.example", "--note", "edited")
	r.ctl(t, "add", "C", "amqp://three.example")
	r.kill()
	r = begin()
	r.wantRows(t, "A amqp://one.example", "C amqp://three.example")
	if out := r.ctl(t, "list"); !strings.Contains(out, "edited") {
		t.Errorf("the note is gone:\n%s", out)
	}
	r.kill()
	writeFile(t, table, "A --> amqp://one.example\nD --> amqp://four.example\n")
	r = begin()
	if out := r.ctl(t, "list"); strings.Contains(out, "edited") {
		t.Errorf("the row of the new content is not as it says:\n%s", out)
	}
	r.wantRows(t, "A amqp://one.example", "D amqp://four.example", "C amqp://three.example") // a file's rows stand together
}
