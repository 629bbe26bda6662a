package app

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/routetable"
)

// tableFiles holds the table to its table files: each file asserts the rows of its own origin, file:NAME. Start, SIGHUP and the
// watch go through it.
//
// A file is taken whole or not at all. A bad one leaves the rows that it gave before in force, and so does one that is gone.
type tableFiles struct {
	// Set at construction, never changed.
	table  *routetable.Table
	log    *slog.Logger
	timing timing

	renamed chan struct{} // to watch: the list of files is another one

	loading sync.Mutex                  // held while files are read and their rows applied; taken before the table's own lock
	files   atomic.Pointer[[]tableFile] // in the order of the configuration; a change makes a new one, under loading
}

// tableFile is what is known of one file.
type tableFile struct {
	name string // the last part of path; the origin of its rows is file:name
	path string

	// Of what is in force.
	hash     []byte    // nil: nothing was loaded
	loaded   time.Time // zero: before this process began
	rows     int       // in the table when it was loaded
	shadowed bool      // another configured origin had some of its rows, so it is loaded again with any other file
	match    *routetable.MatchMode

	// Of the last look at the file.
	seen   os.FileInfo // of the content that was read; nil: it was not
	seenAt time.Time
	err    error
	told   string // what the log was last told
	errors uint64 // how often it was refused

	// The table of this revision refused the file for what is in other rows: another one may take it.
	conflict   bool
	conflictAt uint64
}

func (f *tableFile) origin() string { return fileOrigin + f.name }

const fileOrigin = "file:"

func newTableFiles(t *routetable.Table, log *slog.Logger) *tableFiles {
	files := &tableFiles{table: t, log: log, timing: defaultTiming, renamed: make(chan struct{}, 1)}
	files.files.Store(new([]tableFile))
	return files
}

// list gives the files as they are now; it is shared.
func (t *tableFiles) list() []tableFile { return *t.files.Load() }

// candidate is a file with content to load.
type candidate struct {
	at   int // in the list
	hash []byte
	file *routetable.File
}

// use makes paths the table files. All of them change the table in one step, together with what files that are not named any more
// take away; where one is bad nothing changes.
func (t *tableFiles) use(paths []string) error {
	t.loading.Lock()
	defer t.loading.Unlock()
	old := t.list()
	next := make([]tableFile, 0, len(paths))
	for i, path := range paths {
		f := tableFile{name: filepath.Base(path)}
		if slices.ContainsFunc(next, func(o tableFile) bool { return o.name == f.name }) {
			return &namedError{i, fmt.Errorf("%s: two table files have this name", f.name)}
		}
		if i := slices.IndexFunc(old, func(o tableFile) bool { return o.name == f.name }); i >= 0 {
			f = old[i]
		}
		f.path = path
		next = append(next, f)
	}
	load, _, err := t.read(next, func(*tableFile) bool { return true })
	if err == nil {
		err = t.apply(next, load)
	}
	if err != nil {
		for _, c := range load {
			next[c.at].seen = nil // it may be loaded without the others
		}
		if samePaths(old, next) {
			t.files.Store(&next) // what is wrong with them
		}
		return err
	}
	t.files.Store(&next)
	select {
	case t.renamed <- struct{}{}:
	default:
	}
	return nil
}

// namedError is what is wrong with a file as the configuration names it, and not with what it says.
type namedError struct {
	at  int // in the list of files
	err error
}

func (e *namedError) Error() string { return e.err.Error() }
func (e *namedError) Unwrap() error { return e.err }

// ofTable adds where the configuration names a table file that cannot be had.
func (c *Config) ofTable(err error) error {
	var n *namedError
	if !errors.As(err, &n) {
		return err
	}
	path := fmt.Sprintf("tables[%d]", n.at)
	if _, ok := c.where[path]; !ok && c.flags["tables"] == "" {
		return err
	}
	return c.at(path, err)
}

func samePaths(a, b []tableFile) bool {
	return slices.EqualFunc(a, b, func(x, y tableFile) bool { return x.path == y.path })
}

// look reads the files that named tells of, and those that look another than before, and loads what changed: each file by itself
// where they cannot be loaded together. unsettled reports that a file changed while it was read: look again.
func (t *tableFiles) look(named func(*tableFile) bool) (unsettled bool) {
	t.loading.Lock()
	defer t.loading.Unlock()
	next := slices.Clone(t.list())
	load, unsettled, _ := t.read(next, func(f *tableFile) bool {
		return named(f) || f.looksChanged() || f.conflict && f.conflictAt != t.table.Revision()
	})
	if err := t.apply(next, load); err != nil {
		for i, c := range load {
			if len(load) > 1 {
				err = t.apply(next, load[i:i+1])
			}
			if err != nil {
				f := &next[c.at]
				t.refused(f, c.hash, err)
				f.conflict, f.conflictAt = true, t.table.Revision()
			}
		}
	}
	t.files.Store(&next)
	return unsettled
}

