package components

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Failure is what becomes of an event that cannot be routed, or not be answered: the body of an error event. Its codes are those of the wire.
type Failure struct {
	Code  int    `json:"code,omitempty"`
	GRPC  int    `json:"grpcCode,omitempty"`
	HTTP  int    `json:"httpCode,omitempty"`
	Msg   string `json:"msg,omitempty"`
	Cause string `json:"cause,omitempty"`
}

// Error is the text of an HTTP answer.
func (f *Failure) Error() string {
	if f.Cause == "" {
		return f.Msg
	}
	return f.Msg + ": " + f.Cause
}

// The codes of failures.
const (
	codeUnexpected         = 0
	codeBrokerMismatch     = 1
	codeBrokerUnavailable  = 2
	codeComponentGone      = 3
	codeComponentMismatch  = 4
	codeContentTooLarge    = 5
	codeInvalid            = 6
	codeNotFound           = 7
	codeRouteNotFound      = 10
	codeTimeout            = 11
	codeUnauthorized       = 12
	codeUnknownContentType = 13
	codeUnsupportedAdapter = 14
)

// failures are the failures by code.
var failures = map[int]Failure{
	codeUnexpected:         {GRPC: 2, HTTP: 500, Msg: "unexpected error"},
	codeBrokerMismatch:     {GRPC: 9, HTTP: 502, Msg: "broker mismatch"},
	codeBrokerUnavailable:  {GRPC: 14, HTTP: 502, Msg: "broker unavailable"},
	codeComponentGone:      {GRPC: 9, HTTP: 502, Msg: "component gone"},
	codeComponentMismatch:  {GRPC: 9, HTTP: 502, Msg: "component mismatch"},
	codeContentTooLarge:    {GRPC: 8, HTTP: 413, Msg: "content too large"},
	codeInvalid:            {GRPC: 3, HTTP: 400, Msg: "invalid"},
	codeNotFound:           {GRPC: 12, HTTP: 404, Msg: "not found"},
	codeRouteNotFound:      {GRPC: 12, HTTP: 404, Msg: "route not found"},
	codeTimeout:            {GRPC: 4, HTTP: 504, Msg: "time out"},
	codeUnauthorized:       {GRPC: 7, HTTP: 403, Msg: "component unauthorized"},
	codeUnknownContentType: {GRPC: 3, HTTP: 400, Msg: "unknown content type"},
	codeUnsupportedAdapter: {GRPC: 12, HTTP: 400, Msg: "unsupported adapter"},
}

func fail(code int, format string, args ...any) *Failure {
	f := failures[code]
	f.Code = code
	if format != "" {
		f.Cause = fmt.Sprintf(format, args...)
	}
	return &f
}

// failureOf reads the body of an error event.
func failureOf(body []byte) *Failure {
	f := &Failure{}
	if err := json.Unmarshal(body, f); err != nil || f.HTTP < 400 || f.HTTP > 599 {
		return fail(codeUnexpected, "an error event whose body is none")
	}
	return f
}

// asFailure makes a failure of any error.
func asFailure(err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	return fail(codeUnexpected, "%v", err)
}
