package forwarder

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// Receivers of names whose scheme keeps an order, as event: does: they can have what came before, and are told when they miss something.

// Replayer is a Scheme whose names have an order, and can be received from as of a time gone by. A receiver asks for that with from_time, as a filter
// of its source or a property of its link.
type Replayer interface {
	// CheckName says why nothing can be received from name.
	CheckName(name string) error

	// CheckFrom says why a receiver cannot have what came from then on: what it asked for, as text; empty is everything.
	CheckFrom(from string) error

	// Replay calls begin once, with what came to name from then on; nil is nothing. begin makes the receiver's row: what comes to the name later is not
	// to be sent on before begin returns. With from Restart that is what it has missed by what Left was told of who; all where nothing is known.
	Replay(name, who, from string, begin func(Replay))

	// Now gives a place in the order before all that is to come. It takes no lock.
	Now() int64

	// Left is told of a receiver that has gone, and from which place in the order on it was not handed what came.
	Left(who string, from int64)
}

// Restart is what a receiver asks for that was here before: to go on where it was when it went.
const Restart = "restart"

// Replay is what came before, oldest first. Its methods are called under a connection's lock, and take none.
type Replay interface {
	// Append appends the next message, whole; nothing where there is none. Next takes it off, Tag is its place in the order.
	Append(dst []byte) []byte
	Next()
	Tag() int64
}

// fromTime is the name of the filter, and of the property.
const fromTime = "from_time"

// replayer finds the scheme of a name that has an order; nil: it has none.
func (n *Node) replayer(address string) (r Replayer, name string) {
	scheme, ok := routetable.ReservedScheme(address)
	if !ok || n.schemes[scheme] == nil {
		return nil, ""
	}
	if r, ok = n.schemes[scheme].(Replayer); !ok {
		return nil, ""
	}
	return r, address[len(scheme)+1:]
}

// checkOrdered says why an address whose scheme has an order cannot be received from. What comes there is sent on by the name as the scheme writes it.
func checkOrdered(address string, scheme Replayer, name string) *engine.LinkError {
	written := address[:len(address)-len(name)]
	err := scheme.CheckName(name)
	if small := strings.ToLower(written); err == nil && written != small {
		err = fmt.Errorf("%s is written in small letters: nothing comes to %.200q", small, address)
	}
	if err != nil {
		return &engine.LinkError{Condition: wire.CondInvalidField, Text: err.Error()}
	}
	return nil
}

// beginning is a receiver whose row is yet to be made, by the scheme of its address.
type beginning struct {
	r          *receiver
	name, from string
	answer     *wire.Source
	target     *wire.Target
}

// replayAsked gives what a receiver asks to have again; nil: nothing.
func (c *conn) replayAsked(l *engine.Link, scheme Replayer, name, address string) (*beginning, *engine.LinkError) {
	src := l.Remote().Source
	v, asked := src.Filter.Get(fromTime)
	var filter wire.Map
	if asked {
		filter = wire.Map{{Key: wire.Symbol(fromTime), Value: v}}
	} else if v, asked = l.Remote().Properties.Get(fromTime); !asked {
		return nil, nil
	}
	from, err := timeText(v)
	if err == nil {
		err = scheme.CheckFrom(from)
	}
	if err != nil {
		return nil, &engine.LinkError{Condition: wire.CondInvalidField, Text: err.Error()}
	}
	if pickOf(src) != routetable.PickAll {
		return nil, &engine.LinkError{Condition: wire.CondNotAllowed, Text: "from_time: receivers that share an address have no replay"}
	}
	answer := answerTo(src, address)
	answer.Filter = filter
	return &beginning{name: name, from: from, answer: answer, target: l.Remote().Target}, nil
}

// The first and the last time that RFC 3339 writes.
const (
	firstMilli wire.Timestamp = -62_167_219_200_000
	lastMilli  wire.Timestamp = 253_402_300_799_999
)

// timeText reads the value of from_time: a text or a timestamp, described or not.
func timeText(v any) (string, error) {
	if d, ok := v.(wire.Described); ok {
		v = d.Value
	}
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case wire.Symbol:
		return string(v), nil
	case wire.Timestamp:
		v = max(firstMilli, min(v, lastMilli)) // the least and greatest of a language are asked for, and their years have more digits
		return time.UnixMilli(int64(v)).UTC().Format(time.RFC3339Nano), nil
	}
	return "", fmt.Errorf("%s: a text or a timestamp is wanted", fromTime)
}

