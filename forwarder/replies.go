package forwarder

import (
	"bytes"
	"container/list"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// Replies find their way back over routers that dial nobody back (DESIGN §5, Replies). A node that dials another one attaches a receiver on
// $reply/<its id>/*, by which the other sends what is for it and for those behind it. The other learns from the requests that come by the
// connection whose replies go back there: rows $reply/<id>/* → link:N, of the origin link:N/<id>.

// replyPrefix begins the addresses that are made for dynamic sources: $reply/<node id>/<random>.
const replyPrefix = "$reply/"

// nodeIDLen is the length of a node id in hexadecimal digits.
const nodeIDLen = 16

// keyProperty is the property of a link for a node's replies by which the other end knows that two connections are of one node: nobody
// but the two of them knows its value.
const keyProperty = wire.Symbol("fingerpost-reply-key")

// towardKey is the delivery annotation, between nodes only, with the address that a reply was found by where that is not its own.
const towardKey = "x-opt-fingerpost-to"

// The bounds of what is learned.
const (
	maxPathsOfConn = 1000             // by one connection
	maxPaths       = 10_000           // in all
	pathLife       = 30 * time.Minute // without a request
	pathHold       = 10 * time.Second // after a request, nobody else gets the path
)

// isNodeID tells whether a text is a node id.
func isNodeID[T string | []byte](s T) bool {
	if len(s) != nodeIDLen {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// replyNode is the node whose address for replies it is; ok is false for every other address.
func replyNode(address []byte) (id []byte, ok bool) {
	const end = len(replyPrefix) + nodeIDLen
	if len(address) <= end+1 || string(address[:len(replyPrefix)]) != replyPrefix || address[end] != '/' {
		return nil, false
	}
	id = address[len(replyPrefix):end]
	return id, isNodeID(id)
}

func replyPattern(id string) string { return replyPrefix + id + "/*" }

// replies are the ways back to other nodes. They lie in the table; this remembers who holds them and which were used last.
type replies struct {
	secret [32]byte // of this node's run; see key

	mu     sync.Mutex // guards what follows. A connection's lock may be held when it is taken, and the table is written under it
	nodes  map[string]*replyHolder
	recent list.List // of *path; the one used last is first

	containers map[string]*conn // clients whose container id has rows, by that
	returns    int              // rows of container ids
}

// replyHolder is who gets the replies to one node's addresses: links of its own, or else the connection that its requests come by.
//
// Invariant: len(own) == 0 or path == nil.
type replyHolder struct {
	key  string
	own  map[*receiver]struct{}
	path *path
}

// path is a learned row $reply/<id>/* → link:N.
type path struct {
	id     string
	to     *receiver
	usedAt atomic.Int64
	gone   atomic.Bool

	// Guarded by replies.mu.
	movedAt  int64         // when it had been used last, when it was put first
	all, own *list.Element // of replies.recent and to.paths
}

func (x *replies) init() {
	rand.Read(x.secret[:])
	x.nodes, x.containers = map[string]*replyHolder{}, map[string]*conn{}
}

// key is what this node shows another to prove that two connections are its own.
func (x *replies) key(peer string) string {
	h := hmac.New(sha256.New, x.secret[:])
	h.Write([]byte(peer))
	return hex.EncodeToString(h.Sum(nil))
}

// askReplies attaches the receiver for this node's replies at a peer that is a node too. Called under the lock.
func (p *peer) askReplies(at int64) {
	c := p.c
	if c == nil || c.peerID == "" || c.peerID == p.n.id || p.back != nil || at < p.backAt || !c.c.Engine.IsOpen() {
		return
	}
	if p.s.Ended() {
		s, err := c.c.Engine.Begin()
		if err != nil {
			return
		}
		p.s = s
	}
	address := replyPattern(p.n.id)
	in := &inlink{c: c, replies: true}
	l, err := p.s.Attach(engine.AttachOptions{
		Name: fmt.Sprintf("%s/replies/%d", p.n.name, p.n.nextID.Add(1)), Role: engine.RoleReceiver,
		Source:     &wire.Source{Address: address, HasAddress: true, Capabilities: []wire.Symbol{capPattern}},
		Target:     &wire.Target{Address: address, HasAddress: true},
		Properties: wire.Map{{Key: keyProperty, Value: p.n.replies.key(c.peerID)}},
		SenderMode: engine.SenderMixed, ReceiverMode: engine.ReceiverFirst,
		Credit: uint32(in.most()), Context: in,
	})
	if err != nil {
		p.backAt = at + int64(time.Second)
		return
	}
	in.l, p.back = l, in
}

// capPattern is the source capability of a receiver whose address is a pattern.
const capPattern = wire.Symbol("fingerpost:pattern")

// repliesEnded: the receiver for this node's replies is gone; it is attached again in a while. Called under the lock.
func (p *peer) repliesEnded(in *inlink, err error) {
	if p.back != in {
		return
	}
	p.back, p.backAt = nil, now()+int64(time.Second)
	if err != nil && p.c != nil && p.c.c.Engine.IsOpen() {
		p.backAt += int64(4 * time.Second)
		if !p.backRefused {
			p.n.log.Warn("hop sends no replies", "hop", p.endpoint.Text, "error", err)
		}
		p.backRefused = true
	}
}

// takeReply finds out where a message that another node sent back goes: to an address for replies, nowhere else. False where it was refused.
func (c *conn) takeReply(d *delivery) bool {
	if c.dialled != nil {
		c.dialled.lastUse = c.clock()
	}
	s := &d.scan
	if raw, ok, err := wire.LookupAnnotation(s.DeliveryAnnotations.Of(d.Payload), towardKey); err == nil && ok {
		if text, ok := textOf(raw); ok {
			at := s.DeliveryAnnotations.Start + uint32(bytes.Index(s.DeliveryAnnotations.Of(d.Payload), text)) // or the same text, before it
			s.To, s.HasTo = wire.Span{Start: at, End: at + uint32(len(text))}, true
		}
	}
	if to, ok := d.To(); ok {
		if _, ok := replyNode(to); ok {
			return true
		}
	}
	c.n.count.unrouted.Add(1)
	c.refuse(d, wire.CondNotFound, "not an address for replies")
	return false
}

// answersTo is the reply-to of a message; nil where it has none. It looks at the properties only where they have as many fields.
func (m *Message) answersTo() []byte {
	p := m.scan.Properties.Of(m.Payload)
	if !mayHaveReplyTo(p) {
		return nil
	}
	raw, ok, err := wire.LookupProperty(p, "reply-to")
	if !ok || err != nil {
		return nil
	}
	text, _ := textOf(raw)
	return text
}

// mayHaveReplyTo tells whether a properties section has as many fields as one with a reply-to has.
func mayHaveReplyTo(section []byte) bool {
	const smallUlong, list0, list8, fields = 0x53, 0x45, 0xc0, 5
	if len(section) < 6 || section[1] != smallUlong || section[3] != list8 {
		return len(section) > 3 && section[3] != list0
	}
	return section[5] >= fields
}

// textOf gives the content of an encoded string or symbol that was skipped over before, aliasing raw.
func textOf(raw []byte) (text []byte, ok bool) {
	const str8, sym8, str32, sym32 = 0xa1, 0xa3, 0xb1, 0xb3
	switch {
	case len(raw) >= 2 && (raw[0] == str8 || raw[0] == sym8):
		return raw[2:], true
	case len(raw) >= 5 && (raw[0] == str32 || raw[0] == sym32):
		return raw[5:], true
	}
	return nil, false
}

// isDead tells whether an address is one of this node's for replies that nobody has any more: waiting for it helps nobody.
func (n *Node) isDead(address string) bool {
	return strings.HasPrefix(address, replyPrefix+n.id+"/")
}

// learn takes note of where the replies to a message go. Called under the lock.
func (c *conn) learn(d *delivery) {
	switch {
	case c.back != nil:
		if id, ok := replyNode(d.answersTo()); ok {
			c.learnPath(id)
		}
	case c.isClient && c.peerID == "":
		if to := d.answersTo(); to != nil {
			c.learnReturn(to)
		}
	}
}

// learnPath has the replies to a node go back by this connection.
func (c *conn) learnPath(id []byte) {
	at := c.clock()
	if p := c.paths[string(id)]; p != nil && !p.gone.Load() {
		p.usedAt.Store(at)
		return
	}
	if string(id) == c.peerID || string(id) == c.n.id {
		return // its own link's row, or our own addresses
	}
	x := &c.n.replies
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.nodes[string(id)]
	if h != nil && (len(h.own) > 0 || h.path != nil && at-h.path.usedAt.Load() < int64(pathHold)) {
		return // first come, first served
	}
	if h != nil {
		x.drop(h.path)
	}
	if c.back.paths.Len() >= maxPathsOfConn {
		x.drop(x.oldest(c.back.paths))
	}
	if x.recent.Len() >= maxPaths {
		x.drop(x.oldest(&x.recent))
	}
	p := &path{id: string(id), to: c.back, movedAt: at}
	p.usedAt.Store(at)
	_, err := c.n.core.Do(c.caller, admin.Subscribe{Origin: p.origin(), Pattern: replyPattern(p.id), Address: c.back.origin(), Pick: routetable.PickAny})
	if err != nil {
		c.n.log.Warn("no way back for replies", "node", p.id, "error", err)
		return
	}
	x.nodes[p.id] = &replyHolder{path: p}
	p.all, p.own = x.recent.PushFront(p), c.back.paths.PushFront(p)
	c.keepPath(p)
}

func (p *path) origin() string { return p.to.origin() + "/" + p.id }

// keepPath remembers a path of the connection's own.
func (c *conn) keepPath(p *path) {
	if len(c.paths) >= 2*maxPathsOfConn {
		for id, old := range c.paths {
			if old.gone.Load() {
				delete(c.paths, id)
			}
		}
	}
	if c.paths == nil {
		c.paths = map[string]*path{}
	}
	c.paths[p.id] = p
}

// oldest gives the path of a list that was used least recently, nil where it is empty: those that were used since they were put first
// are put first again. Called under x.mu.
func (x *replies) oldest(l *list.List) *path {
	for e := l.Back(); e != nil; e = l.Back() {
		p := e.Value.(*path)
		at := p.usedAt.Load()
		if at <= p.movedAt {
			return p
		}
		p.movedAt = at
		x.recent.MoveToFront(p.all)
		p.to.paths.MoveToFront(p.own)
	}
	return nil
}

// drop takes a path and its row away. Called under x.mu.
func (x *replies) drop(p *path) {
	if p == nil || p.gone.Load() {
		return
	}
	x.forget(p)
	n := p.to.n
	if _, err := n.core.Do(admin.Caller{}, admin.Withdraw{Origin: p.origin()}); err != nil {
		n.log.Error("withdraw failed", "origin", p.origin(), "error", err)
	}
}

// forget takes a path off the lists. Called under x.mu.
func (x *replies) forget(p *path) {
	p.gone.Store(true)
	x.recent.Remove(p.all)
	p.to.paths.Remove(p.own)
	delete(x.nodes, p.id)
}

// sweep takes the paths away that no request has come by for long.
func (x *replies) sweep(at int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for p := x.oldest(&x.recent); p != nil && at-p.movedAt >= int64(pathLife); p = x.oldest(&x.recent) {
		x.drop(p)
	}
}

// attachReplies answers a node that wants its replies here: those to addresses of its own, and of nodes whose requests it brings. Its id is
// what it says it is; who came first has it, and another connection only with the same key.
func (c *conn) attachReplies(l *engine.Link) {
	key, _ := l.Remote().Properties.Get(string(keyProperty))
	text, _ := key.(string)
	if !c.isRouter() {
		c.n.count.unauthorized.Add(1)
		l.Refuse(unauthorized("a router that wants replies has an id of its own, and logs in where there are users"))
		return
	}
	if c.back != nil || text == "" {
		l.Refuse(&engine.LinkError{Condition: wire.CondNotAllowed, Text: "one link for replies on a connection, with a key"})
		return
	}
	r := c.newReceiver(l, replyPattern(c.peerID))
	r.node, r.toRouter, r.paths = c.peerID, true, list.New()
	if err := c.n.replies.claim(r, text); err != nil {
		c.n.removeReceiver(r)
		l.Context = nil
		l.Refuse(err)
		return
	}
	c.back = r
	c.n.count.by.links[linkReceiver].Add(1)
	l.Accept(l.Remote().Source, l.Remote().Target, 0, engine.AttachOptions{})
}

// isRouter tells whether what says that it is a node is treated as one: where there are users it has to be one of them.
func (c *conn) isRouter() bool {
	return c.peerID != "" && c.peerID != c.n.id && (c.dialled != nil && c.dialled.neighbour != nil || c.caller.User != "" || c.n.access.Load().Users == nil || isLoopback(c.c.RemoteAddr()))
}

// claim gives a node's own link its replies.
func (x *replies) claim(r *receiver, key string) *engine.LinkError {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.nodes[r.node]
	if h != nil && len(h.own) > 0 && h.key != key {
		return &engine.LinkError{Condition: wire.CondNotAllowed, Text: "the replies of this node go to another connection, which shows another key"}
	}
	if h != nil {
		x.drop(h.path)
	}
	if h == nil || h.path != nil {
		h = &replyHolder{key: key, own: map[*receiver]struct{}{}}
	}
	_, err := r.n.core.Do(r.c.caller, admin.Subscribe{Origin: r.origin(), Pattern: r.address, Address: r.origin(), Pick: routetable.PickAny})
	if err != nil {
		return &engine.LinkError{Condition: wire.CondNotAllowed, Text: err.Error()}
	}
	h.own[r] = struct{}{}
	x.nodes[r.node] = h
	return nil
}

// release takes the rows away that lead to a link for replies that is gone. Called under the connection's lock.
func (x *replies) release(r *receiver) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.nodes[r.node]; h != nil {
		if delete(h.own, r); len(h.own) == 0 && h.path == nil {
			delete(x.nodes, r.node)
		}
	}
	for e := r.paths.Front(); e != nil; e = r.paths.Front() {
		x.forget(e.Value.(*path))
	}
	if r.c.back == r {
		r.c.back, r.c.paths = nil, nil
	}
	for _, origin := range []string{r.origin(), r.origin() + "/"} {
		if _, err := r.n.core.Do(r.c.caller, admin.Withdraw{Origin: origin}); err != nil {
			r.n.log.Error("withdraw failed", "origin", origin, "error", err)
		}
	}
}
