package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
)

func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		state amqp.DeliveryState
		want  string
		taken bool
	}{
		{&amqp.StateAccepted{}, "accepted", true},
		{&amqp.StateReleased{}, "released", false},
		{&amqp.StateRejected{}, "rejected", false},
		{&amqp.StateRejected{Error: &amqp.Error{Condition: "amqp:not-found", Description: "no row\nmatches"}}, "rejected amqp:not-found: no row; matches", false},
		{&amqp.StateRejected{Error: &amqp.Error{Condition: "fingerpost:loop"}}, "rejected fingerpost:loop", false},
		{&amqp.StateModified{}, "modified", false},
		{&amqp.StateModified{DeliveryFailed: true}, "modified: delivery failed", false},
		{&amqp.StateModified{UndeliverableHere: true}, "modified: undeliverable here", false},
		{nil, "none: settled without an outcome (<nil>)", false},
	} {
		o := outcomeOf(3, c.state)
		if o.String() != c.want || o.taken() != c.taken || o.Message != 3 {
			t.Errorf("%T: got %q, taken %v, want %q, %v", c.state, o, o.taken(), c.want, c.taken)
		}
	}
}

// An empty message has no section, and go-amqp then sends nothing and waits for ever.
func TestAnEmptyBodyIsASection(t *testing.T) {
	o := sendOptions{address: "COLOSSUS"}
	b, err := o.message().MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var m amqp.Message
	if err := m.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	if len(m.Data) != 1 || len(m.Data[0]) != 0 || *m.Properties.To != "COLOSSUS" {
		t.Errorf("got %+v", m)
	}
}

type fakeSender struct {
	sent    []string
	failAt  int
	failure error
	block   bool
}

func (f *fakeSender) Send(ctx context.Context, m *amqp.Message, o *amqp.SendOptions) error {
	if len(f.sent) == f.failAt && f.block {
		<-ctx.Done()
		return &amqp.Error{Condition: amqp.ErrCondTransferLimitExceeded}
	}
	if len(f.sent) == f.failAt && f.failure != nil {
		return f.failure
	}
	f.sent = append(f.sent, *m.Properties.To)
	if !o.Settled {
		return errors.New("unsettled")
	}
	return nil
}

func (f *fakeSender) SendWithReceipt(context.Context, *amqp.Message, *amqp.SendWithReceiptOptions) (amqp.SendReceipt, error) {
	return amqp.SendReceipt{}, errors.New("not here")
}

// An interrupt while there is no credit is an interrupt, at every verb that sends.
func TestInterruptWithoutCredit(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	at := endpoint{addr: "amqp://h:5672"}
	err := sendAll(ctx, &fakeSender{block: true}, sendOptions{address: "A", count: 1, settled: true, timeout: time.Minute}, func(outcome) error { return nil })
	_, callErr := (&manager{at: at, sender: &fakeSender{block: true}, receiver: &amqp.Receiver{}}).call(ctx, call{operation: "LOAD-CHUNK"})
	for verb, err := range map[string]error{"send": linkFailed(at, "send to A", err), "load": callErr} {
		if err == nil || err.Error() != "interrupted" || statusOf(err) != exitNo {
			t.Errorf("%s: got %v, exit %d, want interrupted, exit %d", verb, err, statusOf(err), exitNo)
		}
	}
}

func TestSettledSends(t *testing.T) {
	gone := errors.New("gone")
	for _, c := range []struct {
		name string
		s    fakeSender
		want []string
		err  error
	}{
		{"all are sent", fakeSender{failAt: -1}, []string{"settled", "settled", "settled"}, nil},
		{"a lost link is an error", fakeSender{failAt: 1, failure: gone}, []string{"settled"}, gone},
		{"without credit the rest has no outcome", fakeSender{failAt: 1, block: true}, []string{"settled", "none: not sent: no credit within 1ms", "none: not sent: no credit within 1ms"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			err := sendAll(context.Background(), &c.s, sendOptions{address: "A", count: 3, settled: true, timeout: time.Millisecond}, func(o outcome) error {
				got = append(got, o.String())
				return nil
			})
			if !slices.Equal(got, c.want) || err != c.err {
				t.Errorf("got %q, %v, want %q, %v", got, err, c.want, c.err)
			}
		})
	}
}

