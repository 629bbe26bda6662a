package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/house/journal"
	"github.com/fingerpost/fingerpost/internal/house/leaks"
	"github.com/fingerpost/fingerpost/routetable"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// desk is a directory of table files, and what watches them.
type desk struct {
	*testing.T
	dir   string
	table *routetable.Table
	files *tableFiles
	log   *journal.Journal
}

func newDesk(t *testing.T) *desk {
	d := &desk{T: t, dir: t.TempDir(), table: routetable.New(), log: &journal.Journal{}}
	d.files = newTableFiles(d.table, slog.New(slog.NewTextHandler(d.log, nil)))
	// Without looks of its own, so that a sign that is not seen fails the test.
	d.files.timing = timing{quiet: 20 * time.Millisecond, most: 200 * time.Millisecond, poll: time.Hour}
	return d
}

func (d *desk) path(name string) string { return filepath.Join(d.dir, name) }

func (d *desk) write(name, text string) string {
	d.Helper()
	if err := os.WriteFile(d.path(name), []byte(text), 0o600); err != nil {
		d.Fatal(err)
	}
	return d.path(name)
}

// replace renames a new file over one.
func (d *desk) replace(name, text string) {
	d.Helper()
	if err := os.Rename(d.write(name+".new", text), d.path(name)); err != nil {
		d.Fatal(err)
	}
}

func (d *desk) use(names ...string) error {
	paths := make([]string, len(names))
	for i, n := range names {
		paths[i] = d.path(n)
	}
	return d.files.use(paths)
}

// watch begins to watch, and waits until it does.
func (d *desk) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.files.watch(ctx) })
	d.Cleanup(func() { cancel(); running.Wait() })
}

func (d *desk) rows() string {
	var rows []string
	for r := range d.table.Snapshot().Routes() {
		rows = append(rows, r.Pattern+">"+r.Address)
	}
	return strings.Join(rows, " ")
}

// eventually waits for a state; what it waits for happens on other goroutines and in the file system.
func (d *desk) eventually(what string, holds func() bool) {
	d.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(20 * time.Second); !holds(); {
		select {
		case <-tick.C:
		case <-deadline:
			d.Fatalf("never: %s\nrows: %s\nfiles: %+v\n%s", what, d.rows(), d.files.list(), d.log)
		}
	}
}

func (d *desk) wantRows(want string) {
	d.Helper()
	d.eventually("rows "+want, func() bool { return d.rows() == want })
}

// wantError waits for what is wrong with the only file.
func (d *desk) wantError(want string) {
	d.Helper()
	d.eventually("error "+want, func() bool {
		err := d.files.list()[0].err
		return want == "" && err == nil || want != "" && err != nil && strings.Contains(err.Error(), want)
	})
}

func TestAFileThatChangesIsLoaded(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(d *desk, text string)
	}{
		{"written in place", func(d *desk, text string) { d.write("a.routes", text) }},
		{"a new file is renamed over it", func(d *desk, text string) { d.replace("a.routes", text) }},
		{"removed and made again", func(d *desk, text string) {
			os.Remove(d.path("a.routes"))
			d.write("a.routes", text)
		}},
		{"moved away and made again", func(d *desk, text string) {
			os.Rename(d.path("a.routes"), d.path("a.routes~"))
			d.write("a.routes", text)
		}},
		{"a symbolic link to another file", func(d *desk, text string) {
			os.Symlink(d.write("elsewhere", text), d.path("link"))
			os.Rename(d.path("link"), d.path("a.routes"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t)
			d.write("a.routes", "A --> amqp://one\nB --> amqp://two\n")
			if err := d.use("a.routes"); err != nil {
				t.Fatal(err)
			}
			b := slices.Collect(d.table.Snapshot().Routes())[1].ID
			d.watch()
			c.change(d, "B --> amqp://two\nC --> amqp://three\n")
			d.wantRows("B>amqp://two C>amqp://three")
			if got := slices.Collect(d.table.Snapshot().Routes())[0].ID; got != b {
				t.Errorf("the row that stays has id %d, want %d", got, b)
			}
			c.change(d, "D --> null\n") // a second time
			d.wantRows("D>null")
			d.eventually("one row of the file", func() bool { return d.files.list()[0].rows == 1 })
			f := d.files.list()[0]
			if f.rows != 1 || f.err != nil || f.loaded.IsZero() || len(f.hash) != 32 {
				t.Errorf("got %+v", f)
			}
			for r := range d.table.Snapshot().Routes() {
				if r.Origin != "file:a.routes" {
					t.Errorf("got origin %s", r.Origin)
				}
			}
		})
	}
}

