package relay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Codes of an Error: those of the relay, and after them the client's own.
const (
	BadRequest  = "bad_request"
	Forbidden   = "forbidden"
	Unavailable = "unavailable" // nobody serves the topic
	ServerGone  = "server_gone"
	ClientGone  = "client_gone"
	Busy        = "busy" // not taken within the relay's time, or not read here

	Timeout   = "timeout"   // nothing came for Options.Timeout
	Cancelled = "cancelled" // by the context, by Close of the response, or by the client of a served request
	Closed    = "closed"    // the connection was lost, or Close was called
)

// Error ends a request, or refuses a call.
type Error struct {
	Code    string
	Message string // for people
	Topic   string
	Cause   error // what lies behind it here: of the context, the connection; mostly nil
}

func (e *Error) Error() string {
	text := "relay: " + e.Code
	if e.Topic != "" {
		text = fmt.Sprintf("relay: %s: %s", e.Topic, e.Code)
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

func (e *Error) Unwrap() error { return e.Cause }

// CodeOf is the code of an Error that err is or wraps, else "".
func CodeOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

type failure struct {
	Error *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// Failure tells whether a head or a last part says that the server failed: {"error":{"code":…,"message":…}}.
func Failure(data json.RawMessage) (*Error, bool) {
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		return nil, false
	}
	var f failure
	if json.Unmarshal(data, &f) != nil || f.Error == nil || f.Error.Code == "" {
		return nil, false
	}
	return &Error{Code: f.Error.Code, Message: f.Error.Message}, true
}

// failed is what an error of a handler says on the wire. Our insides do not go there: an error that is no *Error says that there was one.
func failed(err error) json.RawMessage {
	code, message := "internal", "the server failed"
	var e *Error
	if errors.As(err, &e) {
		code, message = e.Code, e.Message
	}
	return append(append(append(append([]byte(`{"error":{"code":`), String(code)...), `,"message":`...), String(message)...), "}}"...)
}
