package main

import (
	"strings"
	"testing"
)

func TestSum(t *testing.T) {
	for name, c := range map[string]struct {
		events []string
		ok     bool
		want   []string // in the output, in this order; the last is its last line
		not    []string
	}{
		"tests pass and their output is not shown": {
			events: []string{
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}`,
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"pass","Package":"p","Elapsed":1}`,
			},
			ok: true, want: []string{"ok    p", "1 passed, 0 failed"}, not: []string{"chatter"},
		},
		"a failing subtest is shown with its output": {
			events: []string{
				`{"Action":"run","Package":"p","Test":"TestA/x"}`,
				`{"Action":"output","Package":"p","Test":"TestA/x","Output":"got 1, want 2\n"}`,
				`{"Action":"fail","Package":"p","Test":"TestA/x"}`,
				`{"Action":"pass","Package":"p","Test":"TestB"}`,
				`{"Action":"fail","Package":"p"}`,
			},
			want: []string{"got 1, want 2", "FAIL  p", "p TestA/x", "1 passed, 1 failed"},
		},
		"a package that does not build is one failure": {
			events: []string{
				`{"ImportPath":"p","Action":"build-output","Output":"p.go:1: undefined: x\n"}`,
				`{"ImportPath":"p","Action":"build-fail"}`,
				`{"Action":"output","Package":"p","Output":"FAIL p [build failed]\n"}`,
				`{"Action":"fail","Package":"p","FailedBuild":"p"}`,
			},
			want: []string{"undefined: x", "[build failed]", "0 passed, 1 failed"},
		},
		"a test whose end is not reported failed": {
			events: []string{
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Output":"exit status 66\n"}`,
				`{"Action":"fail","Package":"p"}`,
			},
			want: []string{"exit status 66", "p TestA", "0 passed, 1 failed"},
		},
		"skips are counted": {
			events: []string{
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"skip","Package":"p","Test":"TestB"}`,
			},
			ok: true, want: []string{"1 passed, 0 failed, 1 skipped"},
		},
		"no test at all is not well": {
			events: []string{`{"Action":"skip","Package":"p"}`},
			want:   []string{"no test ran", "0 passed, 0 failed"},
		},
		"other lines pass through": {
			events: []string{"warning: something", `{"Action":"pass","Package":"p","Test":"TestA"}`},
			ok:     true, want: []string{"warning: something", "1 passed, 0 failed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			s := newSum(&out)
			if err := s.read(strings.NewReader(strings.Join(c.events, "\n"))); err != nil {
				t.Fatal(err)
			}
			if ok := s.end(); ok != c.ok {
				t.Errorf("got ok %v, want %v", ok, c.ok)
			}
			rest := out.String()
			for _, w := range c.want {
				_, after, found := strings.Cut(rest, w)
				if !found {
					t.Errorf("%q is missing, or too early, in:\n%s", w, out.String())
				}
				rest = after
			}
			if strings.TrimSpace(rest) != "" {
				t.Errorf("after the last line: %q", rest)
			}
			for _, n := range c.not {
				if strings.Contains(out.String(), n) {
					t.Errorf("%q should not be shown in:\n%s", n, out.String())
				}
			}
		})
	}
}