// A volume of a config map: the file is a link into ..data, which is a link to the present version's directory and is swapped whole.
func TestAConfigMapIsSwapped(t *testing.T) {
	d := newDesk(t)
	publish := func(version, text string) {
		if err := os.Mkdir(d.path(version), 0o700); err != nil {
			t.Fatal(err)
		}
		d.write(version+"/a.yaml", text)
		if err := os.Symlink(version, d.path("..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(d.path("..data_tmp"), d.path("..data")); err != nil {
			t.Fatal(err)
		}
	}
	publish("..1", "routes: [{pattern: A, address: amqp://one}]")
	if err := os.Symlink("..data/a.yaml", d.path("a.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := d.use("a.yaml"); err != nil {
		t.Fatal(err)
	}
	d.watch()
	for i, version := range []string{"..2", "..3", "..4"} {
		publish(version, fmt.Sprintf("routes: [{pattern: A, address: amqp://version-%d}]", i))
		os.RemoveAll(d.path(fmt.Sprintf("..%d", i+1)))
		d.wantRows(fmt.Sprintf("A>amqp://version-%d", i))
	}
	d.write("..4/a.yaml", "routes: [{pattern: A, address: amqp://in-place}]")
	d.wantRows("A>amqp://in-place")
}

func TestABadFileLeavesTheRowsOfBefore(t *testing.T) {
	d := newDesk(t)
	d.write("a.yaml", "routes: [{pattern: A, address: amqp://one}]")
	if err := d.use("a.yaml"); err != nil {
		t.Fatal(err)
	}
	d.watch()
	const bad = "routes:\n  - {pattern: A, address: amqp://two}\n  - {pattern: B, adress: amqp://three}\n"
	d.replace("a.yaml", bad)
	d.wantError("a.yaml: line 3, column 18")
	if d.rows() != "A>amqp://one" {
		t.Errorf("got rows %s", d.rows())
	}
	// The same content again is not told again.
	d.replace("a.yaml", bad)
	d.files.look(func(*tableFile) bool { return true })
	d.replace("a.yaml", "routes: [")
	d.wantError("line 1")
	d.replace("a.yaml", "")
	d.wantError("the file is empty")
	d.replace("a.yaml", "routes: [{pattern: A, address: amqp://four}]")
	d.wantRows("A>amqp://four")
	d.wantError("")
	if n := strings.Count(d.log.String(), "line 3, column 18"); n != 1 {
		t.Errorf("told %d times\n%s", n, d.log)
	}
	if n := d.files.list()[0].errors; n != 3 {
		t.Errorf("got %d refusals, want 3", n)
	}
	if !strings.Contains(d.log.String(), "good again") {
		t.Errorf("the log does not tell of its end:\n%s", d.log)
	}
}

func TestAFileThatIsGoneLeavesItsRows(t *testing.T) {
	d := newDesk(t)
	const text = "A --> amqp://one\n"
	d.write("a.routes", text)
	if err := d.use("a.routes"); err != nil {
		t.Fatal(err)
	}
	d.watch()
	os.Remove(d.path("a.routes"))
	d.wantError("a.routes: the file is gone")
	if d.rows() != "A>amqp://one" {
		t.Errorf("got rows %s", d.rows())
	}
	revision := d.table.Revision()
	d.write("a.routes", text)
	d.wantError("")
	if d.table.Revision() != revision {
		t.Error("the same content was loaded again")
	}
	os.Remove(d.path("a.routes"))
	d.wantError("gone")
	os.Mkdir(d.path("a.routes"), 0o700)
	d.wantError("not a regular file")
	os.Remove(d.path("a.routes"))
	d.replace("a.routes", "B --> amqp://two\n")
	d.wantRows("B>amqp://two")
}

func TestTheDirectoryIsMadeAnew(t *testing.T) {
	d := newDesk(t)
	d.files.timing.poll = 20 * time.Millisecond
	d.dir = d.path("tables")
	os.Mkdir(d.dir, 0o700)
	d.write("a.routes", "A --> amqp://one\n")
	if err := d.use("a.routes"); err != nil {
		t.Fatal(err)
	}
	d.watch()
	os.RemoveAll(d.dir)
	d.wantError("gone")
	os.Mkdir(d.dir, 0o700)
	for i := range 3 {
		d.replace("a.routes", fmt.Sprintf("A --> amqp://again-%d\n", i))
		d.wantRows(fmt.Sprintf("A>amqp://again-%d", i))
	}
}

func TestManyFastWritesAreFewLoads(t *testing.T) {
	d := newDesk(t)
	d.write("a.routes", "A --> amqp://start\n")
	if err := d.use("a.routes"); err != nil {
		t.Fatal(err)
	}
	d.watch()
	d.replace("a.routes", "A --> amqp://seen\n") // it watches when this is seen
	d.wantRows("A>amqp://seen")
	began, before := time.Now(), d.table.Revision()
	const writes = 300
	for i := range writes {
		d.replace("a.routes", fmt.Sprintf("A --> amqp://n%d\n", i))
	}
	d.wantRows(fmt.Sprintf("A>amqp://n%d", writes-1))
	most := uint64(time.Since(began)/d.files.timing.quiet) + 2
	if n := d.table.Revision() - before; n > most || n > writes/3 {
		t.Errorf("%d loads in %v", n, time.Since(began))
	}
}

func TestWithoutSignsFilesAreLookedAt(t *testing.T) {
	d := newDesk(t)
	d.write("a.routes", "A --> amqp://one\n")
	if err := d.use("a.routes"); err != nil {
		t.Fatal(err)
	}
	none := func(*tableFile) bool { return false }
	d.write("a.routes", "A --> amqp://two\n") // the same size, perhaps the same time
	if d.files.look(none); d.rows() != "A>amqp://two" {
		t.Errorf("got %s", d.rows())
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(d.path("a.routes"), old, old); err != nil {
		t.Fatal(err)
	}
	d.files.look(none)
	if f := d.files.list()[0]; f.looksChanged() {
		t.Error("a file that is as it was looks changed")
	}
}

func TestConfigurationIsLoadedWholeOrNotAtAll(t *testing.T) {
	d := newDesk(t)
	d.write("a.routes", "A --> amqp://one\n")
	d.write("b.routes", "B --> amqp://two\n")
	if err := d.use("a.routes", "b.routes"); err != nil {
		t.Fatal(err)
	}
	d.write("a.routes", "A --> amqp://changed\n")
	d.write("c.routes", "C -> nonsense\n")
	if err := d.use("a.routes", "c.routes"); err == nil || !strings.Contains(err.Error(), "c.routes: line 1") {
		t.Errorf("got %v", err)
	}
	if want := "A>amqp://one B>amqp://two"; d.rows() != want || len(d.files.list()) != 2 {
		t.Errorf("got %s", d.rows())
	}
	if err := d.use("a.routes", "d.routes"); err == nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := d.use("a.routes", "../"+filepath.Base(d.dir)+"/a.routes"); err == nil || !strings.Contains(err.Error(), "two table files") {
		t.Errorf("got %v", err)
	}
	// The change of a is not lost, and b goes with its name.
	if err := d.use("a.routes"); err != nil {
		t.Fatal(err)
	}
	if want := "A>amqp://changed"; d.rows() != want {
		t.Errorf("got %s", d.rows())
	}
	if err := d.use(); err != nil || d.rows() != "" {
		t.Errorf("got %v, %s", err, d.rows())
	}
}

func TestARowMovesBetweenFiles(t *testing.T) {
	for _, order := range [][]string{{"a.routes", "b.routes"}, {"b.routes", "a.routes"}} {
		d := newDesk(t)
		d.write("a.routes", "A --> amqp://one\nX --> amqp://x\n")
		d.write("b.routes", "B --> amqp://two\n")
		if err := d.use(order...); err != nil {
			t.Fatal(err)
		}
		d.write("b.routes", "B --> amqp://two\nX --> amqp://x\n")
		d.files.look(func(f *tableFile) bool { return f.name == "b.routes" })
		d.write("a.routes", "A --> amqp://one\n")
		d.files.look(func(f *tableFile) bool { return f.name == "a.routes" })
		if n := len(d.table.Lookup("X")); n != 1 {
			t.Errorf("%v, one after the other: X has %d groups: %s", order, n, d.rows())
		}
		d.write("a.routes", "A --> amqp://one\nX --> amqp://x\n")
		d.write("b.routes", "B --> amqp://two\n")
		d.files.look(func(*tableFile) bool { return true })
		if n := len(d.table.Lookup("X")); n != 1 {
			t.Errorf("%v, together: X has %d groups: %s", order, n, d.rows())
		}
	}
}

func TestAConflictIsTriedAgainWhenTheTableChanges(t *testing.T) {
	d := newDesk(t)
	d.write("a.routes", "A --> amqp://one\n")
	d.write("b.routes", "B --> route:A\n")
	if err := d.use("a.routes", "b.routes"); err != nil {
		t.Fatal(err)
	}
	d.write("a.routes", "A --> route:B\n")
	all := func(*tableFile) bool { return true }
	if d.files.look(all); d.files.list()[0].err == nil || d.rows() != "A>amqp://one B>route:A" {
		t.Fatalf("a cycle was loaded: %s", d.rows())
	}
	if err, want := d.files.list()[0].err.Error(), d.path("a.routes")+": line 1, column 1: address: the names lead back"; !strings.HasPrefix(err, want) {
		t.Errorf("got %s, want %s", err, want)
	}
	d.write("b.routes", "B --> amqp://two\n")
	d.files.look(func(f *tableFile) bool { return f.name == "b.routes" })
	d.files.look(func(*tableFile) bool { return false })
	if d.files.list()[0].err != nil || d.rows() != "A>route:B B>amqp://two" {
		t.Errorf("got %s, %v", d.rows(), d.files.list()[0].err)
	}
}

func TestTheMatchModeIsThatOfTheFiles(t *testing.T) {
	d := newDesk(t)
	all := func(*tableFile) bool { return true }
	want := func(step string, want routetable.MatchMode) {
		t.Helper()
		if got := d.table.Snapshot().Match(); got != want {
			t.Errorf("%s: got match %s, want %s", step, got, want)
		}
	}
	d.write("a.routes", "match: first\nA --> amqp://one\n")
	d.write("b.routes", "B --> amqp://two\n")
	if err := d.use("a.routes", "b.routes"); err != nil {
		t.Fatal(err)
	}
	want("one file says first", routetable.MatchFirst)
	d.table.SetMatch(routetable.MatchAll)
	d.write("b.routes", "B --> amqp://three\n")
	d.files.look(all)
	want("an edit stays when another file changes", routetable.MatchAll)
	d.write("a.routes", "match: first\nA --> amqp://two\n")
	d.files.look(all)
	want("the file that says it changes", routetable.MatchFirst)
	d.write("a.routes", "A --> amqp://two\n")
	d.files.look(all)
	want("no file says one", routetable.MatchAll)
}

func TestARestartDoesNotUndoEdits(t *testing.T) {
	d := newDesk(t)
	marked := func() bool { _, ok := d.table.Snapshot().Mark("file:a.routes"); return ok }
	d.write("a.routes", "A --> amqp://one\nB --> amqp://two\n")
	if err := d.use("a.routes"); err != nil {
		t.Fatal(err)
	}
	if !marked() {
		t.Fatal("the content is not remembered")
	}
	if _, err := d.table.Delete("B", "amqp://two"); err != nil {
		t.Fatal(err)
	}
	again := func() {
		d.files = newTableFiles(d.table, slog.New(slog.DiscardHandler))
		if err := d.use("a.routes"); err != nil {
			t.Fatal(err)
		}
	}
	again()
	if f := d.files.list()[0]; d.rows() != "A>amqp://one" || f.rows != 1 || !f.loaded.IsZero() || f.err != nil {
		t.Errorf("got %s, %+v", d.rows(), f)
	}
	d.write("a.routes", "C --> amqp://three\n")
	again()
	if d.rows() != "C>amqp://three" {
		t.Errorf("got %s", d.rows())
	}
	if err := d.use(); err != nil || d.rows() != "" || marked() {
		t.Errorf("a file that is not named any more: %v, %s", err, d.rows())
	}
	again()
	if d.rows() != "C>amqp://three" {
		t.Errorf("got %s", d.rows())
	}
	// Its name leaves the configuration while the router is down.
	d.files = newTableFiles(d.table, slog.New(slog.DiscardHandler))
	if err := d.use(); err != nil || d.rows() != "" || marked() {
		t.Errorf("got %v, %s", err, d.rows())
	}
}

func TestLargeFilesAreRefusedBySize(t *testing.T) {
	sparse := func(d *desk, name, head string, size int64) string {
		d.write(name, head)
		if err := os.Truncate(d.path(name), size); err != nil {
			t.Fatal(err)
		}
		return d.path(name)
	}
	d := newDesk(t)
	for _, c := range []struct{ path, want string }{
		{sparse(d, "huge.routes", "A --> amqp://one\n", 1<<30), "a table file is at most 512 MiB"},
		{sparse(d, "big.yaml", "routes:\n", 17<<20), "a YAML table is at most 16 MiB (use the arrow form)"},
		{d.dir, "not a regular file"},
		{d.path("none"), "no such file or directory"},
	} {
		if _, err := readContent(c.path); err == nil || !strings.HasPrefix(err.Error(), c.path+": ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.path, err, c.want)
		}
	}
	if c, err := readContent(sparse(d, "big.routes", "A --> amqp://one\n", 17<<20)); err != nil || len(c.text) != 17<<20 {
		t.Errorf("arrow form of 17 MiB: %v", err)
	}
}

func TestFileEntities(t *testing.T) {
	d := newDesk(t)
	d.write("a.routes", "A --> amqp://one\n")
	if err := d.use("a.routes"); err != nil {
		t.Fatal(err)
	}
	e := fileEntity{d.files}
	for _, x := range e.List() {
		for _, name := range e.Attributes() {
			if _, ok := x[name]; !ok {
				t.Errorf("no %s", name)
			}
		}
		if x["name"] != "a.routes" || x["identity"] != "file/a.routes" || x["rows"] != uint64(1) || x["error"] != "" || len(x["hash"].(string)) != 64 {
			t.Errorf("got %v", x)
		}
		if _, err := time.Parse(time.RFC3339, x["loaded"].(string)); err != nil {
			t.Error(err)
		}
	}
	os.Remove(d.path("a.routes"))
	d.files.look(func(*tableFile) bool { return true })
	if x := e.List()[0]; x["error"] != d.path("a.routes")+": the file is gone" {
		t.Errorf("got %v", x)
	}
	if m := d.files.metrics(); len(m) != 1 || m[0].Good || m[0].Refused != 1 || m[0].Rows != 1 {
		t.Errorf("got %+v", m)
	}
}

func TestNamesThatLeadBackBetweenTwoFilesAreToldOfOne(t *testing.T) {
	d := newDesk(t)
	d.write("a.routes", "x --> h\nA --> route:B\n")
	d.write("b.routes", "y --> h\nz --> h\nB --> route:A\n")
	d.write("c.routes", "C --> h\n")
	err := d.use("a.routes", "b.routes", "c.routes")
	want := d.path("b.routes") + ": line 3, column 1: address: the names lead back: "
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestWhatCannotBeKeptIsNamed(t *testing.T) {
	d := newDesk(t)
	state := d.path("state")
	table, err := routetable.Open(state, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	d.files.table = table
	d.write("a.routes", "A --> amqp://a\n")
	if err := d.use("a.routes"); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(state); err != nil {
		t.Fatal(err)
	}
	d.write("b.routes", "B --> amqp://b\n")
	for _, c := range []struct {
		names []string
		want  string
	}{
		{nil, "withdraw file:a.routes: the change could not be kept"},
		{[]string{"b.routes"}, d.path("b.routes") + ": the change could not be kept"},
	} {
		if err := d.use(c.names...); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %s", c.names, err, c.want)
		}
	}
}

func TestRowsThatAFileDoesNotGetAreLogged(t *testing.T) {
	d := newDesk(t)
	d.table.Add("A", "amqp://a")
	d.write("a.routes", "A --> amqp://a ; note=theirs\nB --> amqp://b\n")
	if err := d.use("a.routes"); err != nil {
		t.Fatal(err)
	}
	if want := "level=WARN"; !strings.Contains(d.log.String(), want) || !strings.Contains(d.log.String(), "rows=2 own=1") {
		t.Errorf("got %s", d.log)
	}
}
