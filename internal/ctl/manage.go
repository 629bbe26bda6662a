package ctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

// caller makes AMQP Management calls. The fake of the tests is another one.
type caller interface {
	call(ctx context.Context, q call) (reply, error)
	replyTo() string // where the answers go
	close()
}

// call is one management request. body is a map, or nil.
type call struct {
	operation, kind, name string
	properties            map[string]any
	body                  map[string]any
}

// reply is the answer to a call that was done (a status below 300).
type reply struct {
	status     int
	properties map[string]any
	body       any
}

// manager is a management client on one connection: a link to $management, and a dynamic source for the answers.
type manager struct {
	at       endpoint
	conn     *amqp.Conn
	sender   requestSender
	receiver *amqp.Receiver
	next     uint64 // correlation id of the next call
}

// requestSender is the part of *amqp.Sender that a manager needs.
type requestSender interface {
	Send(ctx context.Context, msg *amqp.Message, o *amqp.SendOptions) error
}

const managementNode = "$management"

func openManager(ctx context.Context, at endpoint) (*manager, error) {
	conn, session, err := at.dial(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	m := &manager{at: at, conn: conn}
	m.receiver, err = session.NewReceiver(ctx, "", &amqp.ReceiverOptions{DynamicAddress: true, Credit: 4, MaxMessageSize: maxReplyBytes})
	if err == nil {
		m.sender, err = session.NewSender(ctx, managementNode, nil)
	}
	if err != nil {
		conn.Close()
		return nil, m.failed(err, callTimeout)
	}
	return m, nil
}

// close detaches the receiver before it closes the connection, so that its row is out of the table when routectl ends:
// the next command must not list it.
func (m *manager) close() {
	ctx, cancel := context.WithTimeout(context.Background(), detachTimeout)
	defer cancel()
	m.receiver.Close(ctx)
	m.conn.Close()
}

// detachTimeout bounds the wait for a detach that nothing depends on.
const detachTimeout = 2 * time.Second

func (m *manager) replyTo() string { return m.receiver.Address() }

// failed turns the failure of a link or connection into words: the door is closed to us (1), or gone (3).
func (m *manager) failed(err error, within time.Duration) error {
	if errors.Is(err, context.Canceled) {
		return no("interrupted")
	}
	if remote, ok := errors.AsType[*amqp.Error](err); ok {
		switch remote.Condition {
		case amqp.ErrCondUnauthorizedAccess, amqp.ErrCondNotAllowed:
			return no("%s: management refused: %s: %s", m.at.addr, describe(remote), m.at.credentialHint())
		case amqp.ErrCondNotFound:
			return no("%s: has no %s: is it a Fingerpost router?", m.at.addr, managementNode)
		case amqp.ErrCondMessageSizeExceeded:
			return no("%s: too much at once: %s (load takes tables of any size)", m.at.addr, describe(remote))
		}
		return unreachable("%s: %s", m.at.addr, describe(remote))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return unreachable("%s: no answer within %v", m.at.addr, within)
	}
	return connectionLost(m.at.addr, err)
}

// connectionLost tells that the router has gone, in its words where it said any.
func connectionLost(at string, err error) error {
	if remote, ok := errors.AsType[*amqp.Error](err); ok {
		return unreachable("%s: connection lost: %s", at, describe(remote))
	}
	return unreachable("%s: connection lost: %s", at, oneLine(err.Error()))
}

func describe(e *amqp.Error) string {
	if e == nil {
		return "no reason given"
	}
	if e.Description == "" {
		return string(e.Condition)
	}
	return oneLine(fmt.Sprintf("%s: %s", e.Condition, e.Description))
}

// call sends one request and waits for its answer. A status of 300 or more is a statusError.
func (m *manager) call(ctx context.Context, q call) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, q.timeout())
	defer cancel()
	m.next++
	id := m.next
	if err := m.sender.Send(ctx, q.message(id, m.replyTo()), nil); err != nil {
		return reply{}, m.failed(sendError(ctx, err), q.timeout())
	}
	for {
		msg, err := m.receiver.Receive(ctx, nil)
		if err != nil {
			return reply{}, m.failed(err, q.timeout())
		}
		if err := m.receiver.AcceptMessage(ctx, msg); err != nil {
			return reply{}, m.failed(err, q.timeout())
		}
		if msg.Properties == nil || msg.Properties.CorrelationID != any(id) {
			continue // the answer to a call that was given up
		}
		return readReply(msg)
	}
}

// timeout is how long a call may take. What changes the table may be behind a load of a million rows, or be one.
func (q call) timeout() time.Duration {
	switch q.operation {
	case "QUERY", "READ", "EXPLAIN", "HISTORY", "LOAD-BEGIN", "LOAD-CHUNK", "LOAD-ABORT", "WATCH":
		return callTimeout
	}
	return longCallTimeout
}

// message is the request of a call.
func (q call) message(id uint64, replyTo string) *amqp.Message {
	to := managementNode
	properties := map[string]any{"operation": q.operation, "type": q.kind, "name": q.name}
	maps.Copy(properties, q.properties)
	body := q.body
	if body == nil {
		body = map[string]any{}
	}
	return &amqp.Message{
		Properties:            &amqp.MessageProperties{MessageID: id, CorrelationID: id, ReplyTo: &replyTo, To: &to},
		ApplicationProperties: properties,
		Value:                 sendable(body),
	}
}

// sendable is v as an AMQP value can carry it: text that is not UTF-8 goes as binary, which the router takes for text.
func sendable(v any) any {
	switch v := v.(type) {
	case string:
		return text(v)
	case []any:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = sendable(x)
		}
		return list
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, x := range v {
			m[strings.ToValidUTF8(k, "\uFFFD")] = sendable(x)
		}
		return m
	}
	return v
}

// received is v with text for binary, the other way round: in an answer of the router all bytes are text.
func received(v any) any {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case []any:
		for i, x := range v {
			v[i] = received(x)
		}
	case map[string]any:
		for k, x := range v {
			v[k] = received(x)
		}
	case map[any]any:
		for k, x := range v {
			v[k] = received(x)
		}
	}
	return v
}

func readReply(msg *amqp.Message) (reply, error) {
	status, ok := whole(msg.ApplicationProperties["statusCode"])
	if !ok {
		return reply{}, unreachable("the answer has no statusCode: is it a management node?")
	}
	r := reply{status: int(status), properties: msg.ApplicationProperties, body: received(msg.Value)}
	if status >= 300 {
		text, _ := msg.ApplicationProperties["statusDescription"].(string)
		return r, &statusError{status: int(status), text: text}
	}
	return r, nil
}

// statusError is a management answer that is a refusal.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string {
	if e.text == "" {
		return fmt.Sprintf("refused with status %d", e.status)
	}
	return oneLine(e.text)
}

// whole reads a number of any width.
func whole(v any) (int64, bool) {
	rv := reflect.ValueOf(v)
	switch rv.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return rv.Int(), true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return int64(rv.Uint()), true
	}
	return 0, false
}
