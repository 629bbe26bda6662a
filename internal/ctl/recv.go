package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/Azure/go-amqp"
	"github.com/spf13/cobra"
)

// recvCredit is the most that is asked for at once where there is no count.
const recvCredit = 100

type recvOptions struct {
	address string
	pattern bool // the address is one
	count   int  // 0 is until stopped
	timeout time.Duration
}

func recvCommand(r *run) *cobra.Command {
	var o recvOptions
	c := &cobra.Command{
		Use:   "recv ADDRESS",
		Short: "receive messages, accept them and print their bodies",
		Long: `Recv attaches a receiver to ADDRESS, accepts what comes and prints the bodies, one a line; "-o json" prints the
whole message. With --pattern it gets what fits ADDRESS, such as "eu/*"; that needs role operator. An ADDRESS such as "amqp://~127.0.0.1:7001" listens there instead, for routers to dial. Exit status 1 says that the timeout ended with fewer than --count messages.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, argv []string) error {
			if err := carried("recv", argv[0]); err != nil {
				return err
			}
			o.address = argv[0]
			if o.count < 0 || o.timeout < 0 {
				return usage("--count and --timeout: from 0 up")
			}
			if o.pattern && listens(o.address) {
				return usage("--pattern is for names at a router: %s listens here", o.address)
			}
			if err := onWire("recv", o.address); err != nil {
				return err
			}
			return r.recv(c.Context(), o)
		},
	}
	c.Flags().BoolVar(&o.pattern, "pattern", false, "ADDRESS is a pattern")
	c.Flags().IntVar(&o.count, "count", 1, "how many `messages`; 0 is until --timeout or Ctrl-C")
	c.Flags().DurationVar(&o.timeout, "timeout", 0, "give up after this `time`, all in all; 0 is never")
	return c
}

func (r *run) recv(ctx context.Context, o recvOptions) error {
	if listens(o.address) {
		return r.recvListening(ctx, o)
	}
	at, err := r.endpoint()
	if err != nil {
		return err
	}
	conn, session, err := at.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	openCtx, cancel := context.WithTimeout(ctx, callTimeout)
	options := &amqp.ReceiverOptions{Credit: -1, MaxMessageSize: maxReplyBytes}
	if o.pattern {
		options.SourceCapabilities = []string{"fingerpost:pattern"}
	}
	receiver, err := session.NewReceiver(openCtx, o.address, options)
	cancel()
	if err != nil {
		return linkFailed(at, "receive from "+o.address, err)
	}
	fmt.Fprintf(r.env.Stderr, "attached to %s\n", o.address)
	p := r.stream()
	got, err := recvAll(ctx, receiver, o, func(m *amqp.Message) error {
		view := viewMessage(m)
		return p.item(view, view.text(r.output == "wide"))
	})
	if err == nil {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), detachTimeout)
		defer cancel()
		receiver.Close(closeCtx)
	}
	switch {
	case err != nil && conn.Err() != nil:
		return connectionLost(at.addr, conn.Err())
	case err != nil:
		return linkFailed(at, "receive from "+o.address, err)
	case o.count > 0 && got < o.count && ctx.Err() == nil:
		return no("receive from %s: %d of %d messages within %v", o.address, got, o.count, o.timeout)
	case o.count > 0 && got < o.count:
		return no("interrupted: %d of %d messages", got, o.count)
	}
	return nil
}

// messageReceiver is the part of *amqp.Receiver that recvAll needs.
type messageReceiver interface {
	IssueCredit(credit uint32) error
	Receive(ctx context.Context, o *amqp.ReceiveOptions) (*amqp.Message, error)
	AcceptMessage(ctx context.Context, m *amqp.Message) error
}

// recvAll gives credit for no more than is wanted, so that nothing is taken from other receivers, and accepts each
// message once it was taken. The end of the timeout or of ctx is no error.
func recvAll(ctx context.Context, rc messageReceiver, o recvOptions, take func(*amqp.Message) error) (got int, err error) {
	wait := ctx
	if o.timeout > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	credit := 0
	for o.count == 0 || got < o.count {
		if credit == 0 {
			if credit = recvCredit; o.count > 0 {
				credit = min(credit, o.count-got)
			}
			if err := rc.IssueCredit(uint32(credit)); err != nil {
				return got, err
			}
		}
		m, err := rc.Receive(wait, nil)
		if err != nil && wait.Err() != nil {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		if err := take(m); err != nil {
			return got, err
		}
		settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		err = rc.AcceptMessage(settle, m)
		cancel()
		if err != nil {
			return got, err
		}
		got++
		credit--
	}
	return got, nil
}

// messageView is a whole message as "-o json" prints it. Symbols read as strings, binary that is text as text.
type messageView struct {
	Header                map[string]any `json:"header,omitempty"`
	DeliveryAnnotations   map[string]any `json:"delivery-annotations,omitempty"`
	MessageAnnotations    map[string]any `json:"message-annotations,omitempty"`
	Properties            map[string]any `json:"properties,omitempty"`
	ApplicationProperties map[string]any `json:"application-properties,omitempty"`
	Body                  any            `json:"body"`
	Footer                map[string]any `json:"footer,omitempty"`
}

func viewMessage(m *amqp.Message) messageView {
	v := messageView{
		DeliveryAnnotations:   plainMap(m.DeliveryAnnotations),
		MessageAnnotations:    plainMap(m.Annotations),
		ApplicationProperties: plainMap(m.ApplicationProperties),
		Footer:                plainMap(m.Footer),
	}
	if h := m.Header; h != nil {
		v.Header = map[string]any{"durable": h.Durable, "priority": h.Priority, "first-acquirer": h.FirstAcquirer, "delivery-count": h.DeliveryCount}
		if h.TTL > 0 {
			v.Header["ttl"] = h.TTL.Milliseconds()
		}
	}
	if p := m.Properties; p != nil {
		v.Properties = map[string]any{}
		set := func(name string, value any) {
			if rv := reflect.ValueOf(value); rv.IsValid() && !rv.IsZero() {
				v.Properties[name] = plain(value)
			}
		}
		set("message-id", p.MessageID)
		set("user-id", p.UserID)
		set("to", p.To)
		set("subject", p.Subject)
		set("reply-to", p.ReplyTo)
		set("correlation-id", p.CorrelationID)
		set("content-type", p.ContentType)
		set("content-encoding", p.ContentEncoding)
		set("absolute-expiry-time", p.AbsoluteExpiryTime)
		set("creation-time", p.CreationTime)
		set("group-id", p.GroupID)
		set("group-sequence", p.GroupSequence)
		set("reply-to-group-id", p.ReplyToGroupID)
	}
	switch {
	case len(m.Data) > 0:
		var all []byte
		for _, d := range m.Data {
			all = append(all, d...)
		}
		v.Body = plain(all)
	case len(m.Sequence) > 0:
		v.Body = plain(m.Sequence)
	default:
		v.Body = plain(m.Value)
	}
	return v
}

// text is the body as one printed item, with the properties in front of it where wide.
func (v messageView) text(wide bool) string {
	body, ok := v.Body.(string)
	if !ok && v.Body != nil {
		b, err := json.Marshal(v.Body)
		if err != nil {
			b = fmt.Append(nil, v.Body)
		}
		body = string(b)
	}
	if !wide {
		return body
	}
	var head []string
	for _, section := range []map[string]any{v.Properties, v.ApplicationProperties} {
		for _, k := range sortedKeys(section) {
			head = append(head, fmt.Sprintf("%s=%v", k, section[k]))
		}
	}
	return strings.Join(append(head, body), "\t")
}

// plain makes a decoded AMQP value printable as JSON and YAML: maps get string keys, bytes become text or hex.
func plain(v any) any {
	switch v := v.(type) {
	case nil, string, bool:
		return v
	case []byte:
		if utf8.Valid(v) {
			return string(v)
		}
		return fmt.Sprintf("hex:%x", v)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case fmt.Stringer: // uuid
		return v.String()
	}
	rv := reflect.ValueOf(v)
	switch rv.Kind() {
	case reflect.Pointer:
		if rv.IsNil() {
			return nil
		}
		return plain(rv.Elem().Interface())
	case reflect.Map:
		m := make(map[string]any, rv.Len())
		for it := rv.MapRange(); it.Next(); {
			m[fmt.Sprint(plain(it.Key().Interface()))] = plain(it.Value().Interface())
		}
		return m
	case reflect.Slice, reflect.Array:
		list := make([]any, rv.Len())
		for i := range list {
			list[i] = plain(rv.Index(i).Interface())
		}
		return list
	case reflect.String:
		return rv.String()
	case reflect.Float32, reflect.Float64:
		if f := rv.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Sprint(f)
		}
	case reflect.Struct:
		return fmt.Sprint(v)
	}
	return v
}

func plainMap(m any) map[string]any {
	if rv := reflect.ValueOf(m); rv.Len() == 0 {
		return nil
	}
	return plain(m).(map[string]any)
}