// A person is told once why nothing is seen; a script is not, nor is who had an outcome in time.
func TestWaitingForAnOutcomeIsTold(t *testing.T) {
	for _, c := range []struct {
		name     string
		terminal bool
		comes    time.Duration // the outcome
		want     string
	}{
		{"at a terminal", true, time.Minute, `waiting for an outcome, up to 1m0s: routectl explain "A" says where the message goes, routectl hops which peers are away` + "\n"},
		{"an outcome in time", true, time.Second, ""},
		{"in a script", false, time.Minute, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var errs strings.Builder
				r := &run{env: Env{Stderr: &errs, Terminal: c.terminal}}
				stop := r.tellOfWaiting(&sendOptions{address: "A", timeout: time.Minute})
				time.Sleep(c.comes)
				stop()
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := errs.String(); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
		})
	}
}

type fakeReceiver struct {
	messages []string
	credit   []uint32
	accepted int
	failure  error
}

func (f *fakeReceiver) IssueCredit(n uint32) error {
	f.credit = append(f.credit, n)
	return nil
}

func (f *fakeReceiver) Receive(ctx context.Context, _ *amqp.ReceiveOptions) (*amqp.Message, error) {
	if len(f.messages) == 0 {
		if f.failure != nil {
			return nil, f.failure
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	m := amqp.NewMessage([]byte(f.messages[0]))
	f.messages = f.messages[1:]
	return m, nil
}

func (f *fakeReceiver) AcceptMessage(context.Context, *amqp.Message) error {
	f.accepted++
	return nil
}

func TestReceiving(t *testing.T) {
	gone := errors.New("gone")
	for _, c := range []struct {
		name   string
		r      fakeReceiver
		o      recvOptions
		got    int
		credit []uint32
		err    error
	}{
		{"as many as asked for", fakeReceiver{messages: []string{"a", "b", "c"}}, recvOptions{count: 2}, 2, []uint32{2}, nil},
		{"fewer, when the timeout ends", fakeReceiver{messages: []string{"a"}}, recvOptions{count: 2, timeout: time.Millisecond}, 1, []uint32{2}, nil},
		{"no end but the timeout", fakeReceiver{messages: make([]string, 150)}, recvOptions{timeout: 20 * time.Millisecond}, 150, []uint32{100, 100}, nil},
		{"more than the window", fakeReceiver{messages: make([]string, 150)}, recvOptions{count: 130}, 130, []uint32{100, 30}, nil},
		{"a lost link", fakeReceiver{messages: []string{"a"}, failure: gone}, recvOptions{count: 2}, 1, []uint32{2}, gone},
	} {
		t.Run(c.name, func(t *testing.T) {
			taken := 0
			got, err := recvAll(context.Background(), &c.r, c.o, func(*amqp.Message) error { taken++; return nil })
			if got != c.got || taken != c.got || c.r.accepted != c.got || err != c.err || !slices.Equal(c.r.credit, c.credit) {
				t.Errorf("got %d (%d taken, %d accepted), credit %v, %v; want %d, %v, %v", got, taken, c.r.accepted, c.r.credit, err, c.got, c.credit, c.err)
			}
		})
	}
}

func TestWholeMessageAsJSON(t *testing.T) {
	subject, to := "s", "A"
	m := &amqp.Message{
		Header:                &amqp.MessageHeader{Durable: true, Priority: 4, TTL: 1500 * time.Millisecond},
		Annotations:           amqp.Annotations{"x-opt-a": int64(1)},
		Properties:            &amqp.MessageProperties{MessageID: amqp.UUID{1}, To: &to, Subject: &subject},
		ApplicationProperties: map[string]any{"k": "v", "n": int32(2)},
		Data:                  [][]byte{[]byte("hel"), []byte("lo")},
	}
	b, err := json.Marshal(viewMessage(m))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"header":{"delivery-count":0,"durable":true,"first-acquirer":false,"priority":4,"ttl":1500},"message-annotations":{"x-opt-a":1},` +
		`"properties":{"message-id":"01000000-0000-0000-0000-000000000000","subject":"s","to":"A"},"application-properties":{"k":"v","n":2},"body":"hello"}`
	if string(b) != want {
		t.Errorf("\n got %s\nwant %s", b, want)
	}
	for _, c := range []struct {
		m    *amqp.Message
		want string
	}{
		{amqp.NewMessage([]byte{0xff, 0}), "hex:ff00"},
		{amqp.NewMessage(nil), ""},
		{&amqp.Message{Value: "text"}, "text"},
		{&amqp.Message{Value: map[any]any{int64(1): []any{true, nil}}}, `{"1":[true,null]}`},
		{&amqp.Message{Sequence: [][]any{{int8(1), "b"}}}, `[[1,"b"]]`},
		{&amqp.Message{}, ""},
	} {
		if got := viewMessage(c.m).text(false); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
