package routetable

import (
	"slices"
	"strings"
)

// Expect is one line of a table file's own test: the hops that an address must lead to.
type Expect struct {
	Address    string
	Hops       []string          // in any order; none is unrouted or discarded
	Target     string            // the link's target, empty for none
	Properties map[string]string // of the message
	Line       int               // in the file
}

// ExpectFailure is an Expect that the table does not meet.
type ExpectFailure struct {
	Expect Expect
	Got    []string
	Msg    string
}

// CheckExpect explains every address and compares the hops as sets of canonical text. An empty list, null and "null" all mean discarded,
// and the empty list unrouted too; "null" for an address that no row matches is a failure.
func CheckExpect(s *Snapshot, expects []Expect) []ExpectFailure {
	var failures []ExpectFailure
	for _, e := range expects {
		property := func(k string) (string, bool) { v, ok := e.Properties[k]; return v, ok }
		got := s.Explain(e.Address, e.Target, property).Hops
		want := make([]string, 0, len(e.Hops))
		msg := ""
		for _, text := range e.Hops {
			h, err := ParseHop(text)
			if err != nil {
				msg = "the expected hop " + MaskUserinfo(text) + ": " + err.Error()
				break
			}
			want = append(want, h.Text)
		}
		if msg == "" && !sameHops(got, want) {
			msg = "got " + hopList(got) + ", want " + hopList(want)
		}
		if msg != "" {
			failures = append(failures, ExpectFailure{Expect: e, Got: got, Msg: arrowField(e.Address) + ": " + msg})
		}
	}
	return failures
}

func sameHops(got, want []string) bool {
	if len(want) == 0 {
		return len(got) == 0 || len(got) == 1 && got[0] == NullAddress
	}
	return slices.Equal(set(got), set(want))
}

func set(texts []string) []string {
	s := slices.Clone(texts)
	slices.Sort(s)
	return slices.Compact(s)
}

func hopList(hops []string) string {
	if len(hops) == 0 {
		return "none"
	}
	return strings.Join(hops, ", ")
}
