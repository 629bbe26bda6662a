package ctl

import (
	"strings"
	"testing"
)

// One long name does not push the columns of all other rows off the screen.
func TestALongCellDoesNotWidenItsColumn(t *testing.T) {
	long := strings.Repeat("x", maxColumn+1)
	var p printer
	p.columns("PATTERN", "ADDRESS")
	p.columns("näme", "null")
	p.columns(long, "null")
	p.line("end")
	want := "PATTERN  ADDRESS\nnäme     null\n" + long + "  null\nend\n"
	if got := string(p.bytes()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
