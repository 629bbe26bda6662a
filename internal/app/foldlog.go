package app

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// FoldWindow is how long a line of the log stands for its like.
const FoldWindow = 10 * time.Second

// The bounds of the fold.
const (
	maxFolded = 256 // kinds of lines that are remembered; beyond them lines pass
	maxAlike  = 5   // lines of one message, with other attributes, that pass in a window
)

// Fold puts a handler behind one that folds repeats: the same line passes once in 10 s, and lines of the same message with other attributes (the
// addresses of clients, mostly) five times. What was held back is told by one line more, when the window is over, with the attribute "repeated".
// Flush tells it at once.
func Fold(h slog.Handler) *FoldHandler {
	return &FoldHandler{next: h, state: &foldState{alike: map[string]*alike{}, now: time.Now, after: time.AfterFunc}}
}

// FoldHandler is what Fold makes.
type FoldHandler struct {
	next  slog.Handler
	scope string // of the attributes and groups that With gave
	state *foldState
}

type foldState struct {
	now   func() time.Time
	after func(time.Duration, func()) *time.Timer
	debug atomic.Bool

	mu    sync.Mutex // guards what follows
	alike map[string]*alike
}

// alike are the lines of one level and message in a window.
type alike struct {
	until  time.Time
	seen   map[string]struct{} // attributes that passed
	passed int
	held   int
	last   slog.Record  // held back
	by     slog.Handler // and who would have written it
	timer  *time.Timer  // nil while nothing is held back
}

// Enabled asks the handler behind; while Debug is on, everything from debug on is.
func (f *FoldHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return f.next.Enabled(ctx, l) || l >= slog.LevelDebug && f.state.debug.Load()
}

// Debug has the log told everything, or what the handler behind lets pass.
func (f *FoldHandler) Debug(on bool) { f.state.debug.Store(on) }

// WithAttrs and WithGroup make handlers that share what is remembered.
func (f *FoldHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	scope := f.scope
	for _, a := range attrs {
		scope += a.String() + "\x00"
	}
	return &FoldHandler{next: f.next.WithAttrs(attrs), scope: scope, state: f.state}
}

// WithGroup is as of slog.
func (f *FoldHandler) WithGroup(name string) slog.Handler {
	return &FoldHandler{next: f.next.WithGroup(name), scope: f.scope + name + "\x01", state: f.state}
}

// Handle writes the line, or holds it back.
func (f *FoldHandler) Handle(ctx context.Context, r slog.Record) error {
	if !f.state.passes(f, r) {
		return nil
	}
	return f.next.Handle(ctx, r)
}

func (s *foldState) passes(f *FoldHandler, r slog.Record) bool {
	kind := r.Level.String() + "\x00" + r.Message
	line := f.scope
	r.Attrs(func(a slog.Attr) bool { line += a.String() + "\x00"; return true })
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.alike[kind]
	if a != nil && a.held == 0 && !now.Before(a.until) {
		delete(s.alike, kind)
		a = nil
	}
	if a == nil {
		if len(s.alike) >= maxFolded {
			s.forget(now)
		}
		if len(s.alike) >= maxFolded {
			return true
		}
		a = &alike{until: now.Add(FoldWindow), seen: map[string]struct{}{}}
		s.alike[kind] = a
	}
	if _, again := a.seen[line]; !again && a.passed < maxAlike {
		a.seen[line] = struct{}{}
		a.passed++
		return true
	}
	a.held++
	a.last, a.by = r.Clone(), f.next
	if a.timer == nil {
		a.timer = s.after(max(a.until.Sub(now), 0), func() { s.over(kind, a) })
	}
	return false
}

// forget drops the kinds whose window is over and who have nothing to tell. Called with mu.
func (s *foldState) forget(now time.Time) {
	for kind, a := range s.alike {
		if a.held == 0 && !now.Before(a.until) {
			delete(s.alike, kind)
		}
	}
}

// over ends a window and tells what was held back.
func (s *foldState) over(kind string, a *alike) {
	s.mu.Lock()
	if s.alike[kind] != a {
		s.mu.Unlock()
		return
	}
	delete(s.alike, kind)
	a.timer.Stop()
	s.mu.Unlock()
	r := a.last
	r.AddAttrs(slog.Int("repeated", a.held))
	a.by.Handle(context.Background(), r)
}

// Flush tells what is held back.
func (f *FoldHandler) Flush() {
	s := f.state
	s.mu.Lock()
	held := map[string]*alike{}
	for kind, a := range s.alike {
		if a.held > 0 {
			held[kind] = a
		}
	}
	s.mu.Unlock()
	for kind, a := range held {
		s.over(kind, a)
	}
}
