package load

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// Relay is the least that any router has to do: it takes the connections of senders and receivers and copies bytes between the two of each
// pair, by plain reads and writes of 64 KiB. It tells its address on out, and ends when in does. It is a process of its own, so that its
// CPU can be told.
func Relay(in io.Reader, out io.Writer) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { io.Copy(io.Discard, in); ln.Close() }()
	fmt.Fprintln(out, ln.Addr())
	r := &relay{waiting: map[string]net.Conn{}, all: map[net.Conn]struct{}{}}
	for {
		nc, err := ln.Accept()
		if err != nil {
			r.close()
			r.running.Wait()
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		r.mu.Lock()
		r.all[nc] = struct{}{}
		r.mu.Unlock()
		r.running.Go(func() { r.take(nc) })
	}
}

type relay struct {
	running sync.WaitGroup

	mu      sync.Mutex // guards what follows
	waiting map[string]net.Conn
	all     map[net.Conn]struct{}
}

func (r *relay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for nc := range r.all {
		nc.Close()
	}
}

// helloSize is the length of what a connection says first: an S or an R, and the number of its pair.
const helloSize = 5

func relayHello(receives bool, index int) []byte {
	end := byte('S')
	if receives {
		end = 'R'
	}
	return binary.BigEndian.AppendUint32([]byte{end}, uint32(index))
}

func (r *relay) take(nc net.Conn) {
	var hello [helloSize]byte
	if _, err := io.ReadFull(nc, hello[:]); err != nil {
		nc.Close()
		return
	}
	pair := string(hello[1:])
	r.mu.Lock()
	other := r.waiting[pair]
	if other == nil {
		r.waiting[pair] = nc
	} else {
		delete(r.waiting, pair)
	}
	r.mu.Unlock()
	if other != nil {
		r.running.Go(func() { carry(nc, other) })
		carry(other, nc)
	}
}

// carry copies until one end is over, and ends both.
func carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// child is a process that was started for a run and ends with it.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
}

// startChild starts a program and reads its first line. The program is told to end by the end of its input, or by stop.
func startChild(command []string) (*child, string, error) {
	c := &child{cmd: exec.Command(command[0], command[1:]...)}
	apart(c.cmd)
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, "", err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	var said tail
	c.cmd.Stderr = &said
	if err := c.cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("start %s: %w", command[0], err)
	}
	c.lines = bufio.NewScanner(out)
	if !c.lines.Scan() {
		c.stdin.Close()
		err := c.cmd.Wait()
		return nil, "", fmt.Errorf("%s ended: %v: %s", command[0], err, said.String())
	}
	return c, c.lines.Text(), nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// stop asks the program to end and waits for it.
func (c *child) stop() {
	c.stdin.Close()
	c.cmd.Process.Signal(os.Interrupt)
	for c.lines.Scan() {
	}
	c.cmd.Wait()
}

// tail keeps the last of what a program says.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const maxTail = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - maxTail; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

// runRelay measures a relay under the load of o: a pair for each sender, or, where one sender has many receivers, one.
func runRelay(ctx context.Context, o Options) (*Figures, error) {
	c, address, err := startChild(o.RelayCommand)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	o.Receivers, o.Addresses, o.PID = o.Senders, o.Senders, c.pid()
	o.relayed, o.Anonymous = true, false // each pair is a link by itself
	return measure(ctx, o, viaRelay(address))
}
