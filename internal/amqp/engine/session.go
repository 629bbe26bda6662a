package engine

import (
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// Session is one end of an AMQP session (AMQP 1.0 part 2, 2.5).
type Session struct {
	c         *Conn
	local     uint16
	remote    uint16
	hasRemote bool // the peer's begin has arrived
	ended     bool // our end is out

	// Outgoing: our transfers.
	initialOut   uint32
	nextOut      uint32 // transfer id
	remoteWindow uint32 // transfers that the peer takes
	nextDelivery uint32
	unsettledOut window[OutDelivery]

	// Incoming: the peer's transfers.
	nextIn         uint32
	window         uint32 // transfers that the peer may be told to send from now on; at most cfg.Window
	told           uint32 // the transfer id that the peer was last told to stop before
	most           uint32 // the highest one it was ever told: it may not have heard of less
	expectDelivery uint32
	hasDelivery    bool
	unsettledIn    window[InDelivery]

	remoteHandleMax uint32
	links           []*Link // by our handle; nil where it is free
	held            int     // of links
	freeHandles     []uint32
	byHandle        handles // by the peer's handle

	isDirty   bool
	wantFlow  bool
	flowLinks []*Link
	asRecv    dispositions // outcomes of what we received
	asSend    dispositions // settlements of what we sent
	warmth    uint32       // of nothing: what warm reads has to go somewhere

	Context any // the handler's own
}

// handles finds links by the peer's handle: low ones, and those of a peer that counts up, in a slice, the rest in a map, so that memory
// follows the number of links and not the numbers that a peer chooses.
//
// Invariant: len(low) <= max(lowHandles, 2*inLow+1) when a link is put.
type handles struct {
	low   []*Link
	inLow int // links in it
	high  map[uint32]*Link
}

const lowHandles = 256

func (h *handles) get(n uint32) *Link {
	if n < uint32(len(h.low)) {
		if l := h.low[n]; l != nil {
			return l
		}
	}
	return h.high[n]
}

func (h *handles) put(n uint32, l *Link) {
	if n >= lowHandles && n >= uint32(len(h.low)) && (n != uint32(len(h.low)) || h.inLow < len(h.low)/2) {
		if h.high == nil {
			h.high = map[uint32]*Link{}
		}
		h.high[n] = l
		return
	}
	for uint32(len(h.low)) <= n {
		h.low = append(h.low, nil)
	}
	h.low[n] = l
	h.inLow++
}

func (h *handles) remove(n uint32) {
	if n < uint32(len(h.low)) && h.low[n] != nil {
		h.low[n] = nil
		h.inLow--
		return
	}
	delete(h.high, n)
}

func (c *Conn) session(ch uint16) *Session {
	if s := c.last; s != nil && s.remote == ch && s.hasRemote {
		return s
	}
	s := c.byRemote[ch]
	if s != nil {
		c.last = s
	}
	return s
}

// known gives the session of an incoming channel, or the error for a channel that has none. nil, nil: the session is
// ending and its frames are thrown away (2.5.5).
func (c *Conn) known(ch uint16, what string) (*Session, error) {
	s := c.session(ch)
	if s == nil {
		return nil, connErr(wire.CondNotAllowed, "%s on channel %d, which has no session", what, ch)
	}
	if s.ended {
		return nil, nil
	}
	return s, nil
}

func (c *Conn) newSession() (*Session, bool) {
	limit := min(uint32(c.cfg.ChannelMax), uint32(c.remote.ChannelMax))
	if c.phase < phaseOpened {
		limit = uint32(c.cfg.ChannelMax)
	}
	if uint32(len(c.byLocal)) > limit {
		return nil, false
	}
	ch := uint16(len(c.byLocal))
	for c.byLocal[ch] != nil {
		ch = uint16((uint32(ch) + 1) % (limit + 1))
	}
	s := &Session{c: c, local: ch, window: c.cfg.Window, told: c.cfg.Window, most: c.cfg.Window}
	if c.byLocal == nil {
		c.byLocal = map[uint16]*Session{}
	}
	c.byLocal[ch] = s
	return s, true
}

// Begin opens a session. Links can be attached to it at once.
func (c *Conn) Begin() (*Session, error) {
	if c.phase != phaseOpened {
		return nil, connErr(wire.CondIllegalState, "begin on a connection that is not open")
	}
	s, ok := c.newSession()
	if !ok {
		return nil, connErr(wire.CondResourceLimitExceeded, "no channel is free")
	}
	s.sendBegin()
	return s, nil
}

func (s *Session) sendBegin() {
	b := wire.Begin{
		RemoteChannel: s.remote, HasRemoteChannel: s.hasRemote,
		NextOutgoingID: s.nextOut, IncomingWindow: s.c.cfg.Window, OutgoingWindow: outgoingWindow, HandleMax: s.c.cfg.HandleMax,
	}
	s.c.sendPerformative(s.local, b.Append)
}

// outgoingWindow is what we announce: we hold no transfers back on our own account.
const outgoingWindow = 1<<31 - 1

func (c *Conn) handleBegin(ch uint16, body []byte) error {
	var b wire.Begin
	if _, err := b.Parse(body); err != nil {
		return decodeErr("begin", err)
	}
	if ch > c.cfg.ChannelMax {
		return connErr(wire.CondFramingError, "channel %d is above channel-max %d", ch, c.cfg.ChannelMax)
	}
	if c.byRemote[ch] != nil {
		return connErr(wire.CondNotAllowed, "begin on channel %d, which is in use", ch)
	}
	var s *Session
	if b.HasRemoteChannel {
		s = c.byLocal[b.RemoteChannel]
		if s == nil || s.hasRemote {
			return connErr(wire.CondNotAllowed, "begin answers channel %d, which waits for none", b.RemoteChannel)
		}
	} else {
		var ok bool
		if s, ok = c.newSession(); !ok {
			return connErr(wire.CondResourceLimitExceeded, "more sessions than channel-max allows")
		}
	}
	s.remote, s.hasRemote = ch, true
	s.nextIn = b.NextOutgoingID
	s.told, s.most = s.nextIn+c.cfg.Window, s.nextIn+c.cfg.Window
	s.remoteWindow = b.IncomingWindow - min(b.IncomingWindow, s.nextOut-s.initialOut)
	s.remoteHandleMax = b.HandleMax
	if c.byRemote == nil {
		c.byRemote = map[uint16]*Session{}
	}
	c.byRemote[ch] = s
	if !b.HasRemoteChannel {
		s.sendBegin()
	}
	c.resume()
	return nil
}

// Ended tells that one end has ended the session: nothing can be attached any more.
func (s *Session) Ended() bool { return s.ended }

// Begun tells whether the peer has begun it too: before that, the number of links that it takes is not known.
func (s *Session) Begun() bool { return s.hasRemote }

// Links is the number of links that the session has.
func (s *Session) Links() int { return len(s.links) }

// End ends the session; err (which may be nil) goes to the peer.
func (s *Session) End(err *SessionError) {
	if s.ended {
		return
	}
	s.flush()
	s.ended = true
	e := wire.End{}
	var why error
	if err != nil {
		e.Error = wireError(err.Condition, err.Text)
		why = err
	}
	s.drop(why)
	s.c.sendPerformative(s.local, e.Append)
}

func (c *Conn) handleEnd(ch uint16, body []byte) error {
	var e wire.End
	if _, err := e.Parse(body); err != nil {
		return decodeErr("end", err)
	}
	s := c.session(ch)
	if s == nil {
		return connErr(wire.CondNotAllowed, "end on channel %d, which has no session", ch)
	}
	if !s.ended {
		s.flush()
		var why error
		if e.Error != nil {
			why = &LinkError{Condition: e.Error.Condition, Text: e.Error.Description, Remote: true}
		}
		s.ended = true
		s.drop(why)
		end := wire.End{}
		c.sendPerformative(s.local, end.Append)
	}
	delete(c.byRemote, ch)
	delete(c.byLocal, s.local)
	c.last = nil
	return nil
}

// drop reports every link of the session gone.
func (s *Session) drop(why error) {
	for _, l := range s.links {
		if l != nil {
			l.drop(why)
		}
	}
	s.links, s.held, s.freeHandles = nil, 0, nil
	s.byHandle = handles{}
}

// touch puts the session on the list of those with something held back.
func (s *Session) touch() {
	if !s.isDirty {
		s.isDirty = true
		s.c.dirty = append(s.c.dirty, s)
	}
}

// flush encodes what was held back: dispositions first, then flows.
func (s *Session) flush() {
	s.isDirty = false
	if s.ended {
		return
	}
	s.asRecv.flush(s, true)
	s.asSend.flush(s, false)
	for _, l := range s.flowLinks {
		l.wantFlow = false
		if !l.gone {
			s.sendFlow(l, false)
			s.wantFlow = false
		}
	}
	clear(s.flowLinks)
	s.flowLinks = s.flowLinks[:0]
	if s.wantFlow {
		s.sendFlow(nil, false)
	}
	s.wantFlow = false
}

// SetWindow sets how many transfers the peer may send from now on; what was configured is the most. The peer is told when it has to
// stop sooner than it thinks, or has used half of what it may have. What it was allowed before it may still send.
func (s *Session) SetWindow(n uint32) {
	s.window = min(n, s.c.cfg.Window)
	if left := int32(s.told - s.nextIn); s.opens() || left > int32(s.window+s.window/2+8) {
		s.wantFlow = true
		s.touch()
	}
}

// opens tells whether it is time to tell the peer that it may send more.
func (s *Session) opens() bool {
	left := int32(s.told - s.nextIn)
	return left <= int32(s.window/2) && left < int32(s.window)
}

// sendFlow writes the session's state, and that of a link where one is given (2.7.4).
func (s *Session) sendFlow(l *Link, echo bool) {
	s.told = s.nextIn + s.window
	if int32(s.told-s.most) > 0 {
		s.most = s.told
	}
	f := &s.c.flow
	*f = wire.Flow{
		NextIncomingID: s.nextIn, HasNextIncomingID: s.hasRemote,
		IncomingWindow: s.window, NextOutgoingID: s.nextOut, OutgoingWindow: outgoingWindow,
		Echo: echo,
	}
	if l != nil {
		f.Handle, f.HasHandle = l.handle, true
		f.DeliveryCount, f.HasDeliveryCount = l.deliveryCount, l.role == RoleSender || l.hasRemote
		f.LinkCredit, f.HasLinkCredit = l.credit, true
		f.Drain = l.drain
		if l.role == RoleSender {
			f.Available, f.HasAvailable = 0, true
		}
	}
	buf, start := wire.BeginFrame(s.c.out.buf, wire.FrameAMQP, s.local)
	s.c.out.buf = wire.EndFrame(f.Append(buf), start)
}

func (c *Conn) handleFlow(ch uint16, body []byte) error {
	f := &c.flow
	if _, err := f.Parse(body); err != nil {
		return decodeErr("flow", err)
	}
	s, err := c.known(ch, "flow")
	if s == nil {
		return err
	}
	// In transit: transfers that the peer had not seen when it wrote this (2.5.6).
	seen := s.initialOut
	if f.HasNextIncomingID {
		seen = f.NextIncomingID
	}
	inTransit := s.nextOut - seen
	if int32(inTransit) < 0 {
		return sessionErr(wire.CondInvalidField, "flow: next-incoming-id %d is ahead of what was sent (%d)", seen, s.nextOut)
	}
	s.remoteWindow = f.IncomingWindow - min(f.IncomingWindow, inTransit)

	var l *Link
	if f.HasHandle {
		if l = s.byHandle.get(f.Handle); l == nil {
			return sessionErr(wire.CondUnattachedHandle, "flow on handle %d, which is not attached", f.Handle)
		}
	}
	echo := f.Echo
	if l != nil && !l.gone && l.handleFlow(f) { // f is scratch: not used after this
		echo = false
	}
	switch {
	case !echo:
	case l != nil && !l.gone && l.answered:
		l.touchFlow()
	default: // of a link whose attach is still to go out nothing can be said yet
		s.wantFlow = true
		s.touch()
	}
	c.resume()
	return nil
}
