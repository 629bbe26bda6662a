package engine

import (
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

type phase uint8

const (
	phaseHeader  phase = iota // waiting for the peer's first protocol header
	phaseSASL                 // exchanging SASL frames
	phaseHeader2              // SASL is done; waiting for the AMQP header
	phaseOpen                 // waiting for the peer's open
	phaseOpened
	phaseClosing // our close is out; only the peer's close counts
	phaseClosed
)

// Conn is one end of an AMQP connection. Its owner's lock guards it and everything that hangs from it.
type Conn struct {
	cfg Config
	h   Handler

	phase    phase
	openSent bool
	remote   wire.Open
	user     string      // proven by SASL, or claimed by nobody: empty
	mech     wire.Symbol // the mechanism used, empty without SASL
	exchange Exchange
	steps    int // SASL frames of the peer so far

	peerMaxFrame uint32

	// Sessions by the peer's channel and by ours. The last one used is kept at hand.
	byRemote map[uint16]*Session
	byLocal  map[uint16]*Session
	last     *Session

	// Links by name, of our role.
	senders, receivers map[string]*Link

	out      output
	stalled  []*Link    // links that could not send for want of window or output room
	dirty    []*Session // sessions with dispositions or flows to be written before output is taken
	freeIn   []*InDelivery
	resuming bool

	// Scratch for the hot frames: parsed in place.
	transfer    wire.Transfer
	sendFrame   wire.Transfer
	disposition wire.Disposition
	flow        wire.Flow
	tag         [4]byte

	heard, spoke bool // since the last Tick
	lastHeard    time.Time
	lastSpoke    time.Time
	terminated   bool
	closeErr     error
}

// NewConn makes one end of a connection. Where cfg.Client is set, call Start.
func NewConn(cfg Config, h Handler) *Conn {
	c := &Conn{cfg: cfg.withDefaults(), h: h, peerMaxFrame: minMaxFrame}
	return c
}

// Start begins a client's handshake: the protocol header, and with no SASL layer the open as well.
func (c *Conn) Start() {
	if c.cfg.SASL != nil {
		c.out.append(headerSASL)
		return
	}
	c.out.append(headerAMQP)
	c.sendOpen()
}

// Remote is the peer's open; its zero value before the peer has opened.
func (c *Conn) Remote() *wire.Open { return &c.remote }

// User is the name proven by SASL; empty for ANONYMOUS and without SASL.
func (c *Conn) User() string { return c.user }

// Mechanism is the SASL mechanism that was used; empty without SASL.
func (c *Conn) Mechanism() wire.Symbol { return c.mech }

// IsOpen tells whether both ends have opened and neither has closed.
func (c *Conn) IsOpen() bool { return c.phase == phaseOpened }

// Client tells whether this end dialled.
func (c *Conn) Client() bool { return c.cfg.Client }

const (
	headerAMQP = "AMQP\x00\x01\x00\x00"
	headerSASL = "AMQP\x03\x01\x00\x00"
)

// Input takes bytes that the peer sent and handles every whole frame in them. It returns how many bytes it used; what
// is left begins a frame of which more is needed (Need tells how much). An error is final: the owner writes what
// Output holds, closes the transport and calls Terminate.
func (c *Conn) Input(p []byte) (used int, err error) { return c.InputSome(p, len(p)) }

// InputSome is Input until at least some bytes are used. Where it used fewer, all whole frames are handled.
func (c *Conn) InputSome(p []byte, some int) (used int, err error) {
	c.heard = true
	for used < some {
		n, err := c.step(p[used:])
		if err != nil {
			return used, c.fail(err)
		}
		if n == 0 {
			return used, nil
		}
		used += n
	}
	return used, nil
}

// Need tells how long the frame that begins with p is, where that can be told already, else the shortest thing to come.
func (c *Conn) Need(p []byte) int {
	if len(p) < wire.FrameHeaderSize || c.phase == phaseHeader || c.phase == phaseHeader2 {
		return wire.FrameHeaderSize
	}
	return int(min(uint32(p[0])<<24|uint32(p[1])<<16|uint32(p[2])<<8|uint32(p[3]), c.cfg.MaxFrameSize))
}

// step handles one header or frame; 0 says that more bytes are needed.
func (c *Conn) step(p []byte) (int, error) {
	if len(p) < wire.FrameHeaderSize {
		return 0, nil
	}
	if c.phase == phaseHeader || c.phase == phaseHeader2 {
		return wire.FrameHeaderSize, c.handleHeader(string(p[:wire.FrameHeaderSize]))
	}
	if c.phase == phaseClosed {
		return len(p), nil
	}
	fh, err := wire.ParseFrameHeader(p)
	if err != nil {
		return 0, connErr(wire.CondFramingError, "%v", err)
	}
	if fh.Size > c.cfg.MaxFrameSize {
		return 0, connErr(wire.CondFramingError, "frame of %d bytes is larger than max-frame-size %d", fh.Size, c.cfg.MaxFrameSize)
	}
	if uint32(len(p)) < fh.Size {
		return 0, nil
	}
	body := p[int(fh.DataOffset)*4 : fh.Size]
	if c.phase == phaseSASL {
		if fh.Type != wire.FrameSASL {
			return 0, connErr(wire.CondFramingError, "frame type %d during SASL", fh.Type)
		}
		return int(fh.Size), c.handleSASL(body)
	}
	if fh.Type != wire.FrameAMQP {
		return 0, connErr(wire.CondFramingError, "frame type %d on an AMQP connection", fh.Type)
	}
	if len(body) == 0 {
		return int(fh.Size), nil // a heartbeat
	}
	return int(fh.Size), c.handleFrame(fh.Channel, body)
}

// fail turns an error of a handler into the frames that tell the peer. What it returns ends the connection.
func (c *Conn) fail(err error) error {
	if ce, ok := err.(*ConnectionError); ok && !ce.Remote {
		c.sendClose(wireError(ce.Condition, ce.Text))
	}
	c.phase = phaseClosed
	if c.closeErr == nil {
		c.closeErr = err
	}
	return err
}

// handleHeader answers a protocol header (AMQP 1.0 part 2, 2.2; part 5, 5.3.2).
func (c *Conn) handleHeader(got string) error {
	if c.cfg.Client {
		return c.handleHeaderClient(got)
	}
	switch {
	case got == headerSASL && c.phase == phaseHeader && len(c.cfg.Mechanisms) > 0:
		c.out.append(headerSASL)
		c.phase = phaseSASL
		m := wire.SASLMechanisms{}
		for _, mech := range c.cfg.Mechanisms {
			m.Mechanisms = append(m.Mechanisms, mech.Name)
		}
		c.sendSASL(m.Append)
		return nil
	case got == headerAMQP && (c.phase == phaseHeader2 || !c.cfg.RequireSASL):
		c.out.append(headerAMQP)
		c.phase = phaseOpen
		return nil
	}
	// What we would have taken is the answer to what we do not take.
	if c.phase == phaseHeader && (c.cfg.RequireSASL || got == headerSASL || len(c.cfg.Mechanisms) > 0) && len(c.cfg.Mechanisms) > 0 {
		c.out.append(headerSASL)
	} else {
		c.out.append(headerAMQP)
	}
	return ErrProtocolHeader
}

func (c *Conn) handleHeaderClient(got string) error {
	want := headerAMQP
	if c.cfg.SASL != nil && c.phase == phaseHeader {
		want = headerSASL
	}
	switch {
	case got == want && want == headerSASL:
		c.phase = phaseSASL
		return nil
	case got == want:
		c.phase = phaseOpen
		return nil
	case got == headerSASL:
		return ErrSASLRequired
	}
	return ErrProtocolHeader
}

// handleFrame dispatches one AMQP frame.
func (c *Conn) handleFrame(ch uint16, body []byte) error {
	code, _, err := wire.PeekDescriptor(body)
	if err != nil {
		return connErr(wire.CondDecodeError, "frame: %v", err)
	}
	if c.phase == phaseClosing && code != wire.CodeClose {
		return nil // AMQP 1.0 part 2, 2.4.6: discarding
	}
	if c.phase == phaseOpen && code != wire.CodeOpen && code != wire.CodeClose {
		return connErr(wire.CondFramingError, "performative 0x%x before open", code)
	}
	switch code {
	case wire.CodeTransfer:
		err = c.handleTransfer(ch, body)
	case wire.CodeDisposition:
		err = c.handleDisposition(ch, body)
	case wire.CodeFlow:
		err = c.handleFlow(ch, body)
	case wire.CodeOpen:
		err = c.handleOpen(body)
	case wire.CodeBegin:
		err = c.handleBegin(ch, body)
	case wire.CodeAttach:
		err = c.handleAttach(ch, body)
	case wire.CodeDetach:
		err = c.handleDetach(ch, body)
	case wire.CodeEnd:
		err = c.handleEnd(ch, body)
	case wire.CodeClose:
		return c.handleClose(body)
	default:
		return connErr(wire.CondFramingError, "unknown performative 0x%x", code)
	}
	if se, ok := err.(*SessionError); ok {
		if s := c.session(ch); s != nil {
			s.End(se)
		}
		return nil
	}
	return err
}

// decodeErr is the answer to a performative that does not parse: its link or session cannot be known, so the connection ends.
func decodeErr(what string, err error) error {
	text := err.Error()
	if !strings.HasPrefix(text, what+": ") {
		text = what + ": " + text
	}
	return connErr(wire.CondDecodeError, "%s", text)
}

func (c *Conn) handleOpen(body []byte) error {
	if c.phase != phaseOpen {
		return connErr(wire.CondFramingError, "open twice")
	}
	if _, err := c.remote.Parse(body); err != nil {
		return decodeErr("open", err)
	}
	if c.remote.MaxFrameSize < minMaxFrame {
		return connErr(wire.CondInvalidField, "open: max-frame-size %d is below 512", c.remote.MaxFrameSize)
	}
	if t := c.remote.IdleTimeout; t > 0 && t < minIdleTimeout { // 2.4.5: who cannot keep it up closes, and says why
		return connErr(wire.CondResourceLimitExceeded, "open: idle-time-out %d ms is below %d ms", t, minIdleTimeout)
	}
	c.peerMaxFrame = c.remote.MaxFrameSize
	if c.cfg.Refuse != nil {
		return c.cfg.Refuse
	}
	c.phase = phaseOpened
	c.sendOpen()
	c.h.Opened()
	return nil
}

func (c *Conn) sendOpen() {
	if c.openSent {
		return
	}
	c.openSent = true
	o := wire.Open{
		ContainerID:         c.cfg.ContainerID,
		Hostname:            c.cfg.Hostname,
		MaxFrameSize:        c.cfg.MaxFrameSize,
		ChannelMax:          c.cfg.ChannelMax,
		OfferedCapabilities: c.cfg.OfferedCapabilities,
		DesiredCapabilities: c.cfg.DesiredCapabilities,
		Properties:          c.cfg.Properties,
	}
	if c.cfg.IdleTimeout > 0 {
		o.IdleTimeout = uint32(min(c.cfg.IdleTimeout.Milliseconds(), 1<<31))
	}
	c.sendPerformative(0, o.Append)
}

func (c *Conn) handleClose(body []byte) error {
	var cl wire.Close
	if _, err := cl.Parse(body); err != nil {
		return decodeErr("close", err)
	}
	if c.phase != phaseClosing {
		c.sendClose(nil)
	}
	e := &ConnectionError{Remote: true}
	if cl.Error != nil {
		e.Condition, e.Text = cl.Error.Condition, cl.Error.Description
	}
	return e
}

// Close sends a close. The connection ends when the peer's close arrives, or when the owner stops waiting.
func (c *Conn) Close(e *wire.Error) {
	if c.phase >= phaseClosing {
		return
	}
	if c.phase < phaseOpen && !c.openSent {
		c.phase = phaseClosed
		return
	}
	c.Flush()
	c.sendClose(e)
	c.phase = phaseClosing
}

func (c *Conn) sendClose(e *wire.Error) {
	if c.phase < phaseOpen && !c.openSent {
		return // no AMQP frame may come before the header and the open
	}
	if c.phase >= phaseClosing {
		return
	}
	c.sendOpen() // a close must follow an open
	cl := wire.Close{Error: e}
	c.sendPerformative(0, cl.Append)
}

// Terminate ends everything: the transport is gone. It reports what hung from the connection and then Closed.
func (c *Conn) Terminate(err error) {
	if c.terminated {
		return
	}
	c.terminated = true
	c.phase = phaseClosed
	if c.closeErr == nil {
		c.closeErr = err
	}
	for _, s := range c.byLocal {
		s.drop(c.closeErr)
	}
	clear(c.byLocal)
	clear(c.byRemote)
	c.last = nil
	c.h.Closed(c.closeErr)
}

// Done tells whether no more input will be looked at: the owner may close the transport.
func (c *Conn) Done() bool { return c.phase == phaseClosed }

// Tick looks after the idle timeouts (AMQP 1.0 part 2, 2.4.5). It returns how long to wait before the next call; an error
// means that the peer has been silent for too long.
func (c *Conn) Tick(now time.Time) (time.Duration, error) {
	if c.heard || c.lastHeard.IsZero() {
		c.heard, c.lastHeard = false, now
	}
	if c.spoke || c.lastSpoke.IsZero() {
		c.spoke, c.lastSpoke = false, now
	}
	next := time.Duration(1 << 62)
	if c.cfg.IdleTimeout > 0 {
		limit := 2 * c.cfg.IdleTimeout
		if now.Sub(c.lastHeard) >= limit {
			return 0, c.fail(connErr(wire.CondResourceLimitExceeded, "no frame for %v", limit))
		}
		next = c.cfg.IdleTimeout / 2
	}
	if c.phase == phaseOpened && c.remote.IdleTimeout > 0 {
		every := max(time.Duration(c.remote.IdleTimeout)*time.Millisecond/4, time.Millisecond)
		if now.Sub(c.lastSpoke) >= every {
			c.out.append("\x00\x00\x00\x08\x02\x00\x00\x00")
			c.spoke, c.lastSpoke = false, now
		}
		next = min(next, every)
	}
	return next, nil
}
