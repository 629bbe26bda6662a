package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/messenger/relay"
)

// relayServer runs a command for each request of a topic.
type relayServer struct {
	topic    string
	command  []string
	commands int             // at a time
	ctx      context.Context // over when it is interrupted

	mu     sync.Mutex // guards the writers: of commands, and of the client's callbacks
	stdout io.Writer
	stderr io.Writer
}

func relayServeCommand(r *run, a *relayAccess) *cobra.Command {
	s := &relayServer{stdout: r.env.Stdout, stderr: r.env.Stderr}
	c := &cobra.Command{
		Use:   "serve TOPIC -- COMMAND [ARGUMENT]...",
		Short: "run a command for each request of a topic",
		Long: `Serve runs COMMAND for each request of a topic, many at a time. Standard input is the data of the head, where it has any, as one line of JSON, and
behind it the body; standard output is the body of the response as it comes. RELAY_TOPIC and RELAY_HEAD are in its environment. Where the exit status is
not 0, the response is a failure: its head is {"error":{"code":"failed","message":…}}, or its last part where something was written before. The command is
killed when the client gives up, and when serve ends. Serve says its role, now and when it changes, on standard output, and runs until it is interrupted.`,
		Args: func(c *cobra.Command, argv []string) error {
			if c.ArgsLenAtDash() != 1 || len(argv) < 2 {
				return usage("relay serve: give TOPIC -- COMMAND [ARGUMENT]...")
			}
			return nil
		},
		RunE: func(c *cobra.Command, argv []string) error {
			s.topic, s.command = argv[0], argv[1:]
			if s.commands < 1 {
				return usage("--commands: at least 1")
			}
			if _, err := exec.LookPath(s.command[0]); err != nil {
				return usage("%v", err)
			}
			o, err := r.relayOptions(c, a)
			if err != nil {
				return err
			}
			return s.run(c.Context(), o)
		},
	}
	c.Flags().IntVar(&s.commands, "commands", 16, "the most commands at a time, a `NUMBER`; more requests are answered with the failure busy")
	return c
}

func (s *relayServer) run(ctx context.Context, o relay.Options) error {
	o.Concurrent, s.ctx = s.commands, ctx
	o.Buffer, o.Hold = 4<<20, 10*time.Second // for a command that reads in bursts; the relay is patient for 30 s
	c, err := relayConnect(ctx, o)
	if err != nil {
		return err
	}
	defer c.Close()
	c.OnRole(func(_ string, role relay.Role) { s.say(s.stdout, "serving %s: %s", s.topic, role) })
	c.OnError(func(err error) { s.say(s.stderr, "routectl: %s", oneLine(err.Error())) })
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	role, err := c.Serve(call, s.topic, s.handle)
	if err != nil {
		return relayFailed(o, err)
	}
	s.say(s.stdout, "serving %s: %s", s.topic, role)
	<-ctx.Done()
	call, cancel = context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	c.Unserve(call, s.topic) // the next in line takes over before the connection goes
	c.Idle(call)             // and those whose commands were killed are told
	return nil
}

func (s *relayServer) say(w io.Writer, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(w, format+"\n", args...)
}

// endTimeout bounds what is said when a serve is interrupted.
const endTimeout = 2 * time.Second

// maxHeadInEnv bounds what is put into an environment: a system refuses to start a program with a long one.
const maxHeadInEnv = 32 << 10

// handle runs the command for a request.
func (s *relayServer) handle(ctx context.Context, q *relay.Request) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	cmd := exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	cmd.Env = append(os.Environ(), "RELAY_TOPIC="+q.Topic)
	if head := compact(q.Head); len(head) <= maxHeadInEnv {
		cmd.Env = append(cmd.Env, "RELAY_HEAD="+string(head))
	}
	cmd.Stderr = lockedWriter{s}
	cmd.WaitDelay = time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		if ctx.Err() == nil { // else the client has given up already
			s.say(s.stderr, "routectl: %v", err)
		}
		return &relay.Error{Code: "failed", Message: "the command cannot be run"}
	}
	stop := context.AfterFunc(ctx, func() { stdout.Close() }) // a child of the command may have it open
	defer stop()
	var failed atomic.Pointer[error]
	go func() { // ends with the body, or with the request, or when the command reads no more
		if err := feed(stdin, q); err != nil {
			failed.Store(&err)
			cancel()
		}
	}()
	sendErr := sendParts(q, stdout)
	if sendErr != nil {
		cancel()
	}
	err = cmd.Wait()
	if f := failed.Load(); f != nil {
		return *f
	}
	if err != nil && s.ctx.Err() != nil {
		return &relay.Error{Code: "failed", Message: "the server was interrupted"}
	}
	return exitError(err, sendErr)
}

// feed writes a request to the standard input of a command. A command that does not read all of it is none of its errors.
func feed(stdin io.WriteCloser, q *relay.Request) error {
	defer stdin.Close()
	if q.Head != nil && writeLine(stdin, q.Head) != nil {
		return nil
	}
	for part, err := range q.Body() {
		if err != nil {
			if relay.CodeOf(err) == relay.Closed { // it was answered, or the connection is gone
				return nil
			}
			return err
		}
		if writePart(stdin, part) != nil {
			return nil
		}
	}
	return nil
}

// sendParts sends the standard output of a command as it comes.
func sendParts(q *relay.Request, stdout io.Reader) error {
	for part, err := range relay.FromReader(stdout) {
		if err != nil {
			if errors.Is(err, os.ErrClosed) {
				return nil // the context says why
			}
			return err
		}
		if err := q.Send(part); err != nil {
			return err
		}
	}
	return nil
}

// exitError is what becomes of a request whose command has ended.
func exitError(exit, send error) error {
	switch x, isExit := errors.AsType[*exec.ExitError](exit); {
	case send != nil:
		return send
	case exit == nil, errors.Is(exit, exec.ErrWaitDelay):
		return nil
	case isExit:
		return &relay.Error{Code: "failed", Message: x.ProcessState.String()}
	}
	return exit
}

// lockedWriter is the standard error that commands share.
type lockedWriter struct{ s *relayServer }

func (w lockedWriter) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.s.stderr.Write(p)
}

// compact is JSON on one line.
func compact(data json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return []byte(strings.ReplaceAll(string(data), "\n", " "))
	}
	return b.Bytes()
}