// begin has the scheme make the receiver's row. Called in turn.
func (b *beginning) begin() {
	r, f := b.r, b.r.follower
	if b.from == Restart && f.before != nil && !f.before.end(b) {
		return
	}
	f.before = nil
	f.scheme.Replay(b.name, f.who, b.from, func(p Replay) {
		c := r.c
		c.lock()
		defer c.release()
		if r.row == rowOver || r.l == nil { // it went meanwhile
			return
		}
		if p != nil {
			r.traffic = &traffic{replay: p}
			f.next = p.Tag()
		} else {
			f.next = f.scheme.Now()
		}
		c.rows = append(c.rows, r)
		r.l.Accept(b.answer, b.target, 0, engine.AttachOptions{})
		r.l.Resume()
	})
}

// replayed is a message of a replay on its way: its outcome is of no consequence.
type replayed struct {
	out engine.OutDelivery
	to  *follower
	tag int64
}

// pumpReplay sends of a replay what the link takes; true when there is no more of it. Called under the lock.
func (ln *line) pumpReplay() (done bool) {
	for ln.l != nil && ln.l.CanSend() {
		b := ln.replay.Append(ln.scratch[:0])
		if ln.scratch = b; len(b) == 0 {
			ln.replay, ln.redo = nil, nil
			return true
		}
		if limit := ln.l.MaxMessage(); limit == 0 || uint64(len(b)) <= limit {
			if !ln.sendReplayed(b) {
				return false
			}
			ln.sent++
			ln.c.sent++
			ln.n.count.replayed.Add(1)
		}
		ln.replay.Next()
	}
	return false
}

func (ln *line) sendReplayed(b []byte) bool {
	settled := ln.l.SenderMode() != engine.SenderUnsettled
	x := ln.redo
	if x == nil || !settled {
		x = &replayed{to: ln.follower}
		ln.redo = x
	}
	x.out.Context, x.tag = x, ln.replay.Tag()
	if !ln.l.Fits(len(b)) {
		b = bytes.Clone(b)
	}
	sent := ln.l.Send(&x.out, settled, 0, nil, b)
	ln.follower.began(x.tag, settled, sent)
	return sent != engine.Refused
}

// isOrdered tells whether the copy has a place in an order.
func (c *Copy) isOrdered() bool { return c.in.link != nil && c.in.link.inside != "" }

// mayNotMiss tells whether its hop has to be told where it misses the copy: an optional row's may.
func (c *Copy) mayNotMiss() bool { return c.isOrdered() && !c.planned().optional }

// tells tells whether the line is that of a receiver that a client attached, which can be told: whichever row leads there, and whatever its address.
func (ln *line) tells() bool { return ln.dialled == nil && !ln.toRouter }

// lastsUntil is when the life of an ordered copy is over: it waits for as long as there is room.
func (c *Copy) lastsUntil() int64 {
	if c.in.until != 0 {
		return c.in.until
	}
	return math.MaxInt64
}

// mustWait tells whether a copy may not be offered to the link before others are.
func (ln *line) mustWait(cp *Copy) bool {
	return ln.queue.n > 0 || cp.had().due != 0 || ln.replay != nil || ln.behind
}

// fallBehind: a line of an order does not take a copy. The link is detached, so that the receiver comes back for what it has missed; nothing of
// that order is sent any more until then. Called under the lock; perhaps under that of the order, so that others have to do it.
func (ln *line) fallBehind() {
	if !ln.behind {
		ln.behind = true
		ln.n.alarms.set(ln, now())
	}
}

// detachBehind detaches a link that has fallen behind. Called under the lock.
func (ln *line) detachBehind() {
	r, ok := ln.l.Context.(*receiver)
	if !ok {
		return
	}
	ln.n.count.behind.Add(1)
	ln.n.log.Warn("a receiver is detached: too many events wait for it", "address", r.address, "origin", r.origin(), "events", ln.queue.n, "bytes", ln.bytes)
	text := "too many events wait: attach again, with " + fromTime + ` "restart", or the time of the last event that came`
	if ln.follower == nil {
		text = "too many events wait: attach again; what was missed is at event:req/TYPE, with " + fromTime + ", the time of the last event that came"
	}
	ln.l.Detach(&engine.LinkError{Condition: wire.CondResourceLimitExceeded, Text: text})
}
