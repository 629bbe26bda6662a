package events

import (
	"strconv"
	"testing"
)

func TestPoints(t *testing.T) {
	p := points{window: 30}
	if got := p.at("A", 0); got != 0 {
		t.Errorf("of nobody: %d", got)
	}
	p.keep("A", 5, 10)
	p.keep("B", 6, 10)
	p.keep("A", 20, 25) // it came back, and went again
	for _, x := range []struct {
		who       string
		now, want int64
	}{{"A", 26, 20}, {"B", 40, 6}, {"B", 41, 0}, {"A", 55, 20}, {"A", 56, 0}} {
		if got := p.at(x.who, x.now); got != x.want {
			t.Errorf("of %s at %d: got %d, want %d", x.who, x.now, got, x.want)
		}
	}
	p.forget(41)
	if len(p.of) != 1 || p.at("A", 41) != 20 {
		t.Errorf("left: %v", p.of)
	}
	for i := range 2 * maxPoints {
		p.keep(strconv.Itoa(i), 50, 50)
	}
	if len(p.of) != maxPoints || len(p.order) != maxPoints || p.at("0", 50) != 0 || p.at(strconv.Itoa(2*maxPoints-1), 50) != 50 {
		t.Errorf("%d are kept, %d departures", len(p.of), len(p.order))
	}
	if p.forget(81); len(p.of)+len(p.order) != 0 {
		t.Errorf("%d are kept at the end", len(p.of))
	}
}
