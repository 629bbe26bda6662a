package engine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// The three levels of AMQP errors. Each is the reply: the condition goes on the wire, the text is for people.

// ConnectionError closes the connection. Remote tells that the peer closed it.
type ConnectionError struct {
	Condition wire.Symbol
	Text      string
	Remote    bool
}

// SessionError ends a session; the connection lives on.
type SessionError struct {
	Condition wire.Symbol
	Text      string
}

// LinkError detaches a link; the session lives on. Remote tells that the peer detached it.
type LinkError struct {
	Condition wire.Symbol
	Text      string
	Remote    bool
}

func (e *ConnectionError) Error() string {
	return describe("connection closed", e.Remote, e.Condition, e.Text)
}
func (e *SessionError) Error() string { return describe("session ended", false, e.Condition, e.Text) }
func (e *LinkError) Error() string    { return describe("link detached", e.Remote, e.Condition, e.Text) }

func describe(what string, remote bool, cond wire.Symbol, text string) string {
	if remote {
		what += " by peer"
	}
	if cond == "" {
		return what
	}
	if text == "" {
		return fmt.Sprintf("%s: %s", what, cond)
	}
	return fmt.Sprintf("%s: %s: %s", what, cond, text)
}

// ErrSASLRequired tells a client that spoke plain AMQP that the server wants SASL first: dial again with it.
var ErrSASLRequired = errors.New("the peer requires SASL")

// ErrNoMechanism tells a client that the server offers no SASL mechanism that it can use.
var ErrNoMechanism = errors.New("the peer offers no SASL mechanism that can be used here")

// ErrAuthentication tells either side that SASL ended without success.
var ErrAuthentication = errors.New("authentication failed")

// ErrProtocolHeader tells that the peer does not speak AMQP 1.0.
var ErrProtocolHeader = errors.New("the peer does not speak AMQP 1.0")

// mostText is how long a text for people may be on the wire, in bytes: it fits into the smallest frame there is, with its condition.
const mostText = 256

// wireError makes the error that goes to the peer.
func wireError(cond wire.Symbol, text string) *wire.Error {
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText-len("…")], "") + "…"
	}
	return &wire.Error{Condition: cond, Description: text}
}

func connErr(cond wire.Symbol, format string, a ...any) error {
	return &ConnectionError{Condition: cond, Text: fmt.Sprintf(format, a...)}
}

func sessionErr(cond wire.Symbol, format string, a ...any) error {
	return &SessionError{Condition: cond, Text: fmt.Sprintf(format, a...)}
}

func linkErr(cond wire.Symbol, format string, a ...any) *LinkError {
	return &LinkError{Condition: cond, Text: fmt.Sprintf(format, a...)}
}
