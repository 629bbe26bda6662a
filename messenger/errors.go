package messenger

import (
	"errors"
	"fmt"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// What can go wrong, and what to do.
var (
	// ErrNoRoute: no row matches the address, and it names no host of its own. Add a row.
	ErrNoRoute = errors.New("no route matches the address")

	// ErrClosed: the messenger, or what was asked of it, is closed.
	ErrClosed = errors.New("closed")

	// ErrNotSent: a copy could not be sent before the delivery timeout or its ttl. No byte of it has left: putting the message
	// again cannot make two of it. The error that wraps it tells what kept it.
	ErrNotSent = errors.New("not sent in time")

	// ErrInDoubt: the link went after the copy was sent and before there was an outcome. The message may have arrived, or not:
	// putting it again can make two of it.
	ErrInDoubt = errors.New("in doubt: the link was lost before the outcome")

	// ErrReleased: the peer gave the copy back untouched. It can be put again.
	ErrReleased = errors.New("released by the peer")

	// ErrModified: the peer gave the copy back, and something may have been done with it.
	ErrModified = errors.New("modified by the peer")

	// ErrInsecurePlain: the hop has a password, and neither TLS nor a loopback address. Use amqps, or
	// Options.AllowInsecurePlain.
	ErrInsecurePlain = errors.New("a password is not sent in clear: use amqps")

	// ErrAuthentication: the peer does not take the hop's user and password.
	ErrAuthentication = engine.ErrAuthentication

	// ErrSettled: the delivery has its outcome already.
	ErrSettled = errors.New("the delivery has its outcome already")

	// ErrLost: the link that the delivery came by is gone, so that no outcome can be given. The sender may send it again.
	ErrLost = errors.New("the link of the delivery is gone")
)

// HopError says at which hop something went wrong. Hop has no credentials in it.
type HopError struct {
	Hop string
	Err error
}

func (e *HopError) Error() string { return e.Hop + ": " + e.Err.Error() }
func (e *HopError) Unwrap() error { return e.Err }

// AddressError says that an address is not one. Address has no credentials in it.
type AddressError struct {
	Address string
	What    string
}

func (e *AddressError) Error() string { return fmt.Sprintf("address %q: %s", e.Address, e.What) }

// Error is a peer's word, or one for it: why a message was rejected or a link refused.
type Error struct {
	Condition   string // "amqp:not-found"
	Description string
	Info        map[string]any
}

func (e *Error) Error() string {
	switch {
	case e.Condition == "":
		return "rejected"
	case e.Description == "":
		return e.Condition
	}
	return e.Condition + ": " + e.Description
}

// causedBy joins a sentinel with what led to it.
func causedBy(sentinel, cause error) error {
	if cause == nil {
		return sentinel
	}
	return fmt.Errorf("%w: %w", sentinel, cause)
}

// errEnded stands for the reason that a peer did not give.
var errEnded = errors.New("ended by the peer")

// public gives the peer's error where an error of the engine carries one.
func public(err error) error {
	var le *engine.LinkError
	var ce *engine.ConnectionError
	switch {
	case err == nil:
		return errEnded
	case errors.As(err, &le):
		return &Error{Condition: string(le.Condition), Description: le.Text}
	case errors.As(err, &ce) && ce.Condition != "":
		return &Error{Condition: string(ce.Condition), Description: ce.Text}
	}
	return err
}

func fromWire(e *wire.Error) *Error {
	if e == nil {
		return &Error{}
	}
	return &Error{Condition: string(e.Condition), Description: e.Description, Info: fromMap(e.Info)}
}
