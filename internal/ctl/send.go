package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/Azure/go-amqp"
	"github.com/spf13/cobra"
)

// sendWindow is how many messages wait for their outcome at once.
const sendWindow = 100

type sendOptions struct {
	address    string
	link       string // target of the link; empty is the anonymous terminus
	body       []byte
	count      int
	settled    bool
	properties map[string]any
	timeout    time.Duration
}

// outcome is what became of one message.
type outcome struct {
	Message   int    `json:"message"` // from 1
	Outcome   string `json:"outcome"` // accepted, rejected, released, modified, settled, none
	Condition string `json:"condition,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

func (o outcome) taken() bool { return o.Outcome == "accepted" || o.Outcome == "settled" }

func (o outcome) String() string {
	s := o.Outcome
	if o.Condition != "" {
		s += " " + o.Condition
	}
	if o.Reason != "" {
		s += ": " + o.Reason
	}
	return s
}

func sendCommand(r *run) *cobra.Command {
	var o sendOptions
	var properties []string
	c := &cobra.Command{
		Use:   "send ADDRESS [BODY]",
		Short: "send small messages and print each outcome",
		Long: `Send sends messages to ADDRESS, on a link without a target (the message says where it goes) or, with --link, on
a link with that target, and prints one line for each: accepted, rejected with the reason, released or modified.
BODY is one data section; "-" reads it from standard input. Exit status 1 says that a message was not accepted.`,
		Args: arguments(cobra.RangeArgs(1, 2)),
		RunE: func(c *cobra.Command, argv []string) error {
			if err := carried("send", argv[0]); err != nil {
				return err
			}
			o.address = argv[0]
			var err error
			if len(argv) == 2 {
				o.body = []byte(argv[1])
				if argv[1] == "-" {
					if o.body, err = io.ReadAll(r.env.Stdin); err != nil {
						return no("read the body from standard input: %v", err)
					}
				}
			}
			if o.count < 1 {
				return usage("--count: at least 1")
			}
			if o.properties, err = parseProperties(properties); err != nil {
				return err
			}
			if err := onWire("send", append([]string{o.address, o.link}, properties...)...); err != nil {
				return err
			}
			return r.send(c.Context(), o)
		},
	}
	c.Flags().IntVar(&o.count, "count", 1, "how many `times`")
	c.Flags().StringVar(&o.link, "link", "", "attach to this `TARGET` instead of the anonymous terminus")
	c.Flags().BoolVar(&o.settled, "settled", false, "send settled: there is no outcome")
	c.Flags().StringArrayVar(&properties, "property", nil, "application property `K=V` (may be repeated)")
	c.Flags().DurationVar(&o.timeout, "timeout", time.Minute, "wait this long for each outcome")
	return c
}

// onWire refuses words that a message cannot hold: strings of AMQP are UTF-8.
func onWire(verb string, words ...string) error {
	for _, w := range words {
		if !utf8.ValidString(w) {
			return usage("%s: %q is not UTF-8, and addresses and properties of messages are", verb, w)
		}
	}
	return nil
}

func (r *run) send(ctx context.Context, o sendOptions) error {
	at, err := r.endpoint()
	if err != nil {
		return err
	}
	conn, session, err := at.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	mode := amqp.SenderSettleModeMixed
	openCtx, cancel := context.WithTimeout(ctx, callTimeout)
	sender, err := session.NewSender(openCtx, o.link, &amqp.SenderOptions{SettlementMode: &mode})
	cancel()
	if err != nil {
		return linkFailed(at, "send to "+o.address, err)
	}
	notTaken := 0
	p := r.stream()
	stop := r.tellOfWaiting(&o)
	defer stop()
	report := func(x outcome) error {
		stop()
		if !x.taken() {
			notTaken++
		}
		return p.item(x, x.String())
	}
	if err := sendAll(ctx, sender, o, report); err != nil {
		if lost := conn.Err(); lost != nil {
			return connectionLost(at.addr, lost)
		}
		return linkFailed(at, "send to "+o.address, err)
	}
	if notTaken > 0 {
		return silentNo
	}
	return nil
}

// quietWait is how long a person is left without a word.
const quietWait = 3 * time.Second

// tellOfWaiting tells a person why nothing is seen, once, where no outcome has come for a while. A script sees none of it.
func (r *run) tellOfWaiting(o *sendOptions) (stop func() bool) {
	if !r.env.Terminal {
		return func() bool { return false }
	}
	return time.AfterFunc(quietWait, func() {
		fmt.Fprintf(r.env.Stderr, "waiting for an outcome, up to %v: routectl explain %q says where the message goes, routectl hops which peers are away\n", o.timeout, o.address)
	}).Stop
}

// messageSender is the part of *amqp.Sender that sendAll needs.
type messageSender interface {
	Send(ctx context.Context, msg *amqp.Message, o *amqp.SendOptions) error
	SendWithReceipt(ctx context.Context, msg *amqp.Message, o *amqp.SendWithReceiptOptions) (amqp.SendReceipt, error)
}

// sendAll sends o.count messages with a window of sendWindow and reports the outcomes in order. A message that gets
// no credit or no outcome in time is reported as none, and so are, unsent, those behind it. An error means that the
// link or the connection has gone.
func sendAll(ctx context.Context, s messageSender, o sendOptions, report func(outcome) error) error {
	var window []amqp.SendReceipt // of the messages from 1+settledCount on
	reported := 0
	settleOne := func() error {
		wait, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		state, err := window[0].Wait(wait)
		reported++
		window = window[1:]
		if err != nil && isDeadline(err) {
			return report(outcome{Message: reported, Outcome: "none", Reason: fmt.Sprintf("no outcome within %v", o.timeout)})
		}
		if err != nil {
			return err
		}
		return report(outcomeOf(reported, state))
	}
	for i := range o.count {
		msg := o.message()
		wait, cancel := context.WithTimeout(ctx, o.timeout)
		var err error
		var receipt amqp.SendReceipt
		if o.settled {
			err = s.Send(wait, msg, &amqp.SendOptions{Settled: true})
		} else {
			receipt, err = s.SendWithReceipt(wait, msg, nil)
		}
		expired := wait.Err() != nil && ctx.Err() == nil
		cancel()
		if err != nil {
			for len(window) > 0 {
				if err := settleOne(); err != nil {
					return err
				}
			}
			if !expired {
				return sendError(ctx, err)
			}
			for ; i < o.count; i++ {
				if err := report(outcome{Message: i + 1, Outcome: "none", Reason: fmt.Sprintf("not sent: no credit within %v", o.timeout)}); err != nil {
					return err
				}
			}
			return nil
		}
		if o.settled {
			if err := report(outcome{Message: i + 1, Outcome: "settled"}); err != nil {
				return err
			}
			continue
		}
		if window = append(window, receipt); len(window) == sendWindow {
			if err := settleOne(); err != nil {
				return err
			}
		}
	}
	for len(window) > 0 {
		if err := settleOne(); err != nil {
			return err
		}
	}
	return nil
}

// message makes a fresh message. The data section is there even where it is empty: go-amqp sends no transfer at all
// for a message without a section, and then waits for its outcome.
func (o *sendOptions) message() *amqp.Message {
	body := o.body
	if body == nil {
		body = []byte{}
	}
	to := o.address
	return &amqp.Message{
		Properties:            &amqp.MessageProperties{To: &to},
		ApplicationProperties: o.properties,
		Data:                  [][]byte{body},
	}
}

func outcomeOf(message int, state amqp.DeliveryState) outcome {
	o := outcome{Message: message}
	switch s := state.(type) {
	case *amqp.StateAccepted:
		o.Outcome = "accepted"
	case *amqp.StateReleased:
		o.Outcome = "released"
	case *amqp.StateRejected:
		o.Outcome = "rejected"
		if s.Error != nil {
			o.Condition, o.Reason = string(s.Error.Condition), oneLine(s.Error.Description)
		}
	case *amqp.StateModified:
		o.Outcome = "modified"
		switch {
		case s.UndeliverableHere && s.DeliveryFailed:
			o.Reason = "delivery failed, undeliverable here"
		case s.DeliveryFailed:
			o.Reason = "delivery failed"
		case s.UndeliverableHere:
			o.Reason = "undeliverable here"
		}
	default:
		o.Outcome, o.Reason = "none", fmt.Sprintf("settled without an outcome (%T)", state)
	}
	return o
}

// sendError is why a message was not sent. Where ctx ends while there is no credit, go-amqp says that a limit was exceeded, which is not so.
func sendError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func isDeadline(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// linkFailed puts in words why a link could not be attached or was lost: an answer (1) or a lost connection (3).
func linkFailed(at endpoint, what string, err error) error {
	if errors.Is(err, context.Canceled) {
		return no("interrupted")
	}
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	if remote, ok := errors.AsType[*amqp.Error](err); ok {
		return no("%s: %s: %s", at.addr, what, describe(remote))
	}
	if isDeadline(err) {
		return unreachable("%s: %s: no answer in time", at.addr, what)
	}
	if _, ok := errors.AsType[*amqp.LinkError](err); ok {
		return no("%s: %s: the router closed the link without a reason", at.addr, what)
	}
	if _, ok := errors.AsType[*amqp.ConnError](err); ok {
		return unreachable("%s: %s: the router closed the connection", at.addr, what)
	}
	return unreachable("%s: %s: %s", at.addr, what, oneLine(err.Error()))
}
