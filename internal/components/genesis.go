package components

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/internal/components/proto"
	"github.com/fingerpost/fingerpost/internal/silent"
)

// waiting are the HTTP requests that wait for their responses, by the id of their events.
type waiting struct {
	mu  sync.Mutex
	all map[string]chan reply // each of room one
}

// reply is a response, or why there is none.
type reply struct {
	event   proto.Event
	failure *Failure
}

func (w *waiting) add(id string) chan reply {
	c := make(chan reply, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[string]chan reply{}
	}
	w.all[id] = c
	return c
}

func (w *waiting) remove(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, id)
}

// answer brings a response to who waits for it. What it aliases is not changed.
func (w *waiting) answer(e *proto.Event) { w.give(e.ParentID, reply{event: *e}) }

func (w *waiting) give(id string, r reply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.all[id]; c != nil {
		select {
		case c <- r:
		default: // the first response counts
		}
	}
}

// web takes what became of a request's event.
type web struct{ b *Broker }

func (w web) answer(e *proto.Event, f *Failure) {
	if f != nil {
		w.b.waiting.give(e.ID, reply{failure: f})
	}
}

// ServeHTTP makes an event of a request, and the answer of what comes back.
func (b *Broker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	deadline := b.o.Now().Add(b.o.TTL)
	b.count.requests.Add(1)
	q := MapRequest(r)
	body, failure := b.body(w, r)
	if failure != nil {
		if failure.Code != codeTimeout && r.Header.Get("Expect") == "" { // else the client waits to be told whether it may send
			drain(w, r, int64(b.o.MaxEvent))
		}
		b.count.fail(failure)
		b.refuse(w, failure)
		return
	}
	e := b.requestEvent(&q, r, body)
	answer := b.waiting.add(e.ID)
	defer b.waiting.remove(e.ID)
	h := w.Header() // names are canonical already
	h["Kubefox-Adapter"], h["Kubefox-Event-Id"] = []string{b.webKey}, []string{e.ID}
	in, f := b.inlets.Get().(*inlet), b.finders.Get().(*Finder)
	e.TTL = int64(deadline.Sub(b.o.Now()))
	b.send(in, f, e, viaRequest, web{b})
	in.flush()
	b.inlets.Put(in)
	b.finders.Put(f)
	timer := time.NewTimer(deadline.Sub(b.o.Now()))
	defer timer.Stop()
	select {
	case x := <-answer:
		b.respond(w, &x)
	case <-timer.C:
		b.count.fail(fail(codeTimeout, ""))
		b.expired(w)
	case <-r.Context().Done():
		panic(http.ErrAbortHandler) // a handler that returns is a 200
	}
}

// body reads a request's body, up to the largest event, for as long as the request may take.
func (b *Broker) body(w http.ResponseWriter, r *http.Request) ([]byte, *Failure) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength > int64(b.o.MaxEvent) {
		return nil, fail(codeContentTooLarge, "")
	}
	c, end := http.NewResponseController(w), time.Now().Add(b.o.TTL)
	c.SetReadDeadline(end)
	body, err := io.ReadAll(io.LimitReader(r.Body, int64(b.o.MaxEvent)+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fail(codeTimeout, "")
	case err != nil:
		return nil, fail(codeInvalid, "the body could not be read")
	}
	c.SetReadDeadline(end.Add(readGrace)) // what is read from here on tells whether the client is there
	if len(body) > b.o.MaxEvent {
		return nil, fail(codeContentTooLarge, "")
	}
	return body, nil
}

// drain reads what is left of a body that is refused, within bounds: a client that is still sending when the connection closes does not see the answer.
func drain(w http.ResponseWriter, r *http.Request, most int64) {
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(2 * time.Second))
	io.CopyN(io.Discard, r.Body, most)
}

// requestEvent is the event of a request.
func (b *Broker) requestEvent(q *Request, r *http.Request, body []byte) *proto.Event {
	e := &proto.Event{
		ID: proto.NewID(), Type: utf8Text(q.Type), Category: proto.Request, CreateTime: b.o.Now().UnixNano(),
		HasContext: true, Context: q.Context, HasSource: true, Source: b.web, ContentType: utf8Text(r.Header.Get("Content-Type")), Content: body,
	}
	e.Context.Platform = b.now.Load().objects.Platform
	e.Values = []proto.Entry{
		{Key: "url", Value: jsonText(q.URL)}, {Key: "host", Value: jsonText(q.Host)}, {Key: "path", Value: jsonText(q.Path)}, {Key: "method", Value: jsonText(q.Method)},
		{Key: "header", Value: jsonLists(q.Header)}, {Key: "queryParam", Value: jsonLists(q.Query)},
	}
	e.View = &q.View
	e.Span = spanOf(r.Header.Get("Traceparent"), r.Header.Get("Tracestate"), q.Sampled)
	return e
}

