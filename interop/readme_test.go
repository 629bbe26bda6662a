package interop

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// outcomeAtStart is what "routectl send" prints, and what the README says of it.
var outcomeAtStart = regexp.MustCompile(`^(accepted|released|modified|rejected [a-z:-]*[a-z])($|[:,])`)

// outcomeOf gives the outcome that a line begins with, "" for none.
func outcomeOf(line string) string {
	if m := outcomeAtStart.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
		return m[1]
	}
	return ""
}

// The story of the README runs as it is written, on free ports.
func TestTheStoryOfTheReadme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "## The story of COLOSSUS")
	_, after, _ = strings.Cut(after, "```sh\n")
	script, _, found := strings.Cut(after, "```")
	if !found {
		t.Fatal("the README has no script under the story of COLOSSUS")
	}

	// The same ports in the script and in the tables, but free ones.
	free := map[string]string{}
	port := regexp.MustCompile(`(127\.0\.0\.1:|--port )(\d+)`)
	elsewhere := func(text string) string {
		return port.ReplaceAllStringFunc(text, func(match string) string {
			parts := port.FindStringSubmatch(match)
			if free[parts[2]] == "" {
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer ln.Close()
				_, free[parts[2]], _ = net.SplitHostPort(ln.Addr().String())
			}
			return parts[1] + free[parts[2]]
		})
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "tables"), 0o700); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join("..", "tables", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tables {
		table, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "tables", filepath.Base(name)), []byte(elsewhere(string(table))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Dir(routerProgram), filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(clients), filepath.Join(dir, "testdata")); err != nil {
		t.Fatal(err)
	}
	var lines, want []string
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "make ") || strings.Contains(line, "npm ci") {
			continue // done already, with the race detector
		}
		lines = append(lines, line)
		if _, comment, ok := strings.Cut(line, "# "); ok && strings.Contains(line, "routectl ") && strings.Contains(line, " send ") {
			want = append(want, outcomeOf(comment))
		}
	}
	script = strings.Join(lines, "") + "\nwait\n"

	cmd := exec.Command("bash", "-c", elsewhere(script))
	cmd.Dir = dir
	cmd.WaitDelay = patience
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that what it starts can be ended with it
	var out, errs tail
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(2 * patience):
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
		t.Errorf("the story has not ended in %v", 2*patience)
	}
	var got []string
	arrived := map[string]int{}
	for line := range strings.Lines(out.String()) {
		var e event
		if o := outcomeOf(line); o != "" {
			got = append(got, o)
		} else if decodeEvent(line, &e) && e.text("event") == "message" {
			arrived[e.text("to")]++
		}
	}
	if len(want) < 3 || !slices.Equal(got, want) {
		t.Errorf("outcomes: got %q, the README says %q", got, want)
	}
	if receivers := strings.Count(script, "/serve."); arrived["COLOSSUS"] != receivers {
		t.Errorf("COLOSSUS arrived %d times, want %d", arrived["COLOSSUS"], receivers)
	}
	if t.Failed() {
		t.Logf("standard output:\n%s\nstandard error:\n%s\nscript:\n%s", out.String(), errs.String(), elsewhere(script))
	}
}