// racy is how long after its modification time a file may still change without another time. Two seconds is the step of the
// coarsest file system.
const racy = 2 * time.Second

// looksChanged compares a file with the one that was read last, without reading it.
func (f *tableFile) looksChanged() bool {
	now, err := os.Stat(f.path)
	if err != nil || f.seen == nil {
		return f.seen != nil || f.err == nil || !errors.Is(err, fs.ErrNotExist)
	}
	return !os.SameFile(now, f.seen) || now.Size() != f.seen.Size() || !now.ModTime().Equal(f.seen.ModTime()) ||
		f.seenAt.Sub(f.seen.ModTime()).Abs() < racy
}

// read reads those of the files that are wanted and gives those whose content is not in force. The error is that of the first bad
// file; all of them are noted.
func (t *tableFiles) read(files []tableFile, wanted func(*tableFile) bool) (load []candidate, unsettled bool, first error) {
	for i := range files {
		f := &files[i]
		if !wanted(f) {
			continue
		}
		c, err := readContent(f.path)
		if err != nil {
			err = &namedError{i, err}
		}
		if err == nil && !c.settled && f.hash != nil {
			f.seen, unsettled = nil, true
			continue
		}
		f.seen, f.seenAt = c.info, c.at
		var file *routetable.File
		switch {
		case err != nil:
			if f.hash != nil && errors.Is(err, fs.ErrNotExist) {
				err = &namedError{i, fmt.Errorf("%s: the file is gone", f.path)}
			}
		case t.inForce(f, c.hash):
			t.good(f)
			continue
		case len(c.text) == 0 && f.rows > 0:
			err = fmt.Errorf("%s: the file is empty (a table without rows has a line: routes: [])", f.path)
		default:
			file, err = routetable.ParseFile(f.path, c.text)
		}
		if err != nil {
			t.refused(f, c.hash, err)
			if first == nil {
				first = err
			}
			continue
		}
		load = append(load, candidate{at: i, hash: c.hash, file: file})
	}
	return load, unsettled, first
}

// inForce reports whether the rows of this content are in the table, or were when the state was kept.
func (t *tableFiles) inForce(f *tableFile, hash []byte) bool {
	if f.hash != nil {
		return bytes.Equal(f.hash, hash)
	}
	if kept, ok := t.table.Snapshot().Mark(f.origin()); !ok || kept != hex.EncodeToString(hash) {
		return false
	}
	f.hash = hash
	f.rows = countRows(t.table.Snapshot())[f.origin()]
	return true
}

// apply puts the rows of the candidates in place of those that their files gave before, and takes away the rows of files that are
// not in the list: one change of the table.
func (t *tableFiles) apply(files []tableFile, load []candidate) error {
	before := countRows(t.table.Snapshot())
	var gone []string
	for origin := range before {
		if !slices.ContainsFunc(files, func(f tableFile) bool { return f.origin() == origin }) {
			gone = append(gone, origin)
		}
	}
	for _, f := range t.list() {
		if !slices.ContainsFunc(files, func(o tableFile) bool { return o.name == f.name }) && !slices.Contains(gone, f.origin()) {
			gone = append(gone, f.origin())
		}
	}
	slices.Sort(gone)
	if len(load) == 0 && len(gone) == 0 {
		return nil
	}
	load = t.withShadowed(files, load)

	var ops []routetable.Op
	for _, origin := range gone {
		ops = append(ops, routetable.Op{Verb: routetable.VerbWithdraw, Origin: origin})
	}
	passes := min(len(load), 2) // a row that goes from one file to another is free for it in the second pass
	for range passes {
		for _, c := range load {
			op := c.file.Op(routetable.LoadReplace)
			op.Origin, op.SetMatch = files[c.at].origin(), false
			ops = append(ops, op)
		}
	}
	ops = append(ops, t.matchOp(files, load)...)
	change, err := t.table.ApplyAs(author(files, load, gone), ops...)
	if err != nil {
		who := names(files, load)
		switch len(load) {
		case 0:
			who = "withdraw " + strings.Join(gone, " ")
		case 1:
			who = files[load[0].at].path
		}
		if of, ok := errors.AsType[*routetable.OpError](err); ok {
			if i := of.Op - len(gone); i >= 0 && i < passes*len(load) {
				who, err = files[load[i%len(load)].at].path, of.Err
			}
		}
		return fmt.Errorf("%s: %w", who, err)
	}
	t.log.Info("table files loaded", "files", names(files, load), "added", len(change.Added), "removed", len(change.Removed),
		"updated", len(change.Updated), "withdrawn", strings.Join(gone, " "), "revision", change.Revision)

	now := countRows(t.table.Snapshot())
	for _, c := range load {
		f := &files[c.at]
		f.hash, f.loaded, f.rows, f.match = c.hash, time.Now(), now[f.origin()], matchOf(c.file)
		if f.shadowed = f.rows < len(c.file.Routes); f.shadowed {
			t.log.Warn("a table file has rows that are in the table already, of another origin or by another line of it: those stay as they are",
				"file", f.path, "rows", len(c.file.Routes), "own", f.rows)
		}
		t.good(f)
	}
	return nil
}

