package amqp

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// The mechanisms spoken here.
const (
	mechAnonymous = wire.Symbol("ANONYMOUS")
	mechPlain     = wire.Symbol("PLAIN")
)

// Anonymous is the server side of ANONYMOUS (RFC 4505): anybody, with no name.
func Anonymous() engine.Mechanism {
	return engine.Mechanism{Name: mechAnonymous, Start: func() engine.Exchange { return anonymous{} }}
}

type anonymous struct{}

func (anonymous) Step([]byte) ([]byte, string, bool, error) { return nil, "", true, nil }

// Plain is the server side of PLAIN (RFC 4616). verify tells whether the password is that of the user.
func Plain(verify func(user, password string) bool) engine.Mechanism {
	return engine.Mechanism{Name: mechPlain, Start: func() engine.Exchange { return plain{verify} }}
}

type plain struct {
	verify func(user, password string) bool
}

func (p plain) Step(response []byte) ([]byte, string, bool, error) {
	if response == nil {
		return []byte{}, "", false, nil // the client sends its answer to an empty challenge
	}
	// [authorisation id] NUL user NUL password
	parts := bytes.SplitN(response, []byte{0}, 4)
	if len(parts) != 3 || len(parts[1]) == 0 {
		return nil, "", false, fmt.Errorf("%w: PLAIN response is malformed", engine.ErrAuthentication)
	}
	user := string(parts[1])
	if len(parts[0]) > 0 && string(parts[0]) != user {
		return nil, "", false, fmt.Errorf("%w: acting for another user is not offered", engine.ErrAuthentication)
	}
	if !p.verify(user, string(parts[2])) {
		return nil, "", false, engine.ErrAuthentication
	}
	return nil, user, true, nil
}

// clientSASL logs in by PLAIN where there is a user, else by ANONYMOUS.
type clientSASL struct {
	user, password string
	plain          bool
}

func (s clientSASL) Choose(offered []wire.Symbol) (wire.Symbol, []byte, bool) {
	if s.plain {
		return mechPlain, s.plainResponse(), slices.Contains(offered, mechPlain)
	}
	return mechAnonymous, []byte("anonymous"), slices.Contains(offered, mechAnonymous)
}

func (s clientSASL) plainResponse() []byte {
	return []byte("\x00" + s.user + "\x00" + s.password)
}

func (s clientSASL) Respond([]byte) ([]byte, error) {
	if s.plain {
		return s.plainResponse(), nil
	}
	return []byte("anonymous"), nil
}
