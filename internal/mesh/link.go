package mesh

import (
	"crypto/rand"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/websocket"
)

const (
	normalClosure = websocket.Normal
	goingAway     = websocket.GoingAway
	badProtocol   = websocket.BadProtocol
)

// link is one connection. Its reader does everything that comes by it.
type link struct {
	// Set at construction, never changed.
	m        *Mesh
	t        transport
	loopback bool
	dialled  *peer // we opened it
	from     string

	twin    atomic.Pointer[twin]
	json    atomic.Bool // the last message that came was JSON
	numbers atomic.Bool // its ids are numbers

	// Owned by the reader.
	taken   Frame // the message that is handled
	login   login
	in      *forwarder.Inlet
	source  source // of in
	copies  *forwarder.Inlet
	copyOf  source // of copies
	pending bool   // in has what was not flushed
	topic   []byte // of the last publish in it
	arena   []byte // envelopes, up to the flush
	ending  bool   // what is left is not read
	alarm   *time.Timer

	mu      sync.Mutex // guards what follows
	reading bool       // the reader is at it, and flushes what is dirty
	dirty   []*twin
}

// source is where a message of an inlet came from, as our outlets see it.
type source struct {
	link *link // whose reader sends it
	twin *twin // who said it

	taken bool // a peer took the request that was sent last
}

// serve reads a connection until it ends.
func (m *Mesh) serve(t transport, dialled *peer) error {
	l := &link{m: m, t: t, dialled: dialled, from: t.remote().String(), loopback: isLoopback(t.remote())}
	l.source.link, l.copyOf.link = l, l
	l.in, l.copies = m.inlet(&l.source, false), m.inlet(&l.copyOf, true)
	if !m.join(l) {
		t.close(goingAway, "the router takes no more connections")
		t.end()
		return errClosed
	}
	defer m.leave(l)
	switch {
	case dialled != nil:
		if err := dialled.begin(l); err != nil {
			return err
		}
	case m.o.Authenticated:
		l.demand()
	}
	err := l.read()
	if l.alarm != nil {
		l.alarm.Stop()
	}
	return err
}

// inlet makes a way into the node: of what peers publish, or of what the router has to say of them (asides), which nobody may want to hear.
func (m *Mesh) inlet(s *source, asides bool) *forwarder.Inlet {
	return m.node.NewInlet(forwarder.InletOptions{Account: m.account, Source: s, Asides: asides, Own: "peer", MaxMessage: m.o.MaxMessage + 16<<10})
}

func isLoopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

// join takes a connection in, with a twin that has no name yet; false where the router ends.
func (m *Mesh) join(l *link) bool {
	t := newTwin(m, newName())
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopping || len(m.links) >= m.o.Connections {
		return false
	}
	m.links[l] = struct{}{}
	m.twins[t.name] = t
	t.attach(l, false, false)
	l.use(t)
	return true
}

// use makes a twin the one that the connection speaks for.
func (l *link) use(t *twin) {
	l.twin.Store(t)
	l.source.twin = t
}

// leave forgets a connection that has ended. An anonymous twin leaves nothing; a named one keeps its rows.
func (m *Mesh) leave(l *link) {
	t := l.twin.Load()
	if t.detach(l) {
		if !t.named {
			m.mu.Lock()
			delete(m.twins, t.name)
			m.mu.Unlock()
		}
		m.left(t, l)
	}
	l.t.end()
	m.mu.Lock()
	delete(m.links, l)
	m.mu.Unlock()
}

// read handles what comes, and flushes when there is no more.
func (l *link) read() error {
	for {
		data, text, more, err := l.t.next()
		if err != nil {
			return err
		}
		l.setReading()
		if err := l.take(data, text); err != nil {
			l.flushAll()
			if err == errDoor {
				return err
			}
			l.fail(err)
			return err
		}
		if !more || len(l.arena) > maxArena {
			l.flushAll()
		}
		if l.ending {
			l.flushAll()
			l.t.close(normalClosure, "")
			return errClosed
		}
	}
}

// maxArena is how much is collected before it is sent on.
const maxArena = 128 << 10

