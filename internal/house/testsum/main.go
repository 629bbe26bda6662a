// Command testsum runs a "go test -json" command, prints the output of what failed and ends with a line "N passed, M failed".
//
//	testsum -- go test -json ./...
//
// Its exit status is 0 only where the command's is, something passed and nothing failed. Every test and subtest counts; so
// does a package that failed outside its tests (it did not build, it panicked, it ran out of time).
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output, ImportPath, FailedBuild string
	Elapsed                                                float64
}

// sum is the state of a run.
type sum struct {
	out                     io.Writer
	passed, failed, skipped int
	output                  map[string]*strings.Builder // by package and test, of what has not ended
	running                 map[string][]string         // tests of a package that have not ended
	failedTests             map[string]int              // by package
	failures                []string
}

func newSum(out io.Writer) *sum {
	return &sum{out: out, output: map[string]*strings.Builder{}, running: map[string][]string{}, failedTests: map[string]int{}}
}

// read takes events until the end of r. Lines that are no events are printed as they are.
func (s *sum) read(r io.Reader) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				s.event(e)
			} else {
				fmt.Fprintf(s.out, "%s", line)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *sum) event(e event) {
	key := e.Package + "\x00" + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "run":
		s.running[e.Package] = append(s.running[e.Package], e.Test)
	case "output":
		b := s.output[key]
		if b == nil {
			b = &strings.Builder{}
			s.output[key] = b
		}
		b.WriteString(e.Output)
	case "pass", "fail", "skip":
		text := s.take(key)
		if e.Test == "" {
			s.packageEnded(e, text)
		} else {
			s.testEnded(e, text)
		}
	}
}

// take gives what a test printed, once.
func (s *sum) take(key string) string {
	b := s.output[key]
	if b == nil {
		return ""
	}
	delete(s.output, key)
	return b.String()
}

func (s *sum) testEnded(e event, text string) {
	if i := slices.Index(s.running[e.Package], e.Test); i >= 0 {
		s.running[e.Package] = slices.Delete(s.running[e.Package], i, i+1)
	}
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.skipped++
		fmt.Fprint(s.out, text)
	case "fail":
		s.fail(e.Package, e.Test, text)
	}
}

func (s *sum) fail(pkg, test, text string) {
	s.failed++
	s.failedTests[pkg]++
	s.failures = append(s.failures, strings.TrimSpace(pkg+" "+test))
	fmt.Fprint(s.out, text)
}

func (s *sum) packageEnded(e event, text string) {
	switch e.Action {
	case "pass":
		fmt.Fprintf(s.out, "ok    %s  %.1fs\n", e.Package, e.Elapsed)
	case "fail":
		for _, test := range s.running[e.Package] { // the end of these was never reported
			s.fail(e.Package, test, s.take(e.Package+"\x00"+test))
		}
		if s.failedTests[e.Package] == 0 {
			s.fail(e.Package, "", text)
		} else {
			fmt.Fprint(s.out, text)
		}
		fmt.Fprintf(s.out, "FAIL  %s  %.1fs\n", e.Package, e.Elapsed)
	}
	delete(s.running, e.Package)
}

// end prints the summary and tells whether all is well.
func (s *sum) end() bool {
	if len(s.failures) > 0 {
		fmt.Fprintln(s.out, "\nfailed:")
		for _, f := range s.failures {
			fmt.Fprintln(s.out, "  "+f)
		}
	}
	if s.passed == 0 && s.failed == 0 {
		fmt.Fprintln(s.out, "no test ran")
	}
	fmt.Fprintf(s.out, "%d passed, %d failed", s.passed, s.failed)
	if s.skipped > 0 {
		fmt.Fprintf(s.out, ", %d skipped", s.skipped)
	}
	fmt.Fprintln(s.out)
	return s.failed == 0 && s.passed > 0
}

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "testsum: give a command, such as: testsum -- go test -json ./...")
		os.Exit(2)
	}
	signal.Ignore(syscall.SIGINT) // the command gets it too, and its end is then reported
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "testsum: %v\n", err)
		os.Exit(1)
	}
	s := newSum(os.Stdout)
	readErr := s.read(pipe)
	err = cmd.Wait()
	if readErr != nil {
		err = readErr
	}
	if err != nil && s.failed == 0 {
		s.fail(strings.Join(args, " "), "", fmt.Sprintf("%v\n", err))
	}
	if !s.end() || err != nil {
		os.Exit(1)
	}
}
