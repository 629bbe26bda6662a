package app

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// timing of the watch.
type timing struct {
	quiet time.Duration // without a change, before a file is read
	most  time.Duration // after the first change
	poll  time.Duration // between two looks without any sign of change: some file systems give none
}

var defaultTiming = timing{quiet: 100 * time.Millisecond, most: time.Second, poll: 5 * time.Second}

// watch loads the table files when they change, until ctx ends.
//
// What is watched are directories, since an editor renames a new file over the old one: those of the file, of every symbolic link on the way to
// it, and of the link's target. Signs only say when to look. What changed is decided by content.
func (t *tableFiles) watch(ctx context.Context) {
	w := &fileWatch{what: "table files", log: t.log, every: t.timing.poll, dirs: map[string]os.FileInfo{}, paths: func() (paths []string) {
		for _, f := range t.list() {
			paths = append(paths, f.path)
		}
		return paths
	}}
	w.open()
	defer w.close()
	poll := time.NewTicker(t.timing.poll)
	defer poll.Stop()
	due := time.NewTimer(0) // what changed before the watch began
	defer due.Stop()
	var latest time.Time // when due must be at the latest; zero: nothing waits
	changed := map[string]bool{}
	wait := func(d time.Duration) {
		now := time.Now()
		if latest.IsZero() {
			latest = now.Add(t.timing.most)
		}
		due.Reset(max(min(d, latest.Sub(now)), 0))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-w.events:
			if e.Op != fsnotify.Chmod {
				changed[filepath.Base(e.Name)] = true
			}
			wait(t.timing.quiet)
		case err := <-w.errors:
			t.log.Warn("signs of changes to table files were lost", "error", err)
			wait(t.timing.quiet)
		case <-t.renamed:
			wait(0)
		case <-poll.C:
			if latest.IsZero() {
				wait(0)
			}
		case <-due.C:
			// The directories first: what changes after them gives a sign.
			w.follow()
			unsettled := t.look(func(f *tableFile) bool {
				return slices.ContainsFunc(chain(f.path), func(p string) bool { return changed[filepath.Base(p)] })
			})
			clear(changed)
			latest = time.Time{}
			if unsettled {
				wait(t.timing.most)
			}
		}
	}
}

// fileWatch is the directories of files, watched.
type fileWatch struct {
	what   string // they are, for the log
	log    *slog.Logger
	every  time.Duration     // they are looked at without a sign
	paths  func() []string   // of the files
	w      *fsnotify.Watcher // nil: there are only looks
	events chan fsnotify.Event
	errors chan error
	dirs   map[string]os.FileInfo // watched now
	failed string                 // what the log was last told
}

func (w *fileWatch) open() {
	var err error
	if w.w, err = fsnotify.NewWatcher(); err != nil {
		w.w = nil
		w.log.Warn(w.what+" cannot be watched: they are looked at now and then", "every", w.every, "error", err)
		return
	}
	w.events, w.errors = w.w.Events, w.w.Errors
}

func (w *fileWatch) close() {
	if w.w != nil {
		w.w.Close()
	}
}

// follow watches the directories that the files are in now, and no others.
func (w *fileWatch) follow() {
	if w.w == nil {
		return
	}
	wanted := map[string]os.FileInfo{}
	for _, path := range w.paths() {
		for _, p := range chain(path) {
			dir, err := filepath.EvalSymlinks(filepath.Dir(p))
			if err != nil {
				continue
			}
			if info, err := os.Stat(dir); err == nil {
				wanted[dir] = info
			}
		}
	}
	alive := w.w.WatchList()
	for dir, was := range w.dirs {
		if now := wanted[dir]; now == nil || !os.SameFile(was, now) || !slices.Contains(alive, dir) {
			w.w.Remove(dir) // an error says that it is gone already
			delete(w.dirs, dir)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(wanted)) {
		if w.dirs[dir] != nil {
			continue
		}
		if err := w.w.Add(dir); err != nil {
			if told := dir + err.Error(); told != w.failed {
				w.failed = told
				w.log.Warn("a directory of "+w.what+" cannot be watched: they are looked at now and then",
					"directory", dir, "every", w.every, "error", err)
			}
			continue
		}
		w.dirs[dir] = wanted[dir]
	}
}

// maxLinks is how many symbolic links are followed, as in Linux.
const maxLinks = 40

// chain gives path, and what it leads to where it is a symbolic link, link by link.
func chain(path string) []string {
	list := []string{path}
	for range maxLinks {
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			// Not cleaned: ".." behind a symbolic link is not what it looks.
			target = filepath.Dir(path) + string(filepath.Separator) + target
		}
		path = target
		list = append(list, path)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
		list = append(list, real)
	}
	return list
}
