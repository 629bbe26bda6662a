package admin

import "fmt"

// The status codes of AMQP Management answers. Source: AMQP Management 1.0 working draft, 3.1; they are HTTP's.
const (
	StatusOK             = 200
	StatusCreated        = 201
	StatusNoContent      = 204
	StatusBadRequest     = 400
	StatusUnauthorized   = 401
	StatusForbidden      = 403
	StatusNotFound       = 404
	StatusConflict       = 409
	StatusTooLarge       = 413
	StatusInternal       = 500
	StatusNotImplemented = 501
)

// Error is a refusal: the status for the wire and words for a person. It is the reply.
type Error struct {
	Status int
	Text   string
	Err    error // the cause, for errors.As; may be nil
}

func (e *Error) Error() string { return e.Text }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Refuse makes a refusal; providers use it to answer with a status of their own.
func Refuse(status int, format string, args ...any) error { return refuse(status, format, args...) }

func refuse(status int, format string, args ...any) *Error {
	return &Error{Status: status, Text: fmt.Sprintf(format, args...)}
}
