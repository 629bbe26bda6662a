package load

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Router is a router that was started for a run.
type Router struct {
	c   *child
	dir string
	// Address is host:port where it takes AMQP connections, PID its process.
	Address string
	PID     int
}

// FindRouter finds the program: beside this one, or by the search path.
func FindRouter() (string, error) {
	if self, err := os.Executable(); err == nil {
		if path := filepath.Join(filepath.Dir(self), "router"); isFile(path) {
			return path, nil
		}
	}
	path, err := exec.LookPath("router")
	if err != nil {
		return "", fmt.Errorf("no router beside this program or in PATH: make build, or name one that runs by --url and --pid")
	}
	return path, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// StartRouter starts a router on a free port of loopback, with a table of rows that no message of a run matches.
func StartRouter(program string, rows int) (*Router, error) {
	dir, err := os.MkdirTemp("", "fingerpost-bench-")
	if err != nil {
		return nil, err
	}
	r := &Router{dir: dir}
	command := []string{program, "--listen", "amqp://127.0.0.1:0", "--http", "off", "--log-level", "error"}
	if rows > 0 {
		table := filepath.Join(dir, "bench.routes")
		if err := writeRows(table, rows); err != nil {
			os.RemoveAll(dir)
			return nil, err
		}
		command = append(command, "--table", table)
	}
	var line string
	if r.c, line, err = startChild(command); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	address, ok := strings.CutPrefix(line, "ready amqp://")
	if !ok {
		r.Stop()
		return nil, fmt.Errorf("%s said %q, and not where it listens", program, line)
	}
	r.Address, r.PID = address, r.c.pid()
	return r, nil
}

// Stop ends it.
func (r *Router) Stop() {
	r.c.stop()
	os.RemoveAll(r.dir)
}

// writeRows writes a table: of twenty rows, eighteen are names, one has a wildcard in a segment and one a run at its end.
func writeRows(name string, rows int) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	for i := range rows {
		host := fmt.Sprintf("amqp://10.%d.%d.%d:5672", i>>16&255, i>>8&255, i&255)
		switch i % 20 {
		case 0:
			fmt.Fprintf(w, "plant/%d/%%/temperature --> %s/$1\n", i, host)
		case 1:
			fmt.Fprintf(w, "fleet/%d/* --> %s\n", i, host)
		default:
			fmt.Fprintf(w, "site/%d/line/%d/device-%d --> %s\n", i%97, i%1009, i, host)
		}
	}
	if err := w.Flush(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