// take reads a message and does what it says. An error ends the connection.
func (l *link) take(data []byte, text bool) error {
	if len(data) == 1+doorKeySize && data[0] == doorByte && l.isDoor(data[1:]) {
		return errDoor
	}
	f := &l.taken
	*f = Frame{}
	var err error
	l.json.Store(text)
	if text {
		if err = ParseJSON(data, f); err == nil && f.HasID && f.ID.kind == idNumber {
			l.numbers.Store(true)
		}
	} else {
		err = ParseFrame(data, f)
	}
	if err != nil {
		l.m.count.badFrames.Add(1)
		return err
	}
	return l.handle(f)
}

// fail tells a peer over WebSocket that it has done wrong.
func (l *link) fail(err error) {
	var fe *FrameError
	if errors.As(err, &fe) {
		l.t.close(badProtocol, fe.Error())
		return
	}
	l.t.close(normalClosure, "")
}

// write puts a frame on the wire; text is the same as CBOR. Called under the transport's lock.
func (l *link) write(f *Frame, text []byte) {
	if !l.json.Load() {
		l.t.append(false, text)
		return
	}
	if b, err := AppendJSON(nil, f, l.numbers.Load()); err == nil {
		l.t.append(true, b)
	}
}

// errClogged ends a connection whose peer sends and does not read.
var errClogged = errors.New("the peer does not read what it is sent")

func (l *link) flush() {
	l.t.Lock()
	l.t.Flush()
	l.t.Unlock()
}

func (l *link) setReading() {
	l.mu.Lock()
	l.reading = true
	l.mu.Unlock()
}

// later notes a twin to be flushed when the reader has no more; false where the reader is not at it.
func (l *link) later(t *twin) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.reading {
		return false
	}
	if n := len(l.dirty); n == 0 || !slices.Contains(l.dirty[max(n-manyDirty, 0):], t) {
		l.dirty = append(l.dirty, t)
	}
	return true
}

// manyDirty bounds how far back a twin is looked for: to flush one twice does no harm.
const manyDirty = 32

// flushNode hands the node what was sent in.
func (l *link) flushNode() {
	if l.pending {
		l.pending = false
		if s := l.m.rest; s != nil {
			s.write()
			defer s.landed(l)
		}
		l.in.Flush()
	}
	l.arena, l.topic = l.arena[:0], nil
	if cap(l.arena) > 2*maxArena {
		l.arena = nil
	}
}

// flushAll hands the node what was sent in, and writes what became of it.
func (l *link) flushAll() {
	l.flushNode()
	l.mu.Lock()
	l.reading = false
	dirty := l.dirty
	l.dirty = nil
	l.mu.Unlock()
	for _, t := range dirty {
		t.flush(nil)
	}
	clear(dirty)
	l.mu.Lock()
	if l.dirty == nil {
		l.dirty = dirty[:0]
	}
	l.mu.Unlock()
}

// demand sends the challenge that a router sends first that takes nobody without, and gives the peer a while.
func (l *link) demand() {
	l.login.demand(nonce())
	l.reply(&Frame{Type: Response, ID: connectionID, Status: StatusChallenge, Data: appendBytes(nil, l.login.challenge)})
	l.flush()
	l.alarm = time.AfterFunc(l.m.o.ChallengeTimeout, func() { l.t.Abort(errChallenge) })
}

var errChallenge = errors.New("the peer has not answered the challenge in time")

// connectionID is that of a challenge that nobody asked for (rembus.md, 2).
var connectionID, _ = MakeID([]byte{0xef, 0xbe, 0xad, 0xde, 0x78, 0x56, 0x34, 0x12})

// nonce is a challenge: four random bytes, as Rembus has it.
func nonce() []byte {
	b := make([]byte, 4)
	rand.Read(b)
	return b
}

// reply sends the peer a frame, written with the next flush.
func (l *link) reply(f *Frame) {
	if t := l.twin.Load(); t != nil {
		t.send(l, f)
	}
}

// respond answers a message.
func (l *link) respond(id ID, status Status, data []byte) {
	l.reply(&Frame{Type: Response, ID: id, Status: status, Data: data})
}

// refuse answers with a status and words.
func (l *link) refuse(id ID, status Status, words string) {
	l.m.count.refused.Add(1)
	l.respond(id, status, appendText(nil, words))
}

// isGone tells whether an error says no more than that the peer went.
func isGone(err error) bool {
	var ce *websocket.CloseError
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, errClosed) || errors.As(err, &ce) && ce.Remote
}
