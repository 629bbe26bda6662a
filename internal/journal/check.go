package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Report is what Check or Repair found.
type Report struct {
	Dir   string
	Files []FileReport
	OK    bool     // a router starts from these files, and none of them has a problem
	Held  bool     // a router has the directory: the files may have changed meanwhile
	PID   int      // of that router; 0: not known
	Done  []string // what Repair did, in order
}

// Values says what is wrong with values that the directory keeps, by their names: only who wrote one knows. nil, and no func for a name, is nothing.
type Values map[string]func(value []byte) error

// FileReport is one file of a directory.
type FileReport struct {
	Name        string
	Kind        string // "snapshot", "journal" or "value"
	Version     uint32 // of the format; 0: not to be told
	Bytes       int64
	Entries     int    // of a journal, up to the first bad frame
	First, Last uint64 // generations of these entries; of a snapshot, Last is what it is of
	Problem     string // what keeps it from being used, with the offset; "": nothing
	Note        string // what is odd and does no harm
}

// String is the report in lines for people.
func (r *Report) String() string {
	var b strings.Builder
	for _, f := range r.Files {
		fmt.Fprintf(&b, "%s: ", f.Name)
		if f.Version != 0 {
			fmt.Fprintf(&b, "version %d, ", f.Version)
		}
		fmt.Fprintf(&b, "%d bytes", f.Bytes)
		switch {
		case f.Kind == kindSnapshot && f.Last > 0:
			fmt.Fprintf(&b, ", of generation %d", f.Last)
		case f.Entries > 0:
			fmt.Fprintf(&b, ", %d entries, generations %d to %d", f.Entries, f.First, f.Last)
		case f.Kind == kindJournal:
			b.WriteString(", no entries")
		case f.Kind == kindValue:
			b.WriteString(", a value")
		}
		b.WriteByte('\n')
		if f.Problem != "" {
			fmt.Fprintf(&b, "  problem: %s\n", f.Problem)
		}
		if f.Note != "" {
			fmt.Fprintf(&b, "  note: %s\n", f.Note)
		}
	}
	for _, done := range r.Done {
		fmt.Fprintf(&b, "done: %s\n", done)
	}
	switch {
	case r.Held && r.PID != 0:
		fmt.Fprintf(&b, "%s is in use by a router (pid %d): its files may have changed meanwhile\n", r.Dir, r.PID)
	case r.Held:
		fmt.Fprintf(&b, "%s is in use by a router: its files may have changed meanwhile\n", r.Dir)
	}
	switch {
	case r.OK && len(r.Files) == 0:
		fmt.Fprintf(&b, "%s holds no state\n", r.Dir)
	case r.OK:
		fmt.Fprintf(&b, "%s is whole\n", r.Dir)
	default:
		fmt.Fprintf(&b, "%s is damaged\n", r.Dir)
	}
	return b.String()
}

// Check reads all files of dir and changes nothing. It needs no lock; where a router holds it, the report says so. What is damaged is in
// the report; an error says that a file cannot be read at all.
func Check(dir string, v Values) (*Report, error) { return check(system{}, dir, v) }

func check(d disk, dir string, v Values) (*Report, error) {
	var r *Report
	var err error
	// A router that runs may remove a file between the listing and the reading: then there is a newer snapshot.
	for range 3 {
		if r, err = survey(d, dir, v); !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", dir, err)
	}
	r.PID, r.Held = d.holder(join(dir, lockName))
	return r, nil
}

func survey(d disk, dir string, v Values) (*Report, error) {
	names, err := d.list(dir)
	if err != nil {
		return nil, err
	}
	h := holdingsOf(names)
	report := &Report{Dir: dir}
	for _, number := range h.snapshots {
		f, err := surveySnapshot(d, dir, number)
		if err != nil {
			return nil, err
		}
		report.Files = append(report.Files, f)
	}
	for i, number := range h.journals {
		f, err := surveyJournal(d, dir, number, i+1 == len(h.journals))
		if err != nil {
			return nil, err
		}
		report.Files = append(report.Files, f)
	}
	if err := report.judge(d, dir); err != nil {
		return nil, err
	}
	for _, name := range names {
		if value, ok := strings.CutPrefix(name, valuePrefix); ok && checkValueName(value) == nil {
			f, err := surveyValue(d, dir, value, v)
			if err != nil {
				return nil, err
			}
			report.Files = append(report.Files, f)
		}
	}
	report.OK = !slices.ContainsFunc(report.Files, func(f FileReport) bool { return f.Problem != "" })
	return report, nil
}

