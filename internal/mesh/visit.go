package mesh

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// visit is a component that is there for one request of HTTP. It has a link and a twin like others, so that what it says is treated as what they say; but
// the twin is in no register: nothing leads to it, and nobody is told that it came.
type visit struct {
	m *Mesh
	l *link
	x *exchange
}

// visit begins one; end ends it. name is empty where nobody says who asks; attested tells that the name was proven.
func (m *Mesh) visit(name string, attested, loopback bool, from string) *visit {
	x := &exchange{limit: m.o.HardQueue}
	l := &link{m: m, t: x, loopback: loopback, from: from, login: login{name: name, attested: attested}}
	if name == "" {
		name = newName()
	}
	t := newTwin(m, name)
	t.attach(l, false, false)
	l.use(t)
	l.source.link, l.copyOf.link = l, l
	l.in, l.copies = m.inlet(&l.source, false), m.inlet(&l.copyOf, true)
	return &visit{m, l, x}
}

func (v *visit) end() { v.l.twin.Load().detach(v.l) }

// publish sends a publish without QoS. An error says why it is refused, or cannot be sent.
func (v *visit) publish(topic string, data []byte) error {
	bad := badName(topic)
	switch {
	case bad != "":
		bad = "bad topic: " + bad
	case !v.m.mayUse(v.l.twin.Load(), topic):
		bad = "unauthorized"
	}
	if bad != "" {
		v.m.count.refused.Add(1)
		return errors.New(bad)
	}
	err := v.l.handlePublish(&Frame{Type: Publish, Name: []byte(topic), Data: data})
	v.l.flushAll()
	return err
}

// ask makes a request. wait has the answer.
func (v *visit) ask(f *Frame) error {
	err := v.l.handleRequest(f)
	v.l.flushAll()
	return err
}

// wait waits until what was expected is answered, ctx or the router ends, or d is over.
func (v *visit) wait(ctx context.Context, d time.Duration) {
	alarm := time.NewTimer(d)
	defer alarm.Stop()
	select {
	case <-v.x.complete():
	case <-alarm.C:
	case <-ctx.Done():
	case <-v.m.ctx.Done():
	}
}

// exchange is the transport of a visit: it keeps the answers that are expected, up to a limit.
type exchange struct {
	limit int // bytes

	sync.Mutex // guards what follows
	answers    map[ID]*answer
	left       int           // that have not come
	size       int           // of those that have
	done       chan struct{} // closed when all have come; nil: nobody waits
}

// answer is what came for a request.
type answer struct {
	status Status
	data   []byte
	came   bool
}

// errTooMuch is an answer that there is no room for.
var errTooMuch = appendText(nil, "the answers are too long")

// expect has the answer of a request be kept.
func (x *exchange) expect(id ID) {
	x.Lock()
	defer x.Unlock()
	if x.answers == nil {
		x.answers = map[ID]*answer{}
	}
	x.answers[id.bare()] = &answer{}
	x.left++
}

// complete gives a channel that is closed when all has come.
func (x *exchange) complete() <-chan struct{} {
	x.Lock()
	defer x.Unlock()
	x.done = make(chan struct{})
	if x.left == 0 {
		close(x.done)
	}
	return x.done
}

// answer gives what came for a request.
func (x *exchange) answer(id ID) answer {
	x.Lock()
	defer x.Unlock()
	if a := x.answers[id.bare()]; a != nil && a.came {
		return *a
	}
	return answer{status: StatusError, data: appendText(nil, "request timeout")}
}

// append takes what the router sends. Called with the lock.
func (x *exchange) append(_ bool, message []byte) {
	var f Frame
	if ParseFrame(message, &f) != nil || f.Type != Response {
		return
	}
	a := x.answers[f.ID.bare()]
	if a == nil || a.came {
		return
	}
	*a = answer{f.Status, bytes.Clone(f.Data), true}
	if x.size += len(f.Data); x.size > x.limit {
		a.status, a.data = StatusError, errTooMuch
	}
	if x.left--; x.left == 0 && x.done != nil {
		close(x.done)
	}
}

func (x *exchange) Flush()            {}
func (x *exchange) Pending() int      { return 0 }
func (x *exchange) Abort(error)       {}
func (x *exchange) close(int, string) {}
func (x *exchange) end()              {}
func (x *exchange) remote() net.Addr  { return &net.TCPAddr{} }
func (x *exchange) next() (data []byte, text, more bool, err error) {
	return nil, false, false, errors.ErrUnsupported
}
