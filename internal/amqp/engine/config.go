package engine

import (
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// Config of one end of a connection. The zero value is a usable server end that takes connections without SASL.
type Config struct {
	ContainerID string // ours, sent in open
	Hostname    string // client: open.hostname and the SASL hostname

	MaxFrameSize   uint32        // largest frame we take, bytes; 0 is 65536
	MaxMessageSize uint64        // largest message we take, bytes; 0 is no limit
	ChannelMax     uint16        // highest channel; 0 is 8191
	HandleMax      uint32        // highest handle; 0 is 65535
	Window         uint32        // session incoming window, frames; 0 is 4096
	OutLimit       int           // bytes of encoded output beyond which nothing more is sent; 0 is 256 KiB
	IdleTimeout    time.Duration // announced to the peer; silence of twice as long closes; 0 is 60 s, negative none

	OfferedCapabilities []wire.Symbol
	DesiredCapabilities []wire.Symbol
	Properties          wire.Map

	// Server end.
	Mechanisms  []Mechanism      // SASL mechanisms offered, in order; none: SASL is refused
	RequireSASL bool             // a client that sends the plain AMQP header is turned away
	Refuse      *ConnectionError // what the client's open is answered with, once it has logged in; nil: it is taken

	// Client end.
	Client bool
	SASL   ClientSASL // nil: no SASL layer
}

// Mechanism is one SASL mechanism of a server end.
type Mechanism struct {
	Name  wire.Symbol
	Start func() Exchange
}

// Exchange is the server side of one authentication. Step takes the client's response (the first may be nil) and gives
// the next challenge, or the user that was proven. A failure is [ErrAuthentication] or an error that wraps it.
type Exchange interface {
	Step(response []byte) (challenge []byte, user string, done bool, err error)
}

// ClientSASL is the client side: it chooses among the mechanisms offered and answers challenges.
type ClientSASL interface {
	// Choose gives the mechanism and its initial response; ok is false where none fits.
	Choose(offered []wire.Symbol) (mechanism wire.Symbol, initial []byte, ok bool)
	Respond(challenge []byte) (response []byte, err error)
}

// SASLFinisher is a ClientSASL that has a say when the server is content: Finish takes the additional data of the outcome, and gives an
// error where the server has not proven who it is.
type SASLFinisher interface{ Finish(additional []byte) error }

// Handler is told what happens on a connection. Its methods run inside calls into the Conn, under the owner's lock.
type Handler interface {
	// Opened: the peer's open has arrived; Conn.Remote is set.
	Opened()

	// Attached: a link that the peer asked for, to be answered by Accept or Refuse (now or later), or, where
	// Link.Local is true, the peer's answer to a link of ours.
	Attached(l *Link)

	// Detached: the link is of no further use, whoever ended it and at whatever level. err is nil for an orderly detach. Its
	// deliveries were reported to InDropped and OutDropped before.
	Detached(l *Link, err error)

	// Transfer: a part of a delivery arrived. payload is valid until the owner's Input batch is done. d.First marks the first part.
	// After the last part of a settled delivery d must not be kept; an unsettled one is kept until Settle, RemoteSettled or InDropped.
	Transfer(d *InDelivery, payload []byte, last bool)

	// Aborted: the sender took back a delivery that it had begun. d must not be kept.
	Aborted(d *InDelivery)

	// RemoteSettled: the sender settled a delivery, with its state as encoded (nil if none). d must not be kept.
	RemoteSettled(d *InDelivery, state []byte)

	// Sent: the last byte of a delivery for which Send answered Partial is encoded; its payload is not looked at any more.
	Sent(d *OutDelivery)

	// Settled: the receiver's outcome for a delivery, as encoded (nil if it settled without one). d may be used again.
	Settled(d *OutDelivery, kind wire.StateKind, state []byte)

	// Flow: a sending link may be able to send more (credit, window or output room), or a receiving link's sender reported
	// that its credit is used up by a drain (Link.Credit is 0).
	Flow(l *Link)

	// InDropped and OutDropped: the delivery went with its link. begun tells whether any byte of it was given to the peer.
	InDropped(d *InDelivery)
	OutDropped(d *OutDelivery, begun bool)

	// Closed: the connection is over; every link was reported Detached before. Called once.
	Closed(err error)
}

// Progress is what a handler may want to hear besides.
type Progress interface {
	// Received: the receiver told how much of a delivery it has, by a state that is no outcome (received), as encoded.
	Received(d *OutDelivery, state []byte)
}

// NoHandler is a Handler of connections that nothing happens on. Links that the peer asks for are refused.
type NoHandler struct{}

func (NoHandler) Opened() {}
func (NoHandler) Attached(l *Link) {
	l.Refuse(&LinkError{Condition: wire.CondNotAllowed, Text: "no links are taken on this connection"})
}
func (NoHandler) Detached(*Link, error)                        {}
func (NoHandler) Transfer(*InDelivery, []byte, bool)           {}
func (NoHandler) Aborted(*InDelivery)                          {}
func (NoHandler) RemoteSettled(*InDelivery, []byte)            {}
func (NoHandler) Sent(*OutDelivery)                            {}
func (NoHandler) Settled(*OutDelivery, wire.StateKind, []byte) {}
func (NoHandler) Flow(*Link)                                   {}
func (NoHandler) InDropped(*InDelivery)                        {}
func (NoHandler) OutDropped(*OutDelivery, bool)                {}
func (NoHandler) Closed(error)                                 {}

const (
	defaultMaxFrame = 64 << 10
	minMaxFrame     = 512 // AMQP 1.0 part 2, 2.8.18
	defaultWindow   = 4096
	defaultOutLimit = 256 << 10
	defaultIdle     = 60 * time.Second

	// minIdleTimeout is the shortest time in ms that a peer may want to hear from us in. To keep up 1 ms for 300 idle connections took half a core.
	minIdleTimeout = 100
)

func (c Config) withDefaults() Config {
	if c.MaxFrameSize == 0 {
		c.MaxFrameSize = defaultMaxFrame
	}
	c.MaxFrameSize = max(c.MaxFrameSize, minMaxFrame)
	if c.ChannelMax == 0 {
		c.ChannelMax = 8191
	}
	if c.HandleMax == 0 {
		c.HandleMax = 65535
	}
	if c.Window == 0 {
		c.Window = defaultWindow
	}
	if c.OutLimit == 0 {
		c.OutLimit = defaultOutLimit
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = defaultIdle
	}
	return c
}
