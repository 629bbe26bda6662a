package ctl

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/messenger/relay"
)

type relayRequest struct {
	topic, file, head string
	noBody, showHead  bool
	timeout           time.Duration
}

func relayRequestCommand(r *run, a *relayAccess) *cobra.Command {
	var q relayRequest
	c := &cobra.Command{
		Use:   "request TOPIC [FILE]",
		Short: "send a request, and print the response's body",
		Long: `Request sends a request to a topic, its body from FILE or standard input in parts of up to 32 KiB, and writes the body of the response to
standard output as it comes. Exit status 1 says that there was no whole response, or that it is a failure.`,
		Args: arguments(cobra.RangeArgs(1, 2)),
		RunE: func(c *cobra.Command, argv []string) error {
			q.topic = argv[0]
			if len(argv) == 2 {
				q.file = argv[1]
			}
			switch {
			case q.noBody && q.file != "":
				return usage("FILE and --no-body: give one of them")
			case q.head != "" && !json.Valid([]byte(q.head)):
				return usage("--head: this is no JSON (text is written \"in quotes\")")
			case q.timeout <= 0:
				return usage("--timeout: more than 0")
			}
			o, err := r.relayOptions(c, a)
			if err != nil {
				return err
			}
			return r.relayRequest(c.Context(), o, q)
		},
	}
	c.Flags().StringVar(&q.head, "head", "", "the head's data, `JSON`")
	c.Flags().BoolVar(&q.noBody, "no-body", false, "send the head alone")
	c.Flags().BoolVar(&q.showHead, "show-head", false, "print the data of the response's head, where it has any, as a line of JSON before the body")
	c.Flags().DurationVar(&q.timeout, "timeout", 30*time.Second, "give up when nothing has come for this long")
	return c
}

func (r *run) relayRequest(ctx context.Context, o relay.Options, q relayRequest) error {
	var body relay.Body
	if !q.noBody {
		in := r.env.Stdin
		if q.file != "" && q.file != "-" {
			f, err := os.Open(q.file)
			if err != nil {
				return usage("%v", err)
			}
			defer f.Close()
			in = f
		}
		body = relay.FromReader(in)
	}
	o.Timeout, o.NoReconnect = q.timeout, true
	o.Hold = math.MaxInt64 // there is nothing else on the connection
	c, err := relayConnect(ctx, o)
	if err != nil {
		return err
	}
	defer c.Close()
	var head json.RawMessage
	if q.head != "" {
		head = json.RawMessage(q.head)
	}
	response, err := c.Request(ctx, q.topic, head, body)
	if err != nil {
		return relayFailed(o, err)
	}
	defer response.Close()
	if err := r.relayResponse(q, response); err != nil {
		return relayFailed(o, err)
	}
	return nil
}

// relayResponse prints a response.
func (r *run) relayResponse(q relayRequest, response *relay.Response) error {
	if e, failed := relay.Failure(response.Head); failed {
		return no("%s: %s: %s", q.topic, e.Code, oneLine(e.Message))
	}
	if q.showHead && response.Head != nil {
		if err := writeLine(r.env.Stdout, response.Head); err != nil {
			return no("write the response: %v", err)
		}
	}
	for part, err := range response.Body() {
		if err != nil {
			return err
		}
		if e, failed := relay.Failure(part); failed {
			return no("%s: %s: %s", q.topic, e.Code, oneLine(e.Message))
		}
		if err := writePart(r.env.Stdout, part); err != nil {
			return no("write the response: %v", err)
		}
	}
	return nil
}

// writePart writes the bytes of a part, and other JSON as a line.
func writePart(w io.Writer, part json.RawMessage) error {
	p, isOther := relay.ParseBytes(part)
	if isOther {
		return writeLine(w, part)
	}
	_, err := w.Write(p)
	return err
}

// writeLine writes JSON as one line.
func writeLine(w io.Writer, data json.RawMessage) error {
	_, err := w.Write(append(compact(data), '\n'))
	return err
}