// withShadowed adds the files some of whose rows another one had: it may not have them any more.
func (t *tableFiles) withShadowed(files []tableFile, load []candidate) []candidate {
	for i := range files {
		f := &files[i]
		if !f.shadowed || slices.ContainsFunc(load, func(c candidate) bool { return c.at == i }) {
			continue
		}
		c, err := readContent(f.path)
		if err != nil || !bytes.Equal(c.hash, f.hash) {
			continue // it has a look of its own
		}
		if file, err := routetable.ParseFile(f.path, c.text); err == nil {
			load = append(load, candidate{at: i, hash: c.hash, file: file})
		}
	}
	slices.SortFunc(load, func(a, b candidate) int { return a.at - b.at })
	return load
}

// matchOp sets the match mode to that of the last file that says one, where that file is loaded or another one decided before.
// Where no file says one any more it is all.
func (t *tableFiles) matchOp(files []tableFile, load []candidate) []routetable.Op {
	after := slices.Clone(files)
	for _, c := range load {
		after[c.at].match = matchOf(c.file)
	}
	was, _ := decidesMatch(t.list())
	is, mode := decidesMatch(after)
	if is == was && !slices.ContainsFunc(load, func(c candidate) bool { return files[c.at].name == is }) {
		return nil
	}
	return []routetable.Op{{Verb: routetable.VerbMatch, Match: mode}}
}

func decidesMatch(files []tableFile) (name string, mode routetable.MatchMode) {
	for _, f := range files {
		if f.match != nil {
			name, mode = f.name, *f.match
		}
	}
	return name, mode
}

func matchOf(f *routetable.File) *routetable.MatchMode {
	if !f.HasMatch {
		return nil
	}
	return &f.Match
}

// author is what the history keeps of a load.
func author(files []tableFile, load []candidate, gone []string) routetable.Author {
	a := routetable.Author{Marks: map[string]string{}}
	for _, origin := range gone {
		a.Marks[origin] = ""
	}
	if len(load) == 0 {
		a.From, a.Command = strings.Join(gone, ", "), "withdraw "+strings.Join(gone, " ")
		return a
	}
	from := make([]string, len(load))
	for i, c := range load {
		from[i] = files[c.at].origin()
		a.Marks[from[i]] = hex.EncodeToString(c.hash)
	}
	a.From, a.Command = strings.Join(from, ", "), "load "+names(files, load)
	return a
}

func names(files []tableFile, load []candidate) string {
	list := make([]string, len(load))
	for i, c := range load {
		list[i] = files[c.at].name
	}
	return strings.Join(list, " ")
}

// countRows counts the rows of each file's origin.
func countRows(s *routetable.Snapshot) map[string]int {
	n := s.Origins()
	maps.DeleteFunc(n, func(origin string, _ int) bool { return !strings.HasPrefix(origin, fileOrigin) })
	return n
}

// refused notes what is wrong with a file, and tells the log once for each content. A file that gave no rows yet is for the caller to
// tell: it is named for the first time.
func (t *tableFiles) refused(f *tableFile, hash []byte, err error) {
	f.err, f.conflict = err, false
	if told := fmt.Sprintf("%x %s", hash, err); f.told != told {
		f.told = told
		f.errors++
		if f.hash == nil {
			return
		}
		t.log.Error("table file refused: the rows that it gave before stay in force", "file", f.name, "error", err)
	}
}

// good notes that the content of a file is in force.
func (t *tableFiles) good(f *tableFile) {
	if f.err != nil {
		t.log.Info("table file is good again", "file", f.name)
	}
	f.err, f.told, f.conflict = nil, "", false
}
