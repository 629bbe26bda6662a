package forwarder

import (
	"container/list"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/routetable"
)

// Lost is an address whose messages went nowhere.
type Lost struct {
	Address     string
	Reason      string // why the last of them did
	Count       uint64
	First, Last time.Time
}

// maxLost bounds the tally of unrouted addresses: those that were seen last are kept.
const maxLost = 1000

// The lengths to which what a peer says is cut for people.
const (
	maxLostAddress = 200
	maxLostReason  = 200
)

// The reasons of an address that nothing matches, or nothing that is there. A table remembers ten thousand patterns that have no rows any more, not those of before
// it was opened.
const (
	reasonHandlerGone = "handler gone" // it had rows once
	reasonNotWired    = "not wired"    // it had none, as far as is remembered
	reasonNobodyReads = "nobody reads" // it has, to a hop where nobody is, or a topic without a subscriber
)

// lostTally counts messages that went nowhere, by address.
type lostTally struct {
	mu     sync.Mutex // guards what follows; a leaf
	of     map[string]*list.Element
	recent list.List // of *Lost, the latest first
}

// add notes a message. What is cut off may make two addresses one.
func (t *lostTally) add(address, reason string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.of[address]
	if e == nil {
		if len(t.of) >= maxLost {
			delete(t.of, t.recent.Remove(t.recent.Back()).(*Lost).Address)
		}
		if t.of == nil {
			t.of = map[string]*list.Element{}
		}
		address = strings.Clone(address)
		e = t.recent.PushFront(&Lost{Address: address, First: at})
		t.of[address] = e
	} else {
		t.recent.MoveToFront(e)
	}
	x := e.Value.(*Lost)
	x.Count++
	x.Last, x.Reason = at, reason
}

// newest gives the addresses, that of the latest message first.
func (t *lostTally) newest() []Lost {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Lost, 0, len(t.of))
	for e := t.recent.Front(); e != nil; e = e.Next() {
		all = append(all, *e.Value.(*Lost))
	}
	return all
}

// addressOf is the address of a message as a person would look for it.
func (l *inlink) addressOf(d *delivery) string {
	addr := l.wholeAddress(d)
	return string(addr[:min(len(addr), maxLostAddress)])
}

func (l *inlink) wholeAddress(d *delivery) []byte {
	if to, ok := d.To(); ok {
		return to
	}
	return []byte(l.target)
}

// noRoute says why a message finds no row, or none that leads to a hop.
func (l *inlink) noRoute(d *delivery, p *plan) string {
	if n := len(l.wholeAddress(d)); n > routetable.MaxTextBytes {
		return fmt.Sprintf("the address is longer than %d KiB (%d bytes)", routetable.MaxTextBytes>>10, n)
	}
	if p.unserved != "" {
		name := p.unserved[:min(len(p.unserved), maxLostAddress)]
		return "the address " + strconv.Quote(l.addressOf(d)) + " leads to " + strconv.Quote(name) + ", which no route matches"
	}
	if p.unread != "" {
		name := p.unread[:min(len(p.unread), maxLostAddress)]
		return "the address " + strconv.Quote(l.addressOf(d)) + " leads to " + strconv.Quote(name) + ", where nobody is"
	}
	return "no route matches the address " + strconv.Quote(l.addressOf(d))
}

// notFound tallies an address that nothing matches. Called under the connection's lock.
func (n *Node) notFound(l *inlink, d *delivery, p *plan) {
	reason := reasonNotWired
	if p.unread != "" {
		reason = reasonNobodyReads
		n.count.notWired.Add(1)
	} else if _, ok := n.table.Snapshot().Emptied(string(l.wholeAddress(d))); ok {
		reason = reasonHandlerGone
		n.count.handlerGone.Add(1)
	} else {
		n.count.notWired.Add(1)
	}
	n.unrouted(l, d, reason)
}

// unrouted tallies an address whose message goes nowhere, and why. Called under the connection's lock.
func (n *Node) unrouted(l *inlink, d *delivery, reason string) {
	n.lost.add(l.addressOf(d), reason[:min(len(reason), maxLostReason)], time.Unix(0, l.c.clock()))
}

// Unrouted gives addresses whose messages went nowhere, at most 1000, that of the latest first.
func (n *Node) Unrouted() []Lost { return n.lost.newest() }
