package events

import (
	"math"
	"testing"
	"time"
)

// FuzzLinkTime has a receiver ask for any time: what is taken is a time that can be counted, and what is none is refused.
func FuzzLinkTime(f *testing.F) {
	for _, s := range []string{"", "now", "restart", "2026-07-01T12:00:00.5Z", "2026-07-01T12:00:00+02:00", "1969-12-31T23:59:59Z", "9999-01-01T00:00:00Z", "yesterday"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, err := linkTime(s)
		if err != nil || s == "" || s == "restart" || s == "now" {
			return
		}
		want, err := time.Parse(time.RFC3339Nano, s)
		switch {
		case err != nil || at < 0:
			t.Errorf("%q is %d", s, at)
		case want.Before(time.Unix(0, 0)):
			want = time.Unix(0, 0)
		case want.Year() > 2200:
			want = time.Unix(0, math.MaxInt64)
		}
		if !time.Unix(0, at).Equal(want) {
			t.Errorf("%q is %v", s, time.Unix(0, at))
		}
	})
}
