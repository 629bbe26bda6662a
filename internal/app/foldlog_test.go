package app

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// foldedLog is a log behind Fold, and what it writes without times.
func foldedLog() (*slog.Logger, *FoldHandler, func() []string) {
	var mu sync.Mutex
	var out bytes.Buffer
	h := Fold(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(p)
	}), &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 {
			return slog.Attr{}
		}
		return a
	}}))
	return slog.New(h), h, func() []string {
		mu.Lock()
		defer mu.Unlock()
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		out.Reset()
		return lines
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestRepeatsAreFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, _, lines := foldedLog()
		want := func(what string, all ...string) {
			t.Helper()
			if got := lines(); strings.Join(got, "\n") != strings.Join(all, "\n") {
				t.Errorf("%s:\n got %q\nwant %q", what, got, all)
			}
		}
		for range 100 {
			log.Warn("hop away", "hop", "a")
		}
		log.Warn("hop away", "hop", "b")
		log.Info("hop away", "hop", "a")
		want("the first of each", "level=WARN msg=\"hop away\" hop=a", "level=WARN msg=\"hop away\" hop=b", "level=INFO msg=\"hop away\" hop=a")
		time.Sleep(FoldWindow)
		synctest.Wait()
		want("the window is over", "level=WARN msg=\"hop away\" hop=a repeated=99")
		log.Warn("hop away", "hop", "a")
		want("it passes again", "level=WARN msg=\"hop away\" hop=a")
		time.Sleep(2 * FoldWindow)
		synctest.Wait()
		want("nothing was held back", "")
		for i := range 20 {
			log.Info("connection ended", "from", i)
		}
		if got := lines(); len(got) != maxAlike {
			t.Errorf("%d lines with other attributes pass: %q", len(got), got)
		}
		time.Sleep(FoldWindow)
		synctest.Wait()
		want("the last of those held back", "level=INFO msg=\"connection ended\" from=19 repeated=15")
	})
}

func TestFlushTellsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, h, lines := foldedLog()
		one := log.With("node", "x").WithGroup("g")
		for range 3 {
			one.Info("hello", "k", "v")
			log.Info("hello", "k", "v")
		}
		lines()
		h.Flush()
		if got := lines(); len(got) != 1 || !strings.HasSuffix(got[0], "repeated=4") {
			t.Errorf("got %q", got)
		}
		time.Sleep(2 * FoldWindow)
		synctest.Wait()
		if got := lines(); got[0] != "" {
			t.Errorf("told twice: %q", got)
		}
	})
}

// What is remembered is bounded, and what is beyond passes.
func TestManyKindsOfLinesPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, h, lines := foldedLog()
		for i := range 3 * maxFolded {
			log.Info(fmt.Sprint("kind ", i))
		}
		if got := lines(); len(got) != 3*maxFolded || len(h.state.alike) > maxFolded {
			t.Errorf("%d lines, %d remembered", len(got), len(h.state.alike))
		}
		time.Sleep(FoldWindow)
		log.Info("another")
		if len(h.state.alike) != 1 {
			t.Errorf("%d are remembered when their window is over", len(h.state.alike))
		}
	})
}

func TestLinesOfManyGoroutines(t *testing.T) {
	log, h, lines := foldedLog()
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 1000 {
				log.Warn("busy")
			}
		})
	}
	running.Wait()
	h.Flush()
	if got := lines(); len(got) != 2 || got[1] != "level=WARN msg=busy repeated=7999" {
		t.Errorf("got %q", got)
	}
}