// utf8Text is a text of a header, which may have any bytes, as events have texts.
func utf8Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// jsonLists is lists of texts as JSON, in the order of their names.
func jsonLists(m map[string][]string) []byte {
	var room [16]string
	names, size := room[:0], 2
	for name, list := range m {
		names = append(names, name)
		size += len(name) + 6
		for _, s := range list {
			size += len(s) + 3
		}
	}
	slices.Sort(names)
	b := append(make([]byte, 0, size), '{')
	for _, name := range names {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(appendJSON(b, name), ':', '[')
		for i, s := range m[name] {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, s)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

func (b *Broker) expired(w http.ResponseWriter) {
	plainText(w, b.o.ExpiredStatus, "time out")
}

// refuse answers with a failure.
func (b *Broker) refuse(w http.ResponseWriter, f *Failure) {
	if f.Code == codeTimeout {
		b.expired(w)
		return
	}
	plainText(w, f.HTTP, f.Error())
}

func plainText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(code)
	io.WriteString(w, text)
}

// respond makes the answer of a response.
func (b *Broker) respond(w http.ResponseWriter, x *reply) {
	if x.failure != nil {
		b.count.fail(x.failure)
		b.refuse(w, x.failure)
		return
	}
	e := &x.event
	h := w.Header()
	for _, k := range [...]struct{ name, value string }{
		{"Kubefox-Platform", e.Context.Platform}, {"Kubefox-Virtual-Environment", e.Context.Environment},
		{"Kubefox-App-Deployment", e.Context.Deployment}, {"Kubefox-Release-Manifest", e.Context.Manifest},
	} {
		if k.value != "" {
			h[k.name] = []string{k.value}
		}
	}
	if e.Type == proto.TypeError {
		b.refuse(w, failureOf(e.Content))
		return
	}
	if text, ok := proto.Find(e.Values, "header"); ok && len(text) > 2 {
		if v, err := parseValue(text); err == nil {
			lists, _ := v.(map[string][]string)
			for name, list := range lists {
				if !isOurs(name) {
					for _, s := range list {
						h.Add(name, fieldText(s))
					}
				}
			}
		}
	}
	if e.ContentType != "" {
		h["Content-Type"] = []string{fieldText(e.ContentType)}
	}
	h["Content-Length"] = []string{strconv.Itoa(len(e.Content))}
	w.WriteHeader(statusOf(e))
	w.Write(e.Content)
}

// fieldText is a text as a field may have it: control characters, which make a client refuse the whole response, become blanks.
func fieldText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// isOurs tells whether a field is not the component's to say: how a message is sent, which is for the listener (RFC 9110, 7.6.1), and whose event it answers.
func isOurs(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Kubefox-Adapter", "Kubefox-Event-Id", "Kubefox-Platform", "Kubefox-Virtual-Environment", "Kubefox-App-Deployment", "Kubefox-Release-Manifest":
		return true
	case "Connection", "Content-Length", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return strings.HasPrefix(name, http.TrailerPrefix)
}

// statusOf is the status of a response: 200 where it says none, or none that there is.
func statusOf(e *proto.Event) int {
	if text, ok := proto.Find(e.Values, "statusCode"); ok {
		if n, err := strconv.Atoi(string(text)); err == nil && n >= 200 && n <= 599 { // mostly
			return n
		}
		if v, err := parseValue(text); err == nil {
			if n, ok := v.(float64); ok && n >= 200 && n <= 599 {
				return int(n)
			}
		}
	}
	return http.StatusOK
}

// Gateway is the HTTP listener whose requests become events.
type Gateway struct {
	ln  net.Listener
	srv *http.Server
}

// readGrace is how much longer than a request may take its connection is read.
const readGrace = 10 * time.Second

// ListenHTTP opens the port for requests; t nil is without TLS.
func (b *Broker) ListenHTTP(address string, t *tls.Config) (*Gateway, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	if t != nil {
		ln = tls.NewListener(ln, t)
	}
	srv := &http.Server{
		Handler: b, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, ReadTimeout: b.o.TTL + readGrace, MaxHeaderBytes: 1 << 20,
		WriteTimeout:                 b.o.TTL + time.Minute, // from the request's header on: a client that does not read its response goes
		DisableGeneralOptionsHandler: true,                  // components answer OPTIONS
		ErrorLog:                     slog.NewLogLogger(b.log.Handler(), slog.LevelDebug),
	}
	silent.Close(srv)
	return &Gateway{ln, srv}, nil
}

// Addr is the address that was bound.
func (g *Gateway) Addr() net.Addr { return g.ln.Addr() }

// Serve answers until Close.
func (g *Gateway) Serve() error {
	if err := g.srv.Serve(g.ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close ends it; requests that are being answered have until ctx ends.
func (g *Gateway) Close(ctx context.Context) error {
	if g.srv.Shutdown(ctx) == nil {
		return nil
	}
	return g.srv.Close()
}
