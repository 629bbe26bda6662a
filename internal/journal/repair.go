package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
)

// Repair makes dir such that a router starts from it, with as much as can be trusted: a damaged journal ends at the damage, and journals behind it,
// which cannot follow, are put aside. Every byte removed is kept beside it in a file NAME.damaged-N, and Report.Done says what that is. A damaged snapshot is
// put aside where the older one is there with all journals behind it, and so is a bad value; else the repair is refused with the *DamageError, and nothing is changed. So
// is a file of another format, and a directory in use (ErrInUse).
func Repair(dir string, v Values) (*Report, error) { return repair(system{}, dir, v) }

func repair(d disk, dir string, v Values) (*Report, error) {
	lock, err := take(d, dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	m := mender{disk: d, dir: dir}
	if err := m.mend(); err != nil {
		return nil, fmt.Errorf("repair %s: %w", dir, err)
	}
	report, err := survey(d, dir, v)
	if err == nil {
		err = m.values(report)
	}
	if err != nil {
		return nil, fmt.Errorf("repair %s: %w", dir, err)
	}
	report.Done = m.done
	return report, nil
}

type mender struct {
	disk disk
	dir  string
	done []string
}

// mend takes away one damage after the other. Each leaves fewer journals or a sound one more, so it ends.
func (m *mender) mend() error {
	for {
		r, err := read(m.disk, m.dir, ignoreSnapshot, ignoreEntry)
		var damage *DamageError
		switch {
		case err == nil:
			for _, passed := range r.passed {
				if _, err := m.putAside(passed.File); err != nil {
					return err
				}
				m.say("%s is put aside, the older state is used: %s", passed.File, passed.Problem)
			}
			return nil
		case !errors.As(err, &damage):
			return err
		case damage.kind == kindSnapshot, damage.missing && damage.number == 1 && r.snapshot == 0:
			return cannotMend{damage}
		}
		if err := m.journal(damage, r.snapshot, r.last); err != nil {
			return err
		}
	}
}

// values puts aside the values that a report finds a problem with, and takes them out of it.
func (m *mender) values(r *Report) error {
	for _, f := range r.Files {
		if f.Kind == kindValue && f.Problem != "" {
			kept, err := m.putAside(f.Name)
			if err != nil {
				return err
			}
			m.say("%s is put aside as %s: %s", f.Name, kept, f.Problem)
		}
	}
	r.Files = slices.DeleteFunc(r.Files, func(f FileReport) bool { return f.Kind == kindValue && f.Problem != "" })
	r.OK = !slices.ContainsFunc(r.Files, func(f FileReport) bool { return f.Problem != "" })
	return nil
}

// journal mends one journal. base is the generation of the snapshot, where the journal is the first behind it.
func (m *mender) journal(damage *DamageError, snapshot, base uint64) error {
	first := damage.number == max(snapshot, 1)
	b, err := load(m.disk, join(m.dir, damage.File))
	if err != nil && !damage.missing {
		return err
	}
	if damage.header && first && behind(b, damage.number, 0, base).entries > 0 {
		return m.newHeader(damage, b, base)
	}
	whole := damage.Offset < headerSize // then nothing of it stays
	cut := b[min(int64(len(b)), damage.Offset):]
	if !whole && len(cut) > 0 {
		kept, err := m.keep(damage.File, cut)
		if err != nil {
			return err
		}
		m.say("%s is cut at offset %d, %d bytes are kept in %s: %s", damage.File, damage.Offset, len(cut), kept, damage.Problem)
	}
	if err := m.putAsideBehind(damage.number); err != nil {
		return err
	}
	switch {
	case !whole && len(cut) == 0:
		m.say("%s is the last now: %s", damage.File, damage.Problem)
		return nil
	case !whole:
		return m.truncate(damage)
	case !damage.missing:
		kept, err := m.putAside(damage.File)
		if err != nil {
			return err
		}
		m.say("%s is put aside as %s: %s", damage.File, kept, damage.Problem)
	}
	if !first {
		return nil
	}
	m.say("%s is begun again, without entries", damage.File)
	_, err = place(m.disk, m.dir, damage.File, write(bytes.NewReader(header(kindJournal, damage.number, base))))
	return err
}

// newHeader writes the header again. What is behind it is whole or not by its own checksums.
func (m *mender) newHeader(damage *DamageError, b []byte, base uint64) error {
	old := b[:min(len(b), headerSize)]
	kept, err := m.keep(damage.File, old)
	if err != nil {
		return err
	}
	b = slices.Concat(header(kindJournal, damage.number, base), b[len(old):])
	if _, err := place(m.disk, m.dir, damage.File, write(bytes.NewReader(b))); err != nil {
		return err
	}
	m.say("%s has a new header, the old one is kept in %s: %s", damage.File, kept, damage.Problem)
	return nil
}

func (m *mender) truncate(damage *DamageError) error {
	f, err := m.disk.open(join(m.dir, damage.File), os.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(damage.Offset); err != nil {
		return err
	}
	return f.Sync()
}

// putAsideBehind puts the journals behind a number aside, the last first: a crash between leaves no gap.
func (m *mender) putAsideBehind(number uint64) error {
	names, err := m.disk.list(m.dir)
	if err != nil {
		return err
	}
	for _, later := range slices.Backward(holdingsOf(names).journals) {
		if later <= number {
			break
		}
		name := fileName(kindJournal, later)
		report, err := surveyJournal(m.disk, m.dir, later, true)
		if err != nil {
			return err
		}
		kept, err := m.putAside(name)
		if err != nil {
			return err
		}
		m.say("%s is put aside as %s, it cannot follow: %d entries, generations %d to %d", name, kept, report.Entries, report.First, report.Last)
	}
	return nil
}

// putAside gives a file a name that no start reads.
func (m *mender) putAside(name string) (kept string, err error) {
	if kept, err = m.free(name); err != nil {
		return "", err
	}
	if err := m.disk.rename(join(m.dir, name), join(m.dir, kept)); err != nil {
		return "", err
	}
	return kept, m.disk.syncDir(m.dir)
}

// keep writes bytes that are to be removed to a file of their own.
func (m *mender) keep(name string, b []byte) (kept string, err error) {
	if kept, err = m.free(name); err != nil {
		return "", err
	}
	_, err = place(m.disk, m.dir, kept, write(bytes.NewReader(b)))
	return kept, err
}

// free is the first name for damaged bytes of a file that is not taken.
func (m *mender) free(name string) (string, error) {
	names, err := m.disk.list(m.dir)
	if err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		if kept := fmt.Sprintf("%s%s%d", name, damagedMark, n); !slices.Contains(names, kept) {
			return kept, nil
		}
	}
}

func (m *mender) say(format string, args ...any) {
	m.done = append(m.done, fmt.Sprintf(format, args...))
}
