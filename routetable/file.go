package routetable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Limits of table files.
const (
	MaxFileBytes = 512 << 20 // in either form
	MaxYAMLBytes = 16 << 20
	MaxYAMLRows  = 100_000
)

// File is a table as a file holds it, in either form.
type File struct {
	Match    MatchMode
	HasMatch bool // the file says a match mode
	Routes   []Route
	Expect   []Expect
	Warnings []Warning // of ParseFile

	compiled []*compiled // of Routes, as they were read
	later    *later      // while many rows are read; nil: each is compiled when it is read
	once     bool        // none of Routes is there twice, as they were read

	live     []Route // rows of live connections, written as comments
	comments comments

	text string     // of ParseFile: what was read
	yaml bool       // in the YAML form
	list bool       // it has a key that only the YAML form has
	doc  *yaml.Node // of it, nil where there is none
	old  *File      // of Keep: the file whose text is kept
}

// comments are the comments of a file, without "#" signs taken off: lines begin with "#", or are empty.
type comments struct {
	head   []string            // before everything
	tail   []string            // after everything
	routes []string            // before the routes, in YAML
	expect []string            // before the expect list
	before map[rowKey][]string // lines before a row
	after  map[rowKey]string   // behind a row, on its line
}

// rowKey tells rows apart as the table does.
type rowKey struct{ pattern, key string }

func keyOf(r *Route) rowKey { return rowKey{r.Pattern, key(r.Address)} }

// FileError says where in a file something is wrong.
type FileError struct {
	Name         string // as given to ParseFile
	Line, Column int    // from 1; the column counts characters
	Msg          string
}

func (e *FileError) Error() string {
	where := fmt.Sprintf("line %d, column %d: ", e.Line, e.Column)
	if e.Name != "" {
		where = e.Name + ": " + where
	}
	return where + e.Msg
}

// ReadFile reads the table file of that name, as ParseFile does. One that is over a limit is refused before it is read whole. What is wrong
// in the file is a *FileError, any other error is the system's, or says that it is no regular file: to open a pipe may take for ever.
func ReadFile(name string) (*File, error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	r, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		return nil, err
	}
	return readFile(name, r, info.Size(), MaxFileBytes)
}

// ReadTable is ReadFile for what is no file: it reads r to its end, or to a limit.
func ReadTable(name string, r io.Reader) (*File, error) { return readFile(name, r, 0, MaxFileBytes) }

// readFile reads a table of about size bytes, at most limit.
func readFile(name string, r io.Reader, size, limit int64) (*File, error) {
	tooLong := &FileError{Name: name, Line: 1, Column: 1, Msg: fmt.Sprintf("a table file is at most %d MiB", limit>>20)}
	if size > limit {
		return nil, tooLong
	}
	var b bytes.Buffer
	b.Grow(int(min(size, MaxYAMLBytes)) + bytes.MinRead)
	if _, err := b.ReadFrom(io.LimitReader(r, min(limit, MaxYAMLBytes)+1)); err != nil {
		return nil, err
	}
	if b.Len() > MaxYAMLBytes && looksYAML(strings.TrimPrefix(b.String(), bom)) {
		return nil, &FileError{Name: name, Line: 1, Column: 1, Msg: yamlTooLong}
	}
	if rest := size - int64(b.Len()); rest > 0 {
		b.Grow(int(rest) + bytes.MinRead)
	}
	if _, err := b.ReadFrom(io.LimitReader(r, limit+1-int64(b.Len()))); err != nil {
		return nil, err
	}
	if int64(b.Len()) > limit {
		return nil, tooLong
	}
	return ParseFile(name, b.Bytes())
}

