package forwarder

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/fingerpost/fingerpost/routetable"
)

// Lines is the number of lines to dialled hops.
func (n *Node) Lines() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.lines)
}

// Peers is the number of peers that the node keeps.
func (n *Node) Peers() int { return n.peerCount() }

// Plans is how many plans were made.
func (n *Node) Plans() uint64 { return n.count.plans.Load() }

// CountedRows is the number of rows that have counters.
func (n *Node) CountedRows() int {
	n.rows.mu.Lock()
	defer n.rows.mu.Unlock()
	return len(n.rows.of)
}

// JudgeChangesBy puts f in the place of routetable.Snapshot.ChangedSince. Before any message comes.
func (n *Node) JudgeChangesBy(f func(s *routetable.Snapshot, generation uint64, name string) bool) {
	n.changedSince = f
}

// ConsistencyCheck recounts the invariants of a node that has stopped, and says what is wrong.
func (n *Node) ConsistencyCheck() error {
	n.mu.Lock()
	if clients, sockets := len(n.conns), n.sockets.Load(); clients != 0 || sockets != 0 || len(n.hosts.count) != 0 {
		n.mu.Unlock()
		return fmt.Errorf("%d clients, %d sockets and %d hosts are still counted", clients, sockets, len(n.hosts.count))
	}
	busy := 0
	for ln := range n.lines {
		if b := ln.Busy(); b < 0 {
			n.mu.Unlock()
			return fmt.Errorf("the line to %s has %d copies", ln.hop.Text, b)
		} else {
			busy += b
		}
	}
	for _, r := range n.receivers {
		if b := r.Busy(); b != 0 {
			n.mu.Unlock()
			return fmt.Errorf("the receiver %s is gone and has %d copies", r.origin(), b)
		}
	}
	for key, p := range n.peers {
		if p.over || p.key != key {
			n.mu.Unlock()
			return fmt.Errorf("the peer %s is given up and on the list", p.endpoint.Text)
		}
	}
	n.mu.Unlock()
	n.rows.sweep(n.table)
	s := n.table.Snapshot()
	underway := 0
	n.rows.mu.Lock()
	defer n.rows.mu.Unlock()
	if len(n.rows.of) > s.Len() {
		return fmt.Errorf("%d rows have counters, the table has %d", len(n.rows.of), s.Len())
	}
	for r := range s.Routes() {
		c := n.rows.of[r.ID]
		if c == nil || r.Address == routetable.NullAddress {
			continue
		}
		copied, over := c.copied.Load(), c.delivered.Load()+c.released.Load()+c.dropped.Load()
		if over > copied {
			return fmt.Errorf("row %s --> %s: %d copies, and outcomes of %d", r.Pattern, r.Address, copied, over)
		}
		underway += int(copied - over)
	}
	if underway > busy {
		return fmt.Errorf("%d copies of rows have no outcome, and the lines have %d", underway, busy)
	}
	return nil
}

// SweepReplies does what the clock does with the ways back for replies, as if it were that much later.
func (n *Node) SweepReplies(later time.Duration) { n.replies.sweep(now() + int64(later)) }

// CutPeers breaks the connections to dialled peers.
func (n *Node) CutPeers() {
	n.mu.Lock()
	peers := slices.Collect(maps.Values(n.peers))
	n.mu.Unlock()
	for _, p := range peers {
		p.mu.Lock()
		c := p.c
		p.mu.Unlock()
		if c != nil {
			c.c.Abort(errors.New("cut"))
		}
	}
}

// ServeConn takes a client's connection as a listener does, and returns when it is over.
func (n *Node) ServeConn(nc net.Conn) {
	if !n.mayConnect(nc) {
		nc.Close()
		return
	}
	c := n.take(nc, &ListenOptions{})
	n.connEnded(c, c.Serve())
	n.disconnected(nc, nil)
}
