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

// block gives what the README has, under a heading, between a fence of that kind and its end.
func block(t *testing.T, heading, fence string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n"+heading+"\n")
	after, _, _ = strings.Cut(after, "\n## ")
	_, after, _ = strings.Cut(after, "```"+fence+"\n")
	inside, _, found := strings.Cut(after, "```")
	if !found {
		t.Fatalf("the README has no %s under %q", fence, heading)
	}
	return inside
}

// stage is a directory where a script of the README runs as in the repository, but on free ports.
type stage struct {
	t    *testing.T
	dir  string
	free map[string]string // ports by those of the README
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, dir: t.TempDir(), free: map[string]string{}}
	if err := os.Mkdir(filepath.Join(s.dir, "tables"), 0o700); err != nil {
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
		if err := os.WriteFile(filepath.Join(s.dir, "tables", filepath.Base(name)), []byte(s.elsewhere(string(table))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Dir(routerProgram), filepath.Join(s.dir, "bin")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(clients), filepath.Join(s.dir, "testdata")); err != nil {
		t.Fatal(err)
	}
	return s
}

var port = regexp.MustCompile(`(127\.0\.0\.1:|--port )(\d+)`)

// elsewhere puts free ports in the place of those of a text, the same for the same.
func (s *stage) elsewhere(text string) string {
	return port.ReplaceAllStringFunc(text, func(match string) string {
		parts := port.FindStringSubmatch(match)
		if s.free[parts[2]] == "" {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				s.t.Fatal(err)
			}
			defer ln.Close()
			_, s.free[parts[2]], _ = net.SplitHostPort(ln.Addr().String())
		}
		return parts[1] + s.free[parts[2]]
	})
}

// play runs a script to its end and gives its standard output. All of it is shown where the test fails.
func (s *stage) play(script string) string {
	s.t.Helper()
	var lines []string
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "make ") || strings.Contains(line, "npm ci") {
			continue // done already, with the race detector
		}
		lines = append(lines, line)
	}
	script = s.elsewhere(strings.Join(lines, "") + "\nwait\n")

	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = s.dir
	cmd.WaitDelay = patience
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that what it starts can be ended with it
	var out, errs tail
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(2 * patience):
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
		s.t.Errorf("the script has not ended in %v", 2*patience)
	}
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("standard output:\n%s\nstandard error:\n%s\nscript:\n%s", out.String(), errs.String(), script)
		}
	})
	return out.String()
}

