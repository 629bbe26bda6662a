package mesh

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
)

// The codes of errors (rembus.md, 1.6).
const (
	codeInvalidRequest = -32600 // nothing was asked
	codeFailed         = -32000 // all else
)

// maxBatch is how many calls are answered at once.
const maxBatch = 1000

// rpcCall is one call of JSON-RPC.
type rpcCall struct {
	id    json.RawMessage // as it came; nil: it is not told
	frame Frame           // Publish: a notification
	err   error           // why it is none
}

// parseCalls reads a body: a call, or an array of calls. batch tells which.
func parseCalls(body []byte) (calls []rpcCall, batch bool, err error) {
	list := []json.RawMessage{body}
	if body = bytes.TrimLeft(body, " \t\r\n"); len(body) > 0 && body[0] == '[' {
		batch = true
		if json.Unmarshal(body, &list) != nil {
			return nil, batch, errors.New("the body is no JSON")
		}
		if len(list) == 0 || len(list) > maxBatch {
			return nil, batch, errors.New("a batch has 1 to " + strconv.Itoa(maxBatch) + " calls")
		}
	}
	for _, text := range list {
		calls = append(calls, parseCall(text))
	}
	return calls, batch, nil
}

// parseCall reads a call. What precedes the last slash of its method is who is to run it.
func parseCall(text []byte) (c rpcCall) {
	var o object
	if c.err = decodeJSON(text, &o); c.err != nil {
		return c
	}
	switch {
	case o.Method == nil:
		c.err = errors.New("there is no method")
		return c
	case present(o.ID) && o.ID[0] != '"' && o.ID[0] != '-' && (o.ID[0] < '0' || o.ID[0] > '9'):
		c.err = errors.New("an id is a text or a number")
		return c
	}
	c.frame.ID, c.frame.HasID = newID(), present(o.ID)
	if c.err = o.call(&c.frame); c.err != nil {
		return c
	}
	if c.frame.HasID {
		c.id = o.ID
	}
	if want := map[bool]Type{true: Request, false: Publish}[c.frame.HasID]; c.frame.Type != want || c.frame.Flags != 0 {
		c.err = errors.New("by HTTP there are calls and notifications only")
	}
	if isNull(c.frame.Data) { // params were left out
		c.frame.Data = noArguments
	}
	return c
}

// handleRPC answers JSON-RPC 2.0.
func (g *gateway) handleRPC(w http.ResponseWriter, r *http.Request) {
	body, ok := g.body(w, r)
	if !ok {
		return
	}
	if len(bytes.TrimSpace(body)) == 0 {
		write(w, http.StatusOK, appendRPCError(nil, nil, codeInvalidRequest, "Invalid Request"))
		return
	}
	calls, batch, err := parseCalls(body)
	if err != nil {
		write(w, http.StatusOK, appendRPCError(nil, nil, codeFailed, err.Error()))
		return
	}
	v, refusal := g.visitor(r)
	if v == nil {
		for i := range calls {
			calls[i].err = errors.New(refusal)
		}
	} else {
		defer v.end()
		g.run(v, r, calls)
	}
	text := g.answers(v, calls, batch)
	if text == nil {
		w.WriteHeader(http.StatusOK)
		return
	}
	write(w, http.StatusOK, text)
}

// run makes the calls, all at once, and waits for their answers.
func (g *gateway) run(v *visit, r *http.Request, calls []rpcCall) {
	for i := range calls {
		c := &calls[i]
		if c.err == nil && len(c.frame.Data) > g.maxBody() {
			c.err = errors.New("the arguments are too long")
		}
		switch {
		case c.err != nil:
		case c.frame.Type == Publish:
			v.publish(string(c.frame.Name), c.frame.Data)
		default:
			v.x.expect(c.frame.ID)
			if v.ask(&c.frame) != nil {
				c.err = errors.New("the request cannot be sent")
			}
		}
	}
	v.wait(r.Context(), g.m.o.RequestTimeout)
}

// answers are those of the calls, nil where they are notifications all.
func (g *gateway) answers(v *visit, calls []rpcCall, batch bool) []byte {
	var b []byte
	for i := range calls {
		c := &calls[i]
		if c.frame.Type == Publish && !c.frame.HasID && c.err == nil {
			continue
		}
		if b == nil && batch {
			b = append(b, '[')
		} else if b != nil {
			b = append(b, ',')
		}
		if c.err != nil {
			b = appendRPCError(b, c.id, codeFailed, c.err.Error())
			continue
		}
		b = appendRPCAnswer(b, c.id, v.x.answer(c.frame.ID))
	}
	if b != nil && batch {
		b = append(b, ']')
	}
	return b
}

func appendRPCAnswer(b []byte, id json.RawMessage, a answer) []byte {
	data := a.data
	if len(data) == 0 {
		data = nullItem
	}
	text, err := appendJSON(nil, data)
	switch {
	case err != nil:
		return appendRPCError(b, id, codeFailed, "the answer has no form in JSON")
	case a.status == StatusOK:
		return append(append(append(appendRPCHead(b, id), `,"result":`...), text...), '}')
	}
	if words, _, err := readText(data); err == nil {
		return appendRPCError(b, id, codeFailed, string(words))
	}
	return appendRPCError(b, id, codeFailed, string(text))
}

func appendRPCHead(b []byte, id json.RawMessage) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	return append(append(b, `{"jsonrpc":"2.0","id":`...), id...)
}

func appendRPCError(b []byte, id json.RawMessage, code int64, words string) []byte {
	b = append(appendRPCHead(b, id), `,"error":{"code":`...)
	b = append(strconv.AppendInt(b, code, 10), `,"message":`...)
	return append(appendJSONText(b, words), "}}"...)
}
