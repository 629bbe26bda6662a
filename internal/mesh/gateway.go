package mesh

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// gateway is Rembus over HTTP (rembus.md, 1.6): each request is a visit.
type gateway struct {
	m    *Mesh
	mux  *http.ServeMux
	busy atomic.Int64 // requests that are being answered
}

// Gateway gives the handler of Rembus over HTTP:
//
//	POST /                      JSON-RPC 2.0, one or a batch
//	POST /{topic}               publish; the body is its arguments, or empty
//	GET /{topic}                call a method; the body is its arguments, or empty
//	GET /admin/{command}        a privileged command; so are POST /private_topic/{topic}, /public_topic/{topic}, /authorize/{name}/{topic}
//	                            and /unauthorize/{name}/{topic}
//	POST /subscribe/{topic}/{name}, /unsubscribe, /expose, /unexpose
//	                            what a component has, said by anybody; where subscribe is set
//
// A slash within a topic or a name is %2F.
func (m *Mesh) Gateway(subscribe bool) http.Handler {
	g := &gateway{m: m, mux: http.NewServeMux()}
	g.mux.HandleFunc("POST /{$}", g.handleRPC)
	g.mux.HandleFunc("POST /{topic}", g.handlePublish)
	g.mux.HandleFunc("GET /{topic}", g.handleCall)
	g.mux.HandleFunc("GET /admin/{command}", func(w http.ResponseWriter, r *http.Request) { g.command(w, r, r.PathValue("command")) })
	for command, path := range map[string]string{
		"private_topic": "/{topic}", "public_topic": "/{topic}", "authorize": "/{cid}/{topic}", "unauthorize": "/{cid}/{topic}",
	} {
		g.mux.HandleFunc("POST /"+command+path, func(w http.ResponseWriter, r *http.Request) { g.command(w, r, command) })
	}
	if subscribe {
		for _, command := range []string{"subscribe", "unsubscribe", "expose", "unexpose"} {
			g.mux.HandleFunc("POST /"+command+"/{topic}/{cid}", func(w http.ResponseWriter, r *http.Request) { g.configure(w, r, command) })
		}
	}
	return g
}

// ServeHTTP bounds what is answered at one time, and has Stop wait for it.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	if r.Method == http.MethodHead { // it would call a method
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	defer g.busy.Add(-1)
	if g.busy.Add(1) > int64(g.m.o.Connections) || !g.m.enter() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	defer g.m.running.Done()
	g.mux.ServeHTTP(w, r)
}

// enter has Stop wait for a request; false where the mesh ends.
func (m *Mesh) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopping {
		return false
	}
	m.running.Add(1)
	return true
}

// visitor begins the visit of who asks; nil where it is refused, with why. Its name must not be that of a component that is connected.
func (g *gateway) visitor(r *http.Request) (v *visit, refusal string) {
	name, attested, refusal := g.m.authenticate(r.Header.Get("Authorization"))
	if refusal != "" {
		g.m.count.refused.Add(1)
		return nil, refusal
	}
	return g.m.visit(name, attested, isOfThisMachine(r), r.RemoteAddr), ""
}

// maxBody bounds a body, and what becomes of it: it is held several times over.
func (g *gateway) maxBody() int { return min(g.m.o.MaxMessage, 1<<20) }

// body reads the body; false where it is refused, and that is said.
func (g *gateway) body(w http.ResponseWriter, r *http.Request) (b []byte, ok bool) {
	slow := http.NewResponseController(w)
	slow.SetReadDeadline(time.Now().Add(handshakeWait))
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(g.maxBody())))
	if err != nil {
		status := http.StatusBadRequest
		if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
			status = http.StatusRequestEntityTooLarge
		}
		w.WriteHeader(status)
		return nil, false
	}
	slow.SetReadDeadline(time.Time{})
	return b, true
}

// arguments reads a body that is an array, an object of named ones, or empty, which is none.
func (g *gateway) arguments(body []byte) (data []byte, err error) {
	var text json.RawMessage
	if len(body) == 0 {
		return noArguments, nil
	}
	if json.Unmarshal(body, &text) != nil || text[0] != '[' && text[0] != '{' {
		return nil, errors.New("the body is no array or object of JSON")
	}
	if data, err = cborOf(text); err == nil && len(data) > g.maxBody() {
		err = errors.New("the arguments are too long")
	}
	return data, err
}