// ParseFile reads a table file in either form, by its content: the arrow form where the first line that is neither blank, comment nor
// "match:" is a row, else YAML. It checks all that a load would refuse. The error is a *FileError with name in it.
func ParseFile(name string, data []byte) (*File, error) {
	if len(data) > MaxFileBytes {
		return nil, &FileError{Name: name, Line: 1, Column: 1, Msg: "a table file is at most 512 MiB"}
	}
	f := newFile(string(data))
	text := strings.TrimPrefix(f.text, bom)
	var err error
	if f.yaml = looksYAML(text); f.yaml {
		err = f.parseYAML(data[len(f.text)-len(text):])
	} else {
		if len(text) > manyFileBytes {
			f.later = new(later)
		}
		if err = f.parseArrow(text); f.later != nil && (!f.compileLater() || err != nil) {
			// Row by row, so that the first error is told, and where.
			f = newFile(f.text)
			err = f.parseArrow(text)
		}
	}
	if err == nil {
		err = f.check()
	}
	f.later = nil
	if err != nil {
		var fe *FileError
		if !errors.As(err, &fe) {
			fe = &FileError{Line: 1, Column: 1, Msg: err.Error()}
		}
		fe.Name = name
		return nil, fe
	}
	return f, nil
}

func newFile(text string) *File {
	return &File{text: text, comments: comments{before: map[rowKey][]string{}, after: map[rowKey]string{}}}
}

// looksYAML decides on the form.
func looksYAML(text string) bool {
	for text != "" {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		line = strings.Trim(line, " \t\r")
		switch {
		case line == "" || line[0] == '#':
			continue
		case line == "---" || line[0] == '%' && strings.HasPrefix(line, "%YAML") || line[0] == '{' && !strings.Contains(line, "-->"):
			return true
		case isMatchLine(line):
			continue
		}
		for _, key := range [...]string{"routes:", "expect:", "match:"} {
			if strings.HasPrefix(line, key) {
				rest := line[len(key):]
				return (rest == "" || rest[0] == ' ' || rest[0] == '\t') && !strings.Contains(line, "-->")
			}
		}
		if strings.Contains(line, "-->") {
			return false
		}
		colon := strings.IndexByte(line, ':')
		return line[0] == '-' || line[0] == '[' || line[0] == '{' || line[0] == '&' || line[0] == '!' ||
			colon > 0 && (colon == len(line)-1 || line[colon+1] == ' ')
	}
	return true
}

