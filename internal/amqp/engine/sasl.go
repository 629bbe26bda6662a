package engine

import (
	"errors"
	"fmt"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// SASL codes (AMQP 1.0 part 5, 5.3.3.6).
const (
	saslOK   = 0
	saslAuth = 1
)

// maxSASLSteps bounds an exchange: no mechanism in use needs more.
const maxSASLSteps = 8

// Guesses tells whether p, which is the peer's and was not given to Input yet, begins with a step of a login by password: with what can
// be guessed. A frame that is not whole yet is none.
func (c *Conn) Guesses(p []byte) bool {
	if c.cfg.Client || c.phase != phaseHeader && c.phase != phaseSASL {
		return false
	}
	if c.phase == phaseHeader {
		if len(p) < len(headerSASL) || string(p[:len(headerSASL)]) != headerSASL {
			return false
		}
		p = p[len(headerSASL):]
	}
	if len(p) < wire.FrameHeaderSize {
		return false
	}
	fh, err := wire.ParseFrameHeader(p)
	if err != nil || fh.Size > c.cfg.MaxFrameSize || uint32(len(p)) < fh.Size {
		return false
	}
	body := p[int(fh.DataOffset)*4 : fh.Size]
	code, _, err := wire.PeekDescriptor(body)
	if err != nil || code != wire.CodeSASLInit {
		return err == nil && code == wire.CodeSASLResponse
	}
	var init wire.SASLInit
	_, err = init.Parse(body)
	return err == nil && init.Mechanism != "ANONYMOUS" && init.Mechanism != "EXTERNAL"
}

// handleSASL takes one SASL frame (AMQP 1.0 part 5, 5.3.2).
func (c *Conn) handleSASL(body []byte) error {
	if c.steps++; c.steps > maxSASLSteps {
		return connErr(wire.CondFramingError, "SASL exchange of more than %d frames", maxSASLSteps)
	}
	code, _, err := wire.PeekDescriptor(body)
	if err != nil {
		return connErr(wire.CondDecodeError, "SASL frame: %v", err)
	}
	if c.cfg.Client {
		return c.handleSASLClient(code, body)
	}
	switch {
	case code == wire.CodeSASLInit && c.exchange == nil:
		var init wire.SASLInit
		if _, err := init.Parse(body); err != nil {
			return decodeErr("sasl-init", err)
		}
		for _, m := range c.cfg.Mechanisms {
			if m.Name == init.Mechanism {
				c.mech, c.exchange = m.Name, m.Start()
				return c.saslStep(init.InitialResponse)
			}
		}
		return c.saslOutcome(saslAuth)
	case code == wire.CodeSASLResponse && c.exchange != nil:
		var r wire.SASLResponse
		if _, err := r.Parse(body); err != nil {
			return decodeErr("sasl-response", err)
		}
		return c.saslStep(r.Response)
	}
	return connErr(wire.CondFramingError, "SASL frame 0x%x out of place", code)
}

func (c *Conn) saslStep(response []byte) error {
	challenge, user, done, err := c.exchange.Step(response)
	switch {
	case err != nil:
		c.saslOutcome(saslAuth)
		if !errors.Is(err, ErrAuthentication) {
			err = fmt.Errorf("%w: %v", ErrAuthentication, err)
		}
		return err // why, for our log: the client hears no more than that it failed
	case !done:
		ch := wire.SASLChallenge{Challenge: challenge}
		c.sendSASL(ch.Append)
		return nil
	}
	c.user = user
	return c.saslOutcomeWith(saslOK, challenge)
}

func (c *Conn) saslOutcome(code uint8) error { return c.saslOutcomeWith(code, nil) }

func (c *Conn) saslOutcomeWith(code uint8, data []byte) error {
	o := wire.SASLOutcome{Code: code, AdditionalData: data}
	c.sendSASL(o.Append)
	if code != saslOK {
		return ErrAuthentication
	}
	c.exchange = nil
	c.phase = phaseHeader2
	return nil
}

func (c *Conn) handleSASLClient(code uint64, body []byte) error {
	if (code == wire.CodeSASLMechanisms) != (c.mech == "") { // who is content before we have said anything has proven nothing, either
		return connErr(wire.CondFramingError, "SASL frame 0x%x out of place", code)
	}
	switch code {
	case wire.CodeSASLMechanisms:
		var m wire.SASLMechanisms
		if _, err := m.Parse(body); err != nil {
			return decodeErr("sasl-mechanisms", err)
		}
		name, initial, ok := c.cfg.SASL.Choose(m.Mechanisms)
		if !ok {
			return ErrNoMechanism
		}
		c.mech = name
		init := wire.SASLInit{Mechanism: name, InitialResponse: initial, HasInitialResponse: initial != nil, Hostname: c.cfg.Hostname}
		c.sendSASL(init.Append)
		return nil
	case wire.CodeSASLChallenge:
		var ch wire.SASLChallenge
		if _, err := ch.Parse(body); err != nil {
			return decodeErr("sasl-challenge", err)
		}
		response, err := c.cfg.SASL.Respond(ch.Challenge)
		if err != nil {
			return errors.Join(ErrAuthentication, err)
		}
		r := wire.SASLResponse{Response: response}
		c.sendSASL(r.Append)
		return nil
	case wire.CodeSASLOutcome:
		var o wire.SASLOutcome
		if _, err := o.Parse(body); err != nil {
			return decodeErr("sasl-outcome", err)
		}
		if o.Code != saslOK {
			return ErrAuthentication
		}
		if f, ok := c.cfg.SASL.(SASLFinisher); ok {
			if err := f.Finish(o.AdditionalData); err != nil {
				return fmt.Errorf("%w: %v", ErrAuthentication, err)
			}
		}
		c.phase = phaseHeader2
		c.out.append(headerAMQP)
		c.sendOpen()
		return nil
	}
	return connErr(wire.CondFramingError, "SASL frame 0x%x out of place", code)
}