// judge reads the directory as a start does, and puts what that says to the file it concerns.
func (r *Report) judge(d disk, dir string) error {
	came, err := read(d, dir, ignoreSnapshot, ignoreEntry)
	var damage *DamageError
	var other *VersionError
	file, problem := "", ""
	switch {
	case errors.As(err, &damage):
		file, problem = damage.File, at(damage)
	case errors.As(err, &other):
		file, problem = other.File, fmt.Sprintf("this program reads version %d; use the program that wrote it", version)
	case err != nil:
		return err
	}
	if came != nil {
		for i := range r.Files {
			if _, number, _ := parseName(r.Files[i].Name); number < came.snapshot {
				r.Files[i].Note, r.Files[i].Problem = "not needed: there is a newer snapshot", ""
			}
		}
	}
	if problem == "" {
		return nil
	}
	for i := range r.Files {
		if r.Files[i].Name == file {
			r.Files[i].Problem, r.Files[i].Note = problem, ""
			return nil
		}
	}
	kind, _, _ := parseName(file)
	r.Files = append(r.Files, FileReport{Name: file, Kind: kind, Problem: problem})
	return nil
}

func at(e *DamageError) string { return fmt.Sprintf("offset %d: %s", e.Offset, e.Problem) }

func ignoreSnapshot(io.Reader, int64) error { return nil }
func ignoreEntry(uint64, []byte) error      { return nil }

func surveyValue(d disk, dir, value string, v Values) (FileReport, error) {
	f := FileReport{Name: valuePrefix + value, Kind: kindValue}
	b, err := load(d, join(dir, f.Name))
	if err != nil {
		return f, err
	}
	f.Bytes = int64(len(b))
	if is := v[value]; is != nil {
		if err := is(b); err != nil {
			f.Problem = err.Error()
		}
	}
	return f, nil
}

func surveySnapshot(d disk, dir string, number uint64) (FileReport, error) {
	f := FileReport{Name: fileName(kindSnapshot, number), Kind: kindSnapshot, Version: version}
	base, err := readSnapshot(d, dir, number, func(_ io.Reader, size int64) error {
		f.Bytes = headerSize + size + trailerSize
		return nil
	})
	f.Last = base
	var damage *DamageError
	var other *VersionError
	switch {
	case errors.As(err, &damage):
		f.Problem = at(damage)
	case errors.As(err, &other):
		f.Version, f.Problem = other.Version, fmt.Sprintf("this program reads version %d", version)
	case err != nil:
		return f, err
	default:
		return f, nil
	}
	open, err := d.open(join(dir, f.Name), os.O_RDONLY)
	if err != nil {
		return f, err
	}
	defer open.Close()
	f.Bytes, err = open.Size()
	return f, err
}

func surveyJournal(d disk, dir string, number uint64, newest bool) (FileReport, error) {
	f := FileReport{Name: fileName(kindJournal, number), Kind: kindJournal}
	b, err := load(d, join(dir, f.Name))
	if err != nil {
		return f, err
	}
	f.Bytes = int64(len(b))
	head := parseHeader(b, kindJournal, number)
	f.Version = head.version
	if head.problem != "" || head.torn || head.version != version {
		return f, nil // the judge says whether that matters
	}
	w := walk{b: b, number: number, last: head.base, entry: ignoreEntry}
	_ = w.run()
	f.Entries = w.entries
	if w.entries > 0 {
		f.First, f.Last = w.first, w.last
	}
	if rest := len(b) - w.end; rest > 0 && newest {
		f.Note = fmt.Sprintf("offset %d: the last %d bytes are a torn end (%s), which the next start cuts off", w.end, rest, tail(b, w.end))
	} else if rest > 0 {
		f.Note = fmt.Sprintf("offset %d: the last %d bytes are of a commit that failed", w.end, rest)
	}
	return f, nil
}
