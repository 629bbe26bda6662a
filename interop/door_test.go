package interop

import (
	"context"
	"fmt"

	"github.com/Azure/go-amqp"
)

// door is a management client on a connection of its own. It may have several requests on their way: the router answers those of one
// connection in their order.
type door struct {
	conn     *amqp.Conn
	sender   *amqp.Sender
	receiver *amqp.Receiver
	sent     uint64 // requests
	answered uint64
}

// openDoor connects. Its errors are returned, since the router may be killed at any time.
func openDoor(ctx context.Context, url string) (*door, error) {
	conn, err := amqp.Dial(ctx, url, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous(), MaxFrameSize: 65536})
	if err != nil {
		return nil, err
	}
	d := &door{conn: conn}
	session, err := conn.NewSession(ctx, nil)
	if err == nil {
		d.receiver, err = session.NewReceiver(ctx, "", &amqp.ReceiverOptions{DynamicAddress: true, Credit: 100})
	}
	if err == nil {
		d.sender, err = session.NewSender(ctx, "$management", &amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeSettled.Ptr()})
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return d, nil
}

func (d *door) close() { d.conn.Close() }

// send sends a request for the table and does not wait.
func (d *door) send(ctx context.Context, operation string, arguments map[string]any) error {
	d.sent++
	to, replyTo := "$management", d.receiver.Address()
	return d.sender.Send(ctx, &amqp.Message{
		Properties:            &amqp.MessageProperties{MessageID: d.sent, CorrelationID: d.sent, ReplyTo: &replyTo, To: &to},
		ApplicationProperties: map[string]any{"operation": operation, "type": "table", "name": "main"},
		Value:                 arguments,
	}, nil)
}

// reply is the answer to a request.
type reply struct {
	status                  int
	text                    string
	revision                uint64
	added, removed, updated uint64
}

// changed reports whether the request made a revision.
func (a reply) changed() bool { return a.status == 200 && a.added+a.removed+a.updated > 0 }

// answer waits for the answer to the oldest request that has none.
func (d *door) answer(ctx context.Context) (reply, error) {
	msg, err := d.receiver.Receive(ctx, nil)
	if err != nil {
		return reply{}, err
	}
	if err := d.receiver.AcceptMessage(ctx, msg); err != nil {
		return reply{}, err
	}
	if d.answered++; msg.Properties == nil || msg.Properties.CorrelationID != any(d.answered) {
		return reply{}, fmt.Errorf("an answer has the properties %v, want the correlation id %d", msg.Properties, d.answered)
	}
	var a reply
	status, _ := msg.ApplicationProperties["statusCode"].(int32)
	a.status = int(status)
	a.text, _ = msg.ApplicationProperties["statusDescription"].(string)
	a.revision, _ = msg.ApplicationProperties["revision"].(uint64)
	body, _ := msg.Value.(map[string]any)
	a.added, _ = body["added"].(uint64)
	a.removed, _ = body["removed"].(uint64)
	a.updated, _ = body["updated"].(uint64)
	return a, nil
}

// call sends a request and waits for its answer.
func (d *door) call(ctx context.Context, operation string, arguments map[string]any) (reply, error) {
	if err := d.send(ctx, operation, arguments); err != nil {
		return reply{}, err
	}
	return d.answer(ctx)
}
