package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
)

// unit says how a value is written. Times are in ns.
type unit string

const (
	ns     unit = "ns"
	memory unit = "B"
	allocs unit = "allocs"
)

// line is one line of the result.
type line struct {
	What    string    `json:"what"`
	Value   float64   `json:"value"` // the median of the repetitions
	Unit    unit      `json:"unit"`
	Values  []float64 `json:"values"` // all of them, in the order measured
	Goal    string    `json:"goal,omitempty"`
	Verdict string    `json:"verdict,omitempty"`
}

// newLine is a line without a goal.
func newLine(what string, u unit, values []float64) line {
	return line{What: what, Value: median(values), Unit: u, Values: values}
}

// notMeasured is a line without a value.
func notMeasured(what, why string) line {
	return line{What: what, Value: math.NaN(), Verdict: "not measured: " + why}
}

// atMost judges the median against the goal.
func (l line) atMost(goal float64) line {
	l.Goal = "≤ " + format(goal, l.Unit)
	l.Verdict = verdict(l.Value <= goal || l.Unit == allocs && l.Value < goal+0.005)
	return l
}

// atMostHere judges the median against the goal for a machine on which the yardstick took as long as it takes here.
func (l line) atMostHere(goal float64, y yardstick, took []float64) line {
	here := goal * max(1, median(took)/y.there)
	l.Goal = "≤ " + format(goal, l.Unit)
	if here > goal {
		l.Goal += ", here " + format(here, l.Unit)
	}
	l.Verdict = verdict(l.Value <= here)
	return l
}

// against puts the peer's median in the place of the goal and gives the ratio to it.
func (l line) against(peer string, values []float64) line {
	other := median(values)
	l.Goal = peer + ": " + format(other, l.Unit)
	switch {
	case other > 0:
		l.Verdict = fmt.Sprintf("%.2f ×", l.Value/other)
	default:
		l.Verdict = verdict(l.Value <= other)
	}
	return l
}

// note appends to the verdict.
func (l line) note(format string, args ...any) line {
	if l.Verdict != "" {
		l.Verdict += ", "
	}
	l.Verdict += fmt.Sprintf(format, args...)
	return l
}

func verdict(held bool) string {
	if held {
		return "held"
	}
	return "**missed**"
}

func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile is the value that a share q of the others does not exceed.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(math.Round(q*float64(len(sorted)-1)))]
}

func format(v float64, u unit) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case u != ns:
		return digits(v) + " " + string(u)
	case v < 1e3:
		return digits(v) + " ns"
	case v < 1e6:
		return digits(v/1e3) + " µs"
	case v < 1e9:
		return digits(v/1e6) + " ms"
	}
	return digits(v/1e9) + " s"
}

// digits is v with three digits that count.
func digits(v float64) string {
	switch {
	case v == 0 || v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// writeHead begins the markdown table, with the machine above it.
func writeHead(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s, %s/%s, %d CPUs\n\n| what | value | least – most | goal | verdict |\n|---|---|---|---|---|\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	return err
}

// writeLine writes a line of the markdown table.
func writeLine(w io.Writer, l line) error {
	spread := ""
	if len(l.Values) > 1 {
		spread = format(slices.Min(l.Values), l.Unit) + " – " + format(slices.Max(l.Values), l.Unit)
	}
	_, err := fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", l.What, format(l.Value, l.Unit), spread, l.Goal, l.Verdict)
	return err
}

// writeJSON writes the lines that have a value as an array.
func writeJSON(w io.Writer, lines []line) error {
	measured := slices.DeleteFunc(slices.Clone(lines), func(l line) bool { return math.IsNaN(l.Value) })
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(measured)
}

// thousands writes a number of rows: 1,000,000.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