// The story of the README runs as it is written, on free ports.
func TestTheStoryOfTheReadme(t *testing.T) {
	script := block(t, "## The story of COLOSSUS", "sh")
	var want []string
	for line := range strings.Lines(script) {
		if _, comment, ok := strings.Cut(line, "# "); ok && strings.Contains(line, "routectl ") && strings.Contains(line, " send ") {
			want = append(want, outcomeOf(comment))
		}
	}
	out := newStage(t).play(script)
	var got []string
	arrived := map[string]int{}
	for line := range strings.Lines(out) {
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
}

// The walk through a table that is kept prints what the README says.
func TestTheWalkOfTheReadme(t *testing.T) {
	const heading = "## A table that is kept"
	want := block(t, heading, "text")
	s := newStage(t)
	t.Setenv("TMPDIR", s.dir) // of mktemp
	got := s.play(block(t, heading, "sh"))
	if got, want := sameEachTime(got), sameEachTime(want); got != want {
		t.Errorf("got\n%s\nthe README says\n%s", got, want)
	}
}

// The requests of the README are answered, and the way back is a row.
func TestTheRequestsOfTheReadme(t *testing.T) {
	replies, ways := 0, 0
	for line := range strings.Lines(newStage(t).play(block(t, "## Request and reply", "sh"))) {
		var e event
		if decodeEvent(line, &e) && e.text("event") == "reply" {
			replies++
		} else if strings.HasPrefix(line, "$reply/") && strings.Contains(line, "/*") {
			ways++
		}
	}
	if replies != 2 || ways != 1 {
		t.Errorf("got %d replies and %d ways back, want 2 and 1", replies, ways)
	}
}

// The events of the README are answered over AMQP, and a subscription is a row.
func TestTheEventsOfTheReadme(t *testing.T) {
	out := newStage(t).play(block(t, "## Events", "sh"))
	for _, want := range []string{"accepted", `{"by": "Mail"}`, "event-conn:Mail", "replay:ring", `{"data":{"statuses":[{"name":"Mail"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s", want)
		}
	}
}

// The relay of the README answers its client: the op is taken, and the response comes. Commands serve and ask as well.
func TestTheRelayOfTheReadme(t *testing.T) {
	relayFiles(t)
	script := block(t, "## The relay", "sh")
	got := newStage(t).play("export ROUTECTL_RELAY_URL=ws://127.0.0.1:8080 # the default\n" + script)
	want := []string{
		`{"op":"head:ok","topic":"echo","id":"r1","ref":"1"}`, `{"op":"head","topic":"echo","id":"r1","data":{"echoed":{"hello":"world"}},"done":true}`,
		"serving echo: active", "HELLO",
	}
	lines := slices.DeleteFunc(strings.Split(got, "\n"), func(line string) bool { return line == "" || strings.HasPrefix(line, "ready ") })
	if !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
}

// sameEachTime leaves out what differs from run to run: times, ports, and the width of columns that have them.
func sameEachTime(text string) string {
	text = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`).ReplaceAllString(text, "TIME")
	text = port.ReplaceAllString(text, "${1}PORT")
	return regexp.MustCompile(` +`).ReplaceAllString(text, " ")
}

// The verbs of the README do what they say, in its order: each ends with 0, but for a diff that found something.
func TestTheVerbsOfTheReadme(t *testing.T) {
	const heading = "## The story of COLOSSUS"
	story := block(t, heading, "sh")
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), story+"```")
	_, after, _ = strings.Cut(after, "```sh\n")
	verbs, _, _ := strings.Cut(after, "```")
	script := "shopt -s expand_aliases\nexport ROUTECTL_URL=amqp://127.0.0.1:5672\nbin/router --listen $ROUTECTL_URL --table tables/default.yaml | tee ready &\n" +
		"until grep -q ready ready; do sleep 0.1; done\n"
	want := 0
	for line := range strings.Lines(verbs) {
		if strings.HasPrefix(line, "routectl watch") || strings.Contains(line, "| jq") {
			continue // the one does not end, the other needs what make parts does not install
		}
		script += strings.TrimSuffix(line, "\n") + "\n"
		if strings.HasPrefix(line, "routectl ") {
			script += "echo status $?\n"
			want++
		}
	}
	out := newStage(t).play(script + "kill $(jobs -p)\n")
	if got := strings.Count(out, "status 0\n"); want < 10 || got != want-1 || strings.Count(out, "status 1\n") != 1 {
		t.Errorf("%d of %d verbs ended with 0", got, want)
	}
	for _, want := range []string{"1 added, 5 removed (revision 6)", "2 added (revision 7)"} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("no %q", want)
		}
	}
}

// Every section of the README is in its table of contents, and what that names is there.
func TestTheReadmeNamesItsSections(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	contents, _, _ := strings.Cut(string(text), "\n## ")
	var named, there []string
	for _, m := range regexp.MustCompile(`\[([^\]]+)\]\(#([^)]+)\)`).FindAllStringSubmatch(contents, -1) {
		named = append(named, m[1])
		if want := strings.ReplaceAll(strings.ToLower(m[1]), " ", "-"); m[2] != want {
			t.Errorf("%s leads to #%s, want #%s", m[1], m[2], want)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(string(text), -1) {
		there = append(there, m[1])
	}
	slices.Sort(named)
	slices.Sort(there)
	if !slices.Equal(named, there) {
		t.Errorf("the table of contents names %q, the sections are %q", named, there)
	}
}
