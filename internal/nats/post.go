package nats

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Why nobody has a message that was posted.
var (
	ErrNobody = errors.New("nobody takes the subject")
	ErrLost   = errors.New("the connection was lost: whether anybody has it is not known")
)

// posts are messages of which is not known yet whether anybody takes them.
//
// Of a message that nobody takes the server tells on the connection that it came by, before it does anything with what comes next there. So when a message to
// oneself is back, somebody takes all that were sent before it and were not told of.
type posts struct {
	nc *nats.Conn

	mu      sync.Mutex // guards what follows
	inbox   string     // subject of answers, up to the number of the message
	sub     *nats.Subscription
	last    uint64        // number of the last message
	waiting []func(error) // those up to last, in order
	watched bool
	timer   *time.Timer
}

// postLife is after how long a server that tells nothing of messages is taken to have brought them.
const postLife = 5 * time.Second

// Post sends a message with the header ce_id, and another one where it is not empty. Where Post gives no error taken is called once: with nil, ErrNobody or
// ErrLost, soon after the next Ask.
func (c *Conn) Post(subject, id string, header [2]string, data []byte, taken func(error)) error {
	p := &c.posts
	m := message(subject, id, data)
	if header[0] != "" {
		m.Header.Set(header[0], header[1])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.begin(c.nc); err != nil {
		return err
	}
	m.Reply = p.inbox + strconv.FormatUint(p.last+1, 10)
	if err := p.nc.PublishMsg(m); err != nil {
		return err
	}
	p.last++
	p.waiting = append(p.waiting, taken)
	if !p.watched {
		p.watch()
	}
	return nil
}

// Ask has the server tell what became of all that was posted.
func (c *Conn) Ask() error {
	p := &c.posts
	p.mu.Lock()
	subject := p.inbox + strconv.FormatUint(p.last, 10)
	idle := len(p.waiting) == 0
	p.mu.Unlock()
	if idle {
		return nil
	}
	return c.nc.Publish(subject, nil)
}

// begin subscribes to answers. mu is held.
func (p *posts) begin(nc *nats.Conn) (err error) {
	if p.sub != nil {
		return nil
	}
	p.nc, p.inbox = nc, nats.NewInbox()+"."
	p.sub, err = nc.Subscribe(p.inbox+"*", p.answered)
	return err
}

// answered takes an answer.
func (p *posts) answered(m *nats.Msg) {
	n, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, p.inbox), 10, 64)
	if err != nil {
		return
	}
	nobody := m.Header.Get("Status") == "503"
	if nobody {
		p.tell(n-1, nil)
		p.tell(n, ErrNobody)
		return
	}
	p.tell(n, nil)
}

// tell tells what became of the messages up to a number.
func (p *posts) tell(upTo uint64, what error) {
	p.mu.Lock()
	first := p.last - uint64(len(p.waiting)) // the number before it
	n := 0
	if upTo = min(upTo, p.last); upTo > first {
		n = int(upTo - first)
	}
	done := p.waiting[:n]
	if p.waiting = p.waiting[n:]; len(p.waiting) == 0 {
		p.waiting = nil
	}
	p.mu.Unlock()
	for _, taken := range done {
		taken(what)
	}
}

// watch has what waits now told of in time, whatever the server says. mu is held.
func (p *posts) watch() {
	upTo := p.last
	p.watched = true
	p.timer = time.AfterFunc(postLife, func() {
		p.tell(upTo, nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.watched = len(p.waiting) > 0; p.watched {
			p.watch()
		}
	})
}

// lost tells of all that wait that the connection is gone.
func (p *posts) lost() {
	p.mu.Lock()
	if p.watched && p.timer.Stop() {
		p.watched = false
	}
	last := p.last
	p.mu.Unlock()
	p.tell(last, ErrLost)
}
