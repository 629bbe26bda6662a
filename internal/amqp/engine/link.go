package engine

import (
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// The roles of a link's end, ours.
const (
	RoleSender   = wire.RoleSender
	RoleReceiver = wire.RoleReceiver
)

// Settle modes (AMQP 1.0 part 2, 2.8.2 and 2.8.3).
const (
	SenderUnsettled = 0
	SenderSettled   = 1
	SenderMixed     = 2
	ReceiverFirst   = 0
	ReceiverSecond  = 1
)

// Link is one end of an AMQP link (AMQP 1.0 part 2, 2.6). What a message touches comes first, in one line of a processor's cache; all of it
// is two.
type Link struct {
	s             *Session
	out           *OutDelivery // sender: begun and not complete
	unsettled     chain        // of the session's, in or out
	maxRemote     uint64       // largest message the peer takes; 0 no limit
	credit        uint32
	deliveryCount uint32
	handle        uint32 // ours

	role      wire.Role // ours
	isLocal   bool      // we attached first
	answered  bool      // our attach is out
	gone      bool      // reported Detached; frames are thrown away
	closing   bool      // our detach is out, the peer's is not in
	hasRemote bool
	sndMode   uint8
	rcvMode   uint8
	drain     bool // sender: the receiver wants its credit used up; receiver: we asked for that
	wantFlow  bool
	isStalled bool
	skipping  bool // receiver: in the middle of a delivery that is ignored
	isDry     bool // sender: what follows of out has not come yet
	abortDue  bool // sender: the peer is to be told that what had begun is taken back, and takes no transfer now

	granted uint32 // receiver: the delivery-count up to which credit was ever given; a sender may not have heard of less
	remote  uint32 // the peer's handle

	in      *InDelivery // receiver: begun and not complete
	inRun   *inRun      // receiver: nil until the first delivery
	Context any         // the handler's own
	name    string
	left    *outRun      // sender: of out; nil until the first
	peer    *wire.Attach // until answered, and for local links until reported
}

// inRun is what a receiving link needs once something comes: most links that a connection holds are idle.
type inRun struct {
	size    uint64     // of what has come of Link.in
	scratch InDelivery // for settled deliveries, which nobody keeps
}

// running gives the link's inRun, made at the first need.
func (l *Link) running() *inRun {
	if l.inRun == nil {
		l.inRun = &inRun{}
	}
	return l.inRun
}

func (l *Link) Name() string         { return l.name }
func (l *Link) IsSender() bool       { return l.role == RoleSender }
func (l *Link) Local() bool          { return l.isLocal }
func (l *Link) Remote() *wire.Attach { return l.peer } // valid inside Attached
func (l *Link) Credit() uint32       { return l.credit }
func (l *Link) Gone() bool           { return l.gone }
func (l *Link) SenderMode() uint8    { return l.sndMode }
func (l *Link) ReceiverMode() uint8  { return l.rcvMode }
func (l *Link) MaxMessage() uint64   { return l.maxRemote }
func (l *Link) Session() *Session    { return l.s }

func (s *Session) newLink(name string, role wire.Role) *Link {
	l := &Link{s: s, name: name, role: role}
	if n := len(s.freeHandles); n > 0 {
		l.handle = s.freeHandles[n-1]
		s.freeHandles = s.freeHandles[:n-1]
		s.links[l.handle] = l
	} else {
		l.handle = uint32(len(s.links))
		s.links = append(s.links, l)
	}
	s.held++
	names := s.c.namesOf(role)
	if *names == nil {
		*names = map[string]*Link{}
	}
	(*names)[name] = l
	return l
}

// namesOf gives the links of one role by their names.
func (c *Conn) namesOf(role wire.Role) *map[string]*Link {
	if role == RoleSender {
		return &c.senders
	}
	return &c.receivers
}

// AttachOptions describe a link of ours.
type AttachOptions struct {
	Name         string
	Role         wire.Role
	Source       *wire.Source
	Target       *wire.Target
	SenderMode   uint8
	ReceiverMode uint8
	Credit       uint32 // receiver: first credit
	Capabilities []wire.Symbol
	Desired      []wire.Symbol
	Properties   wire.Map
	Context      any
}

// Attach attaches a link. The handler hears of the peer's answer by Attached or Detached.
func (s *Session) Attach(o AttachOptions) (*Link, error) {
	if s.ended || s.c.phase != phaseOpened {
		return nil, &LinkError{Condition: wire.CondIllegalState, Text: "attach on a session that has ended"}
	}
	if old := (*s.c.namesOf(o.Role))[o.Name]; old != nil {
		return nil, linkErr(wire.CondNotAllowed, "a link named %q is attached already", o.Name)
	}
	if s.hasRemote && uint32(s.held) > s.remoteHandleMax {
		return nil, linkErr(wire.CondResourceLimitExceeded, "the peer's handle-max %d is reached", s.remoteHandleMax)
	}
	l := s.newLink(o.Name, o.Role)
	l.isLocal, l.answered = true, true
	l.sndMode, l.rcvMode, l.Context = o.SenderMode, o.ReceiverMode, o.Context
	a := wire.Attach{
		Name: o.Name, Handle: l.handle, Role: o.Role, SndSettleMode: o.SenderMode, RcvSettleMode: o.ReceiverMode,
		Source: o.Source, Target: o.Target, HasInitialDeliveryCount: o.Role == RoleSender,
		OfferedCapabilities: o.Capabilities, DesiredCapabilities: o.Desired, Properties: o.Properties,
	}
	if o.Role == RoleReceiver {
		a.MaxMessageSize = s.c.cfg.MaxMessageSize
	}
	s.c.sendPerformative(s.local, a.Append)
	if o.Role == RoleReceiver && o.Credit > 0 {
		l.setCredit(o.Credit)
		l.touchFlow()
	}
	return l, nil
}

func (c *Conn) handleAttach(ch uint16, body []byte) error {
	a := &wire.Attach{}
	if _, err := a.Parse(body); err != nil {
		return decodeErr("attach", err)
	}
	s, err := c.known(ch, "attach")
	if s == nil {
		return err
	}
	if a.Handle > c.cfg.HandleMax {
		return connErr(wire.CondFramingError, "handle %d is above handle-max %d", a.Handle, c.cfg.HandleMax)
	}
	if s.byHandle.get(a.Handle) != nil {
		return sessionErr(wire.CondHandleInUse, "attach on handle %d, which is in use", a.Handle)
	}
	if !c.fitsAnswer(a, body) {
		return sessionErr(wire.CondFrameSizeTooSmall, "the answer to this attach is larger than max-frame-size %d", c.peerMaxFrame)
	}
	role := !a.Role // ours
	old := (*c.namesOf(role))[a.Name]
	if old != nil && old.isLocal && !old.hasRemote && old.s == s {
		return c.attachAnswered(s, old, a)
	}
	if old != nil {
		// AMQP 1.0 part 2, 2.6.1: the newer attach wins, the older link is stolen.
		old.Detach(linkErr(wire.CondStolen, "link %q was attached again", a.Name))
	}
	if s.held > int(c.cfg.HandleMax) || uint32(s.held) > s.remoteHandleMax {
		return sessionErr(wire.CondResourceLimitExceeded, "more links than handle-max %d allows", min(c.cfg.HandleMax, s.remoteHandleMax))
	}
	l := s.newLink(a.Name, role)
	l.setRemote(a)
	l.sndMode, l.rcvMode = a.SndSettleMode, a.RcvSettleMode
	s.byHandle.put(a.Handle, l)
	if a.Coordinator {
		l.Refuse(linkErr(wire.CondNotImplemented, "transactions are not offered"))
		return nil
	}
	c.h.Attached(l)
	return nil
}

// answerRoom is what an answer to an attach may hold that the attach did not, about: numbers, and an address that is made here.
const answerRoom = 128

// fitsAnswer tells whether an attach can be answered in a frame of the peer's: its name and termini are repeated.
func (c *Conn) fitsAnswer(a *wire.Attach, body []byte) bool {
	if uint64(len(body))+answerRoom <= uint64(c.peerMaxFrame) {
		return true
	}
	same := wire.Attach{Name: a.Name, Source: a.Source, Target: a.Target}
	return uint64(len(same.Append(nil)))+answerRoom <= uint64(c.peerMaxFrame)
}

func (l *Link) setRemote(a *wire.Attach) {
	l.peer, l.remote, l.hasRemote, l.maxRemote = a, a.Handle, true, a.MaxMessageSize
	if l.role == RoleReceiver {
		l.deliveryCount, l.granted = a.InitialDeliveryCount, a.InitialDeliveryCount+l.credit
	}
}

// attachAnswered takes the peer's answer to an attach of ours. A null terminus announces a detach (2.6.3).
func (c *Conn) attachAnswered(s *Session, l *Link, a *wire.Attach) error {
	l.setRemote(a)
	s.byHandle.put(a.Handle, l)
	if l.gone {
		return nil
	}
	if l.role == RoleReceiver && l.credit > 0 {
		l.touchFlow() // with the delivery-count that is known now
	}
	if (l.role == RoleSender && a.Target == nil && !a.Coordinator) || (l.role == RoleReceiver && a.Source == nil) {
		return nil
	}
	l.rcvMode = a.RcvSettleMode
	l.sndMode = a.SndSettleMode
	c.h.Attached(l)
	l.peer = nil
	return nil
}

// Accept answers a peer's attach. source and target are what is in force; the settle modes asked for are echoed.
// credit is the first credit where the peer is the sender.
func (l *Link) Accept(source *wire.Source, target *wire.Target, credit uint32, o AttachOptions) {
	if l.gone || l.answered {
		return
	}
	l.answered = true
	l.sendAttach(source, target, o)
	l.peer = nil
	if l.role == RoleReceiver && credit > 0 {
		l.Grant(credit)
	}
}

func (l *Link) sendAttach(source *wire.Source, target *wire.Target, o AttachOptions) {
	a := wire.Attach{
		Name: l.name, Handle: l.handle, Role: l.role, SndSettleMode: l.sndMode, RcvSettleMode: l.rcvMode,
		Source: source, Target: target, HasInitialDeliveryCount: l.role == RoleSender,
		OfferedCapabilities: o.Capabilities, DesiredCapabilities: o.Desired, Properties: o.Properties,
	}
	if l.role == RoleReceiver {
		a.MaxMessageSize = l.s.c.cfg.MaxMessageSize
	}
	l.s.c.sendPerformative(l.s.local, a.Append)
}

// Resume does what the peer's flows ask for that came before Accept, where that was not called in Attached.
func (l *Link) Resume() {
	if l.gone || l.role == RoleReceiver || l.isStalled || l.out != nil {
		return
	}
	l.s.c.h.Flow(l)
	l.finishDrain()
}

// Refuse answers a peer's attach with a null terminus and a detach that tells why (2.6.3).
func (l *Link) Refuse(err *LinkError) {
	if l.gone {
		return
	}
	if !l.answered {
		l.answered = true
		source, target := l.peer.Source, l.peer.Target
		if l.role == RoleSender {
			source = nil
		} else {
			target = nil
		}
		l.sendAttach(source, target, AttachOptions{})
	}
	l.Detach(err)
}

// Detach closes the link from this end; err (which may be nil) goes to the peer and to the handler.
func (l *Link) Detach(err *LinkError) {
	if l.gone {
		return
	}
	l.closing = true
	var why error
	d := wire.Detach{Handle: l.handle, Closed: true}
	if err != nil {
		why = err
		d.Error = wireError(err.Condition, err.Text)
	}
	l.s.flush() // outcomes given so far belong before the detach
	l.drop(why)
	l.s.c.sendPerformative(l.s.local, d.Append)
}

func (c *Conn) handleDetach(ch uint16, body []byte) error {
	var d wire.Detach
	if _, err := d.Parse(body); err != nil {
		return decodeErr("detach", err)
	}
	s, err := c.known(ch, "detach")
	if s == nil {
		return err
	}
	l := s.byHandle.get(d.Handle)
	if l == nil {
		return sessionErr(wire.CondUnattachedHandle, "detach on handle %d, which is not attached", d.Handle)
	}
	if !l.closing {
		l.s.flush()
		var why error
		if d.Error != nil {
			why = &LinkError{Condition: d.Error.Condition, Text: d.Error.Description, Remote: true}
		}
		if !l.answered { // its attach was never answered: the protocol wants an attach before a detach
			l.answered = true
			l.sendAttach(nil, nil, AttachOptions{})
		}
		l.drop(why)
		// We keep no state of a link that its peer does not close: answering closed says so (2.6.6).
		reply := wire.Detach{Handle: l.handle, Closed: true}
		c.sendPerformative(s.local, reply.Append)
	}
	l.forgetName()
	s.byHandle.remove(d.Handle)
	s.links[l.handle] = nil
	s.held--
	s.freeHandles = append(s.freeHandles, l.handle)
	return nil
}

func (l *Link) forgetName() {
	if names := *l.s.c.namesOf(l.role); names[l.name] == l {
		delete(names, l.name)
	}
}

// drop reports the link and its deliveries gone, once.
func (l *Link) drop(why error) {
	if l.gone {
		return
	}
	l.gone = true
	if !l.isLocal || l.hasRemote { // else the peer's answer is still to come and must find it
		l.forgetName()
	}
	h := l.s.c.h
	if r := l.inRun; r != nil {
		if d := l.in; d == &r.scratch {
			l.in = nil
			h.InDropped(d)
		}
		for l.unsettled.n > 0 {
			d := l.s.unsettledIn.at(l.unsettled.first).v
			l.forgetIn(d)
			h.InDropped(d)
			l.s.c.putIn(d)
		}
	}
	l.in = nil
	if d := l.out; d != nil {
		l.endOut()
		if d.settled { // when sent: on no list
			d.link = nil
			h.OutDropped(d, true)
		}
	}
	for l.role == RoleSender && l.unsettled.n > 0 {
		d := l.s.unsettledOut.at(l.unsettled.first).v
		l.forgetOut(d)
		h.OutDropped(d, true)
	}
	h.Detached(l, why)
}

// Grant sets the receiving link's credit: the number of further messages that its sender may send now.
func (l *Link) Grant(credit uint32) {
	if l.gone || l.credit == credit && !l.drain {
		return
	}
	l.setCredit(credit)
	l.drain = false
	l.touchFlow()
}

func (l *Link) setCredit(credit uint32) {
	l.credit = credit
	if limit := l.deliveryCount + credit; int32(limit-l.granted) > 0 {
		l.granted = limit
	}
}

// Drain asks the sender to use the credit up or give it back; Flow reports when it has.
func (l *Link) Drain() {
	if l.gone {
		return
	}
	l.drain = true
	l.touchFlow()
}

func (l *Link) touchFlow() {
	l.s.touch()
	if !l.wantFlow {
		l.wantFlow = true
		l.s.flowLinks = append(l.s.flowLinks, l)
	}
}

// handleFlow takes the link part of a flow (2.6.7), and tells whether it was answered: a second flow would take back the drain in the first.
func (l *Link) handleFlow(f *wire.Flow) (answered bool) {
	if l.role == RoleReceiver {
		if f.HasDeliveryCount {
			used := f.DeliveryCount - l.deliveryCount
			if used != 0 && used <= l.credit { // the sender gave credit back without using it
				l.deliveryCount = f.DeliveryCount
				l.credit -= used
			}
		}
		if l.drain && l.credit == 0 {
			l.drain = false
			l.s.c.h.Flow(l)
		}
		return false
	}
	if f.HasLinkCredit {
		seen := uint32(0) // the receiver had not seen our attach: initial-delivery-count, ours is always 0
		if f.HasDeliveryCount {
			seen = f.DeliveryCount
		}
		l.credit = f.LinkCredit - min(f.LinkCredit, l.deliveryCount-seen)
	}
	l.drain = f.Drain
	if !l.answered || l.isStalled {
		return false // its turn comes by Resume, or by resume
	}
	if l.out == nil {
		l.s.c.h.Flow(l)
	}
	return l.finishDrain()
}

// finishDrain gives back credit that the receiver wants used up and for which there is nothing to send (2.6.7). It tells whether a flow says so.
func (l *Link) finishDrain() bool {
	if !l.drain || l.gone || l.out != nil || l.isStalled {
		return false
	}
	l.deliveryCount += l.credit
	l.credit = 0
	l.touchFlow()
	l.s.flush()
	l.drain = false
	return true
}
