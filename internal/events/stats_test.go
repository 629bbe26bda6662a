package events

import (
	"strings"
	"testing"
	"time"
)

// The counters tell what came, what went, who was slow, and who was sent away for that.
func TestStatsOfEvents(t *testing.T) {
	inWorld(t, Options{Soft: 10, Hard: 40}, func(w *world) {
		a, b, c := w.join("A", "req/T"), w.join("B", "req/T"), w.join("C")
		for range 3 {
			c.say(request("1", "T"))
			a.wants("1")
			b.wants("1")
		}
		c.say(request("2", "Nobody"))
		s := w.r.Stats()
		if s.Components != 3 || s.Connects != 3 || s.Events != 4 || s.Copies != 6 || s.Kept != 4 || s.KeptBytes == 0 || s.Waiting != 0 || s.Slow != 0 {
			t.Errorf("stats %+v", s)
		}
		for _, x := range w.r.Connections() {
			want := map[string][3]uint64{"event:A": {1, 0, 3}, "event:B": {1, 0, 3}, "event:C": {0, 4, 0}}[x.Name]
			if got := [3]uint64{uint64(x.Rows), x.Received, x.Sent}; got != want || x.Since.IsZero() || "event:"+x.Component != x.Name {
				t.Errorf("%+v, want %v", x, want)
			}
		}
		a.pause()
		for range 2000 { // more than its socket's buffers hold
			c.say(request("x", "T"))
			if w.r.Stats().Disconnects > 0 {
				break
			}
		}
		if s := w.r.Stats(); s.Slowed != 1 || s.Disconnects != 1 {
			t.Errorf("after a flood: %+v", s)
		}
		if w.r.CloseConnection("event:Nobody") || w.r.CloseConnection("7") || !w.r.CloseConnection("event:B") {
			t.Error("connections are closed by their names")
		}
		if err := b.ended(); err == nil {
			t.Error("B is there")
		}
	})
}

// What is kept is told where it has changed: a router that has no events is silent, however long it runs.
func TestTheLogTellsOfTheWindowWhereItChanged(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		lines := func() int { return strings.Count(w.log.String(), "events are kept for replay") }
		for _, c := range []struct {
			name string
			send bool
			want int // lines so far
		}{
			{"nothing came", false, 0},
			{"an event came and went", true, 1},
			{"nothing came since", false, 1},
		} {
			if c.send {
				w.join("A").say(request("1", "Nobody"))
			}
			time.Sleep(10 * time.Minute)
			if got := lines(); got != c.want {
				t.Errorf("%s: got %d lines, want %d", c.name, got, c.want)
			}
		}
	})
}