func isMatchLine(line string) bool {
	rest, ok := strings.CutPrefix(line, "match:")
	if !ok || rest == "" || rest[0] != ' ' && rest[0] != '\t' {
		return false
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest = strings.Trim(rest, " \t")
	return rest == "all" || rest == "first"
}

// fileRow is a row while it is read, with the place of its parts.
type fileRow struct {
	op                     Op
	seen                   map[string]bool
	pattern, address       place
	hasPattern, hasAddress bool
}

// place is a line and a column, from 1.
type place struct{ line, column int }

func (p place) errorf(format string, args ...any) error {
	return &FileError{Line: p.line, Column: p.column, Msg: fmt.Sprintf(format, args...)}
}

// column sets a column of the row.
func (r *fileRow) column(name, value string, at place) error {
	if r.seen[name] {
		return at.errorf("%s is there twice", name)
	}
	if r.seen == nil {
		r.seen = map[string]bool{}
	}
	r.seen[name] = true
	if err := SetColumn(&r.op, name, value); err != nil {
		return at.errorf("%s", err)
	}
	if name == "when" && value != "" {
		if _, err := CompileWhen(value); err != nil {
			return at.errorf("%s", err)
		}
	}
	return nil
}

// addRow appends a row that was read, begun at place at.
func (f *File) addRow(r *fileRow, at place) error {
	if !r.hasPattern {
		return at.errorf("the row has no pattern")
	}
	if !r.hasAddress {
		return at.errorf("the row has no address (a row that discards has the address null)")
	}
	route := r.op.Route
	route.line, route.column = at.line, at.column
	if f.later != nil {
		f.Routes = append(f.Routes, route)
		f.compileMore(laterRows)
		return nil
	}
	p, err := compilePattern(route.Pattern)
	if err != nil {
		return r.pattern.errorf("%s", err)
	}
	c, err := compileRow(&route, p)
	if err != nil {
		return r.address.errorf("%s", err)
	}
	if err := checkColumns(&route); err != nil {
		return at.errorf("%s", err)
	}
	f.Routes, f.compiled = append(f.Routes, route), append(f.compiled, c)
	return nil
}

// laterRows is how many rows are compiled together.
const laterRows = 1 << 12

// later is rows of a file that are compiled while others are read.
type later struct {
	begun int // rows
	parts [][]compiledRow
	bad   atomic.Bool
	wg    sync.WaitGroup
}

// compiledRow is what is made of a row of a file, and the hash that tells it apart from others.
type compiledRow struct {
	c    *compiled
	hash uint64
}

// compileMore begins with the rows that were read since it was called last, where they are least or more.
func (f *File) compileMore(least int) {
	l := f.later
	rows := f.Routes[l.begun:]
	if len(rows) < least {
		return
	}
	part := make([]compiledRow, len(rows))
	l.begun, l.parts = len(f.Routes), append(l.parts, part)
	l.wg.Go(func() {
		if !l.bad.Load() && !compileRows(part, rows) {
			l.bad.Store(true)
		}
	})
}

// compileRows reports whether there is nothing wrong with any of the rows.
func compileRows(part []compiledRow, rows []Route) (ok bool) {
	type plainRow struct {
		compiled
		pattern pattern
		lit     [1]string
	}
	var room []plainRow
	for i := range rows {
		r := &rows[i]
		if len(room) == 0 {
			room = make([]plainRow, min(len(rows)-i, 64)) // not more: who keeps one row keeps all of them
		}
		w := &room[0]
		room = room[1:]
		p := &w.pattern
		if len(r.Pattern) <= MaxTextBytes && !strings.HasPrefix(r.Pattern, globPrefix) && isPlain(r.Pattern) {
			w.lit[0] = r.Pattern
			*p = pattern{text: r.Pattern, lits: w.lit[:], isPlain: true}
		} else {
			var err error
			if p, err = compilePattern(r.Pattern); err != nil {
				return false
			}
		}
		if w.compile(r, p) != nil || checkColumns(r) != nil {
			return false
		}
		part[i] = compiledRow{&w.compiled, rowHash(r.Pattern, w.key)}
	}
	return true
}

// compileLater ends what compileMore began, and reports whether there is nothing wrong with any row.
func (f *File) compileLater() (ok bool) {
	l := f.later
	f.compileMore(1)
	l.wg.Wait()
	if l.bad.Load() {
		return false
	}
	f.compiled = make([]*compiled, 0, len(f.Routes))
	for _, part := range l.parts {
		for i := range part {
			f.compiled = append(f.compiled, part[i].c)
		}
	}
	return true
}

// manyFileBytes is the size from which the rows of a file are compiled together.
const manyFileBytes = 1 << 20

// manyFileRows is where a check puts only those rows into a table that can lead back to each other, and says less of what is probably not meant.
const manyFileRows = 10_000

// check loads the file into a table of its own, for what shows only in the whole.
func (f *File) check() error {
	t := New()
	e := newEdit(t, t.Snapshot())
	op := f.Op(LoadReplace)
	var err error
	if len(f.Routes) > manyFileRows {
		op.Routes, op.compiled, err = e.namesOf(f)
	}
	var rows []*Route
	if err == nil {
		rows, err = e.loadList(&op)
	}
	var s *Snapshot
	if err == nil {
		err = e.loadReplace(rows, OriginOperator)
	}
	if err == nil {
		s, _, err = e.finish()
	}
	if err != nil {
		var re *RefusedError
		at := place{1, 1}
		if errors.As(err, &re) {
			if n, _ := fmt.Sscanf(re.Where, "line %d, column %d", &at.line, &at.column); n == 2 {
				return at.errorf("%s", (&RefusedError{What: re.What, Hint: re.Hint}).Error())
			}
		}
		return at.errorf("%s", err)
	}
	f.Warnings = e.warn
	loose := f.looseRows()
	var mu sync.Mutex
	inParts(len(f.Routes), func(from, to int) {
		var list []Warning
		var r Route
		for i := from; i < to; i++ {
			r = f.Routes[i]
			r.c = f.compiled[i]
			list = s.warnRow(list, &r)
			if loose > manyLoose {
				list = warnLoose(list, &r)
			}
		}
		mu.Lock()
		f.Warnings = append(f.Warnings, list...)
		mu.Unlock()
	})
	sortWarnings(f.Warnings)
	return nil
}

// looseRows counts the rows whose pattern is looked at for every address.
func (f *File) looseRows() int {
	n := 0
	for _, c := range f.compiled {
		if !c.pattern.plain() && c.pattern.loose() {
			n++
		}
	}
	return n
}

// namesOf checks that no row of the file is there twice with other columns, and returns the rows that lead to names.
func (e *edit) namesOf(f *File) (names []Route, compiled []*compiled, err error) {
	seen := newSeen(len(f.Routes))
	f.once = true
	part := 0
	for i := range f.Routes {
		r := &f.Routes[i]
		var hash uint64
		if f.later == nil {
			hash = rowHash(r.Pattern, f.compiled[i].key)
		} else {
			if len(f.later.parts[0]) == part {
				f.later.parts, part = f.later.parts[1:], 0
			}
			hash = f.later.parts[0][part].hash
			part++
		}
		if o := seen.put(f.Routes, f.compiled, i, hash); o >= 0 {
			if err := e.twice(&f.Routes[o], r); err != nil {
				return nil, nil, err
			}
			f.once = false
			continue
		}
		if h := f.compiled[i].match[0].Hop; h != nil && h.IsName() {
			names, compiled = append(names, *r), append(compiled, f.compiled[i])
		}
	}
	return names, compiled, nil
}

// Keep takes over from old what a table does not hold: the expect list, and the text. Where f is written in the form that old was read
// in, lines of rows that are the same in both, comments and all else are written as they stood; a row that changed keeps its place, its
// comments, and what is the same of it as written. In another form, or where the text cannot be kept, the expect list and the comments of
// rows that are still there are. old must not change any more.
func (f *File) Keep(old *File) {
	f.Expect = old.Expect
	f.comments = old.comments
	if f.old = old.old; f.old == nil {
		f.old = old
	}
}

// InYAML reports whether the file was read in the YAML form. A file that has neither rows nor a list of them may be in either: otherwise.
func (f *File) InYAML(otherwise bool) bool {
	if f.yaml && !f.list {
		return otherwise
	}
	return f.yaml
}

// File is the table as a file: what a store writes. It holds the configured rows and the named learned ones; rows bound to a live
// connection only with all, and then as comments.
func (s *Snapshot) File(all bool) *File {
	f := &File{Match: s.match, HasMatch: true}
	s.records(func(rec record) bool {
		origin := rec.origin()
		switch {
		case origin == OriginSystem:
		case !Live(origin):
			f.Routes = append(f.Routes, plain(rec))
		case all:
			f.live = append(f.live, plain(rec))
		}
		return true
	})
	return f
}

// plain is the row of a record without what the table knows of it.
func plain(rec record) Route {
	var r Route
	append(record(nil), rec...).row(&r)
	r.ID, r.pos = 0, 0
	return r
}

// fromPrefix begins the comment that says whose a row is. It is made anew by each store.
const fromPrefix = "# from "

// trailing is the comment behind a row.
func (f *File) trailing(r *Route) string {
	if r.Origin != "" && r.Origin != OriginOperator {
		return clean(fromPrefix + r.Origin)
	}
	return f.comments.after[keyOf(r)]
}

// clean makes a comment one that either form can hold on one line.
func clean(comment string) string {
	return strings.Map(func(c rune) rune {
		if c == '\t' || c != utf8.RuneError && c != 0xfeff && unicode.IsPrint(c) {
			return c
		}
		return '?'
	}, comment)
}
