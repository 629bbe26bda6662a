// Command relaybench starts a router and measures what the relay costs it, or the mesh of Rembus, beside the goals: CPU of its process, by /proc. It is no client
// that checks anything; it says little more than the bytes that a client would.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const keys = `{"keys": {"bench": {"token": "bench", "domain": "bench", "relay": true, "P": ["*"], "S": ["*"]}}}`

func main() {
	program := flag.String("router", "bin/router", "the `FILE` of the router")
	duration := flag.Duration("duration", 5*time.Second, "of each run")
	count := flag.Int("count", 3, "runs of each, of which the median counts")
	idle := flag.Int("idle", 10_000, "idle connections")
	only := flag.String("only", "", "the first letters of what is measured")
	profile := flag.Bool("wait", false, "wait before the router is stopped")
	mesh := flag.Bool("mesh", false, "measure the mesh")
	yardstick := flag.Bool("echo", false, "be the echo that the router is compared with")
	flag.Parse()
	if *yardstick {
		echo()
		return
	}
	lines := relayLines(*duration, *idle)
	if *mesh {
		lines = meshLines(*program, *duration)
	}
	if err := run(*program, lines, *duration, *count, *only, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "relaybench:", err)
		os.Exit(1)
	}
}

// router is the one that is measured.
type router struct {
	cmd  *exec.Cmd
	dir  string
	addr string
}

func startRouter(program string) (*router, error) {
	dir, err := os.MkdirTemp("", "relaybench-")
	if err != nil {
		return nil, err
	}
	r := &router{dir: dir}
	file := filepath.Join(dir, "keys.json")
	if err := os.WriteFile(file, []byte(keys), 0o600); err != nil {
		return nil, err
	}
	return r, r.start(program, "--listen", "amqp://127.0.0.1:0", "--http", "127.0.0.1:0", "--relay-keys", file, "--log-level", "warn")
}

// startEcho starts this program as the yardstick: a process that sends back what it reads.
func startEcho() (*router, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &router{}
	return r, r.start(self, "-echo")
}

// start starts a program and waits for the address that it says it is ready at.
func (r *router) start(program string, args ...string) error {
	r.cmd = exec.Command(program, args...)
	r.cmd.Stderr = os.Stderr
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := r.cmd.Start(); err != nil {
		return err
	}
	for in := bufio.NewScanner(out); in.Scan(); {
		for _, scheme := range []string{"http", "rembus+ws"} {
			if addr, ok := strings.CutPrefix(in.Text(), "ready "+scheme+"://"); ok {
				r.addr = addr
				return nil
			}
		}
	}
	r.stop()
	return fmt.Errorf("%s has no HTTP listener", program)
}

func (r *router) stop() {
	r.cmd.Process.Signal(syscall.SIGTERM)
	r.cmd.Wait()
	if r.dir != "" {
		os.RemoveAll(r.dir)
	}
}

// cpu is how much the router has worked.
func (r *router) cpu() time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid))
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	user, _ := strconv.Atoi(string(f[11]))
	system, _ := strconv.Atoi(string(f[12]))
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}

// memory is how many bytes of it are in memory.
func (r *router) memory() float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	var kib float64
	fmt.Sscan(rest, &kib)
	return kib * 1024
}

// line is one figure and its goal; least: the goal is a lower bound.
type line struct {
	what, unit string
	goal       float64
	least      bool
	start      func(program string) (*router, error) // what is measured
	of         func(*router) (figure, beside float64, err error)
	besideUnit string
}

func relayLines(duration time.Duration, idle int) []line {
	lines := []line{
		{what: "request and response of one small part, 64 in flight: CPU", unit: "µs", goal: 4, besideUnit: "requests/s", of: func(r *router) (float64, float64, error) {
			return requests(r, 64, duration)
		}},
		{what: "request and response of one small part, one at a time: CPU", unit: "µs", goal: 15, besideUnit: "requests/s", of: func(r *router) (float64, float64, error) {
			return requests(r, 1, duration)
		}},
		{what: "parts of 64 KiB, a window of 8: bytes of a CPU second", unit: "MB", goal: 300, least: true, besideUnit: "MB/s", of: func(r *router) (float64, float64, error) {
			return parts(r, 64<<10, 8, duration)
		}},
		{what: fmt.Sprintf("%d idle connections: memory of each", idle), unit: "KiB", goal: 16, besideUnit: "s to connect", of: func(r *router) (float64, float64, error) {
			return connections(r, idle)
		}},
		{what: "a server that reads nothing, 16 clients that fill it: memory", unit: "MiB", goal: 100, besideUnit: "MiB sent", of: func(r *router) (float64, float64, error) {
			return stuck(r, 16)
		}},
	}
	for i := range lines {
		lines[i].start = startRouter
	}
	return lines
}

func run(program string, lines []line, duration time.Duration, count int, only string, wait bool) error {
	if err := measureEcho(duration); err != nil {
		return err
	}
	held := true
	for _, l := range lines {
		if !strings.HasPrefix(l.what, only) {
			continue
		}
		var values, besides []float64
		for range count {
			r, err := l.start(program)
			if err != nil {
				return err
			}
			v, b, err := l.of(r)
			if wait {
				fmt.Scanln()
			}
			r.stop()
			if err != nil {
				return fmt.Errorf("%s: %w", l.what, err)
			}
			values, besides = append(values, v), append(besides, b)
		}
		slices.Sort(values)
		slices.Sort(besides)
		v, b := values[len(values)/2], besides[len(besides)/2]
		word, good := "at most", v <= l.goal
		if l.least {
			word, good = "at least", v >= l.goal
		}
		mark := "held  "
		if !good {
			mark, held = "MISSED", false
		}
		fmt.Printf("%s  %-66s %8.2f %-4s %s %g   (%.0f %s; all: %.2f)\n", mark, l.what, v, l.unit, word, l.goal, b, l.besideUnit, values)
	}
	if !held {
		fmt.Println("not every goal is held")
	}
	return nil
}
