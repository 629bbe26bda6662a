package load

import (
	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// endpoint is what senders, receivers and idle connections have in common: the callbacks that they do not care for, and the end.
type endpoint struct {
	c *amqp.Conn
	r *runner
}

func (e *endpoint) Opened() {}

// Attached counts the links that are there.
func (e *endpoint) Attached(*engine.Link) { e.r.linkUp() }

// Detached ends the run where it was not over.
func (e *endpoint) Detached(_ *engine.Link, err error) { e.r.lost("link", err) }

func (e *endpoint) Transfer(*engine.InDelivery, []byte, bool)           {}
func (e *endpoint) Aborted(*engine.InDelivery)                          {}
func (e *endpoint) RemoteSettled(*engine.InDelivery, []byte)            {}
func (e *endpoint) Sent(*engine.OutDelivery)                            {}
func (e *endpoint) Settled(*engine.OutDelivery, wire.StateKind, []byte) {}
func (e *endpoint) Flow(*engine.Link)                                   {}
func (e *endpoint) InDropped(*engine.InDelivery)                        {}
func (e *endpoint) OutDropped(*engine.OutDelivery, bool)                {}
func (e *endpoint) AfterInput(bool)                                     {}
func (e *endpoint) BeforeFlush()                                        {}
func (e *endpoint) TakeWork() amqp.Work                                 { return nil }

// Closed ends the run where it was not over.
func (e *endpoint) Closed(err error) { e.r.lost("connection", err) }
