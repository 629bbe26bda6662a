package amqp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

const saslHeader = "AMQP\x03\x01\x00\x00"

// maxSASLFrame bounds a SASL frame of a server (AMQP 1.0 part 5, 5.3.1: 512 bytes; some send longer lists).
const maxSASLFrame = 4 << 10

// maxLoginFrames bounds an exchange, as the engine does.
const maxLoginFrames = 8

// Login logs in on a connection that another AMQP client then takes over, one that has fewer mechanisms than this package: what comes next on
// nc is the AMQP protocol header, of both sides. Of o it takes the address, the user and so on, not how to connect. An error leaves nc open.
func Login(ctx context.Context, nc net.Conn, o DialOptions) error {
	if deadline, ok := ctx.Deadline(); ok {
		nc.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	err := (&handover{nc: nc, login: newClientSASL(&o), hostname: o.Engine.Hostname}).run()
	if !stop() || ctx.Err() != nil {
		return ctx.Err()
	}
	nc.SetDeadline(time.Time{})
	return err
}

// handover is one login.
type handover struct {
	nc       net.Conn
	login    *clientSASL
	hostname string
	out      []byte
}

func (h *handover) run() error {
	if _, err := io.WriteString(h.nc, saslHeader); err != nil {
		return err
	}
	var header [len(saslHeader)]byte
	if _, err := io.ReadFull(h.nc, header[:]); err != nil {
		return err
	}
	if string(header[:]) != saslHeader {
		return engine.ErrProtocolHeader
	}
	for range maxLoginFrames {
		body, err := h.frame()
		if err != nil {
			return err
		}
		if done, err := h.answer(body); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("SASL exchange of more than %d frames", maxLoginFrames)
}

// frame reads one frame and not a byte more: what follows is the other client's.
func (h *handover) frame() ([]byte, error) {
	var head [wire.FrameHeaderSize]byte
	if _, err := io.ReadFull(h.nc, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size < wire.FrameHeaderSize || size > maxSASLFrame {
		return nil, fmt.Errorf("SASL frame of %d bytes", size)
	}
	p := make([]byte, size)
	copy(p, head[:])
	if _, err := io.ReadFull(h.nc, p[len(head):]); err != nil {
		return nil, err
	}
	f, err := wire.ParseFrameHeader(p)
	if err != nil {
		return nil, err
	}
	if f.Type != wire.FrameSASL || uint32(f.DataOffset)*4 > size {
		return nil, fmt.Errorf("frame type %d during SASL", f.Type)
	}
	return p[int(f.DataOffset)*4:], nil
}

// answer handles a frame of the server; done says that we are logged in.
func (h *handover) answer(body []byte) (done bool, err error) {
	code, _, err := wire.PeekDescriptor(body)
	if err != nil {
		return false, err
	}
	switch chosen := h.login.chosen != ""; {
	case code == wire.CodeSASLMechanisms && !chosen:
		return false, h.choose(body)
	case code == wire.CodeSASLChallenge && chosen:
		var c wire.SASLChallenge
		if _, err := c.Parse(body); err != nil {
			return false, err
		}
		response, err := h.login.Respond(c.Challenge)
		if err != nil {
			return false, errors.Join(engine.ErrAuthentication, err)
		}
		r := wire.SASLResponse{Response: response}
		return false, h.send(r.Append)
	case code == wire.CodeSASLOutcome && chosen:
		var o wire.SASLOutcome
		if _, err := o.Parse(body); err != nil {
			return false, err
		}
		if o.Code != 0 {
			return false, engine.ErrAuthentication
		}
		if err := h.login.Finish(o.AdditionalData); err != nil {
			return false, fmt.Errorf("%w: %v", engine.ErrAuthentication, err)
		}
		return true, nil
	}
	return false, fmt.Errorf("SASL frame 0x%x out of place", code)
}

func (h *handover) choose(body []byte) error {
	var m wire.SASLMechanisms
	if _, err := m.Parse(body); err != nil {
		return err
	}
	name, initial, ok := h.login.Choose(m.Mechanisms)
	switch {
	case !ok && h.login.err != nil:
		return fmt.Errorf("%w: %w", engine.ErrNoMechanism, h.login.err)
	case !ok:
		return fmt.Errorf("%w: it has %v", engine.ErrNoMechanism, slices.Clone(m.Mechanisms))
	}
	init := wire.SASLInit{Mechanism: name, InitialResponse: initial, HasInitialResponse: initial != nil, Hostname: h.hostname}
	return h.send(init.Append)
}

func (h *handover) send(appendTo func([]byte) []byte) error {
	buf, start := wire.BeginFrame(h.out[:0], wire.FrameSASL, 0)
	h.out = wire.EndFrame(appendTo(buf), start)
	_, err := h.nc.Write(h.out)
	return err
}