var noArguments = []byte{majorArray << 5}

// enter is visitor, and refuses with the status who may not come in: then it is nil.
func (g *gateway) enter(w http.ResponseWriter, r *http.Request, status int) *visit {
	v, refusal := g.visitor(r)
	if v == nil {
		reason(w, status, refusal)
	}
	return v
}

func (g *gateway) handlePublish(w http.ResponseWriter, r *http.Request) {
	body, ok := g.body(w, r)
	if !ok {
		return
	}
	v := g.enter(w, r, http.StatusForbidden)
	if v == nil {
		return
	}
	defer v.end()
	data, err := g.arguments(body)
	if err == nil {
		err = v.publish(r.PathValue("topic"), data)
	}
	if err != nil {
		reason(w, http.StatusForbidden, err.Error())
	}
}

func (g *gateway) handleCall(w http.ResponseWriter, r *http.Request) {
	body, ok := g.body(w, r)
	if !ok {
		return
	}
	v := g.enter(w, r, http.StatusNotFound)
	if v == nil {
		return
	}
	defer v.end()
	data, err := g.arguments(body)
	if err != nil {
		reason(w, http.StatusForbidden, err.Error())
		return
	}
	f := &Frame{Type: Request, ID: newID(), HasID: true, Name: []byte(r.PathValue("topic")), Data: data}
	v.x.expect(f.ID)
	if err := v.ask(f); err != nil {
		reason(w, http.StatusForbidden, "the request cannot be sent")
		return
	}
	v.wait(r.Context(), g.m.o.RequestTimeout)
	a := v.x.answer(f.ID)
	respond(w, statusOf(a.status), a.data)
}

func statusOf(s Status) int {
	if s == StatusOK {
		return http.StatusOK
	}
	return http.StatusForbidden
}

// command gives a privileged command.
func (g *gateway) command(w http.ResponseWriter, r *http.Request, name string) {
	v := g.enter(w, r, http.StatusForbidden)
	if v == nil {
		return
	}
	defer v.end()
	topic := r.PathValue("topic")
	if topic == "" {
		topic = "__config__"
	}
	known, refusal := adminCommands[name], ""
	switch {
	case !v.l.isBoss():
		refusal = "unauthorized"
	case !known.boss:
		refusal = "no privileged command: " + name
	}
	if refusal != "" {
		g.m.count.refused.Add(1)
		reason(w, http.StatusForbidden, refusal)
		return
	}
	status, data := known.run(v.l, &Frame{Type: Admin, ID: newID(), Name: []byte(topic)}, &command{Cmd: &name, CID: r.PathValue("cid")})
	respond(w, statusOf(status), data)
}

// configure writes what a component has, before it connects or while it is there. Nobody is asked who says so.
func (g *gateway) configure(w http.ResponseWriter, r *http.Request, name string) {
	cid, topic := cleanName(r.PathValue("cid")), r.PathValue("topic")
	if badName(cid) != "" || !isNamed(cid) {
		g.m.count.refused.Add(1)
		reason(w, http.StatusForbidden, "bad cid")
		return
	}
	v := g.m.visit(cid, false, false, r.RemoteAddr)
	defer v.end()
	status, data := adminCommands[name].run(v.l, &Frame{Type: Admin, ID: newID(), Name: []byte(topic)}, &command{Cmd: &name})
	if status != StatusOK {
		g.m.count.refused.Add(1)
	}
	respond(w, statusOf(status), data)
}

// respond answers with data, as JSON; null is nothing.
func respond(w http.ResponseWriter, status int, data []byte) {
	if len(data) == 0 || isNull(data) && status == http.StatusOK {
		w.WriteHeader(status)
		return
	}
	text, err := appendJSON(nil, data)
	if err != nil {
		reason(w, http.StatusForbidden, "the answer has no form in JSON")
		return
	}
	write(w, status, text)
}

// reason refuses with words, a text of JSON.
func reason(w http.ResponseWriter, status int, words string) {
	write(w, status, appendJSONText(nil, words))
}

func write(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write(text)
}
