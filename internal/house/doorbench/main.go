// Command doorbench starts a router and measures what one of its doors, the relay, that of events or the mesh of Rembus, costs it, beside the goals: CPU of its
// process, by /proc. It is no client that checks anything; it says little more than the bytes that a client would.
package main

import (
	"bufio"
	"bytes"
	"errors"
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

// config is the same for all doors: what comes in a run is kept, so that rings fill.
const config = "events: {window: 10m, windowBytes: 300MiB}\n"

const keys = `{"keys": {"bench": {"token": "bench", "domain": "bench", "relay": true, "P": ["*"], "S": ["*"]}}}`

func main() {
	door := flag.String("door", "relay", "`DOOR` to measure: relay, events, mesh")
	program := flag.String("router", "bin/router", "the `FILE` of the router")
	duration := flag.Duration("duration", 5*time.Second, "of each run")
	count := flag.Int("count", 3, "runs of each, of which the median counts")
	idle := flag.Int("idle", 10_000, "idle connections")
	only := flag.String("only", "", "the first letters of what is measured")
	profile := flag.Bool("wait", false, "wait before the router is stopped")
	yardstick := flag.Bool("echo", false, "be the echo that the router is compared with")
	flag.Parse()
	if *yardstick {
		echo()
		return
	}
	lines, ok := map[string]func() []line{
		"relay":  func() []line { return relayLines(*duration, *idle) },
		"events": func() []line { return eventLines(*duration) },
		"mesh":   func() []line { return meshLines(*program, *duration) },
	}[*door]
	if !ok {
		fmt.Fprintln(os.Stderr, "doorbench: there is no door", *door)
		os.Exit(2)
	}
	if err := run(*program, lines(), *duration, *count, *only, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "doorbench:", err)
		os.Exit(1)
	}
}

// router is the one that is measured.
type router struct {
	cmd  *exec.Cmd
	dir  string
	addr string // of its HTTP listener
	amqp string // URL
}

func startRouter(program string) (*router, error) {
	dir, err := os.MkdirTemp("", "doorbench-")
	if err != nil {
		return nil, err
	}
	r := &router{dir: dir}
	file, configFile := filepath.Join(dir, "keys.json"), filepath.Join(dir, "router.yaml")
	if err := errors.Join(os.WriteFile(file, []byte(keys), 0o600), os.WriteFile(configFile, []byte(config), 0o600)); err != nil {
		return nil, err
	}
	return r, r.start(program, "--config", configFile, "--listen", "amqp://127.0.0.1:0", "--http", "127.0.0.1:0", "--relay-keys", file, "--log-level", "error")
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
		where, _ := strings.CutPrefix(in.Text(), "ready ")
		if strings.HasPrefix(where, "amqp://") {
			r.amqp = where
		}
		for _, scheme := range []string{"http://", "rembus+ws://"} {
			if addr, ok := strings.CutPrefix(where, scheme); ok {
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
	cpu        bool                                  // it is CPU time: the goal is for a machine as fast as the one it was set on
	start      func(program string) (*router, error) // what is measured; nil: startRouter
	of         func(*router) (figure, beside float64, err error)
	besideUnit string
}

// run measures the lines whose words begin with only.
func run(program string, lines []line, duration time.Duration, count int, only string, wait bool) error {
	slower, err := measureEcho(duration)
	if err != nil {
		return err
	}
	held := true
	for _, l := range lines {
		if !strings.HasPrefix(l.what, only) {
			continue
		}
		var values, besides []float64
		for range count {
			start := l.start
			if start == nil {
				start = startRouter
			}
			r, err := start(program)
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
		if l.cpu {
			l.goal *= slower
		}
		word, good := "at most", v <= l.goal
		if l.least {
			word, good = "at least", v >= l.goal
		}
		mark := "held  "
		if !good {
			mark, held = "MISSED", false
		}
		fmt.Printf("%s  %-66s %8.2f %-4s %s %.3g   (%.0f %s; all: %.2f)\n", mark, l.what, v, l.unit, word, l.goal, b, l.besideUnit, values)
	}
	if !held {
		fmt.Println("not every goal is held")
	}
	return nil
}
