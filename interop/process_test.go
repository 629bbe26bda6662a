package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a running program. It ends with the test at the latest, by its process id.
type process struct {
	t     testing.TB
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // of standard output; closed at its end
	log   *tail       // standard error
	ended chan struct{}
	err   error // of Wait, when ended is closed

	stopping sync.Once
}

// tail keeps the first and the last of what a program writes to standard error.
type tail struct {
	mu          sync.Mutex
	first, last []byte
}

const keepLog = 64 << 10

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.first) < keepLog {
		l.first = append(l.first, p...)
	} else if l.last = append(l.last, p...); len(l.last) > 2*keepLog {
		l.last = append(l.last[:0], l.last[len(l.last)-keepLog:]...)
	}
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == 0 {
		return string(l.first)
	}
	return string(l.first) + "\n[…]\n" + string(l.last)
}

// start runs a program. Its standard error is shown where the test fails.
func start(t testing.TB, name, program string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: exec.Command(program, args...), lines: make(chan string, 1024), log: &tail{}, ended: make(chan struct{})}
	p.cmd.Dir = clients
	p.cmd.Stderr = p.log
	p.cmd.WaitDelay = time.Second
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	drained, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(drained)
		defer close(p.lines)
		in := bufio.NewScanner(out)
		in.Buffer(nil, 16<<20)
		for in.Scan() {
			select {
			case p.lines <- in.Text():
			case <-gone:
			}
		}
	}()
	go func() {
		<-drained
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		close(gone)
		p.stop()
		text := p.log.String()
		if strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") || strings.Contains(text, "fatal error:") {
			t.Errorf("%s broke", name)
		}
		if t.Failed() && text != "" {
			t.Logf("standard error of %s:\n%s", name, text)
		}
	})
	return p
}

// stop asks the program to end and waits for it; one that does not end is killed.
func (p *process) stop() {
	p.stopping.Do(func() {
		p.stdin.Close()
		p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(patience):
			p.t.Errorf("%s did not end within %v of SIGTERM", p.name, patience)
			p.kill()
		}
	})
}

// kill ends the program at once.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// line gives the next line of standard output.
func (p *process) line() string {
	p.t.Helper()
	select {
	case l, ok := <-p.lines:
		if ok {
			return l
		}
		<-p.ended
		p.t.Fatalf("%s ended: %v\n%s", p.name, p.err, p.log)
	case <-time.After(patience):
		p.t.Fatalf("%s has printed nothing for %v\n%s", p.name, patience, p.log)
	}
	return ""
}

// wait waits for the program's own end and gives its exit status.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("%s has not ended in %v\n%s", p.name, patience, p.log)
	}
	return p.cmd.ProcessState.ExitCode()
}

// event is a line that a foreign client prints.
type event map[string]any

func (e event) text(key string) string { s, _ := e[key].(string); return s }
func (e event) number(key string) int  { n, _ := e[key].(float64); return int(n) }

// next gives the next event; an event of an error fails the test.
func (p *process) next() event {
	p.t.Helper()
	l := p.line()
	var e event
	if err := json.Unmarshal([]byte(l), &e); err != nil {
		p.t.Fatalf("%s printed %q, which is no event", p.name, l)
	}
	return e
}

// expect gives the next event, which must be of that kind.
func (p *process) expect(kind string) event {
	p.t.Helper()
	e := p.next()
	if e.text("event") != kind {
		p.t.Fatalf("%s: got event %v, want %s", p.name, e, kind)
	}
	return e
}

// router is a running router.
type router struct {
	*process
	addr       string
	ctlProgram string // routectl; empty: the one with the race detector
}

func (r *router) url() string { return "amqp://" + r.addr }

// startRouter runs the router with a table in arrow form and waits until it is ready.
func startRouter(t testing.TB, name, table string, args ...string) *router {
	t.Helper()
	return startRouterOn(t, name, "127.0.0.1:0", table, args...)
}

// startRouterOn runs the router on an address.
func startRouterOn(t testing.TB, name, addr, table string, args ...string) *router {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".routes")
	if err := os.WriteFile(file, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--listen", "amqp://" + addr, "--table", file, "--name", name}, args...)
	r := &router{process: start(t, "router "+name, routerProgram, args...)}
	ready, ok := strings.CutPrefix(r.line(), "ready amqp://")
	if !ok {
		t.Fatalf("router %s is not ready: it printed %q", name, ready)
	}
	r.addr = ready
	return r
}

// ctl runs routectl on a router, which must succeed, and gives its standard output.
func (r *router) ctl(t testing.TB, args ...string) string {
	t.Helper()
	out, stderr, status := r.tryCtl(t, args...)
	if status != 0 {
		t.Fatalf("routectl %q: exit status %d\n%s%s", args, status, out, stderr)
	}
	return out
}

func (r *router) tryCtl(t testing.TB, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	program := routectlProgram
	if r.ctlProgram != "" {
		program = r.ctlProgram
	}
	cmd := exec.Command(program, append([]string{"--url", r.url()}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	cmd.Wait()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// eventually waits until a condition holds, asking again and again; the condition itself does some input and output.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); !holds(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// rows makes a table in arrow form of pattern, address, pattern, address.
func rows(patternsAndAddresses ...string) string {
	var b strings.Builder
	for i := 0; i+1 < len(patternsAndAddresses); i += 2 {
		fmt.Fprintf(&b, "%s --> %s\n", patternsAndAddresses[i], patternsAndAddresses[i+1])
	}
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func decodeEvent(line string, e *event) bool { return json.Unmarshal([]byte(line), e) == nil }

// freeAddr is an address on loopback where nothing listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
