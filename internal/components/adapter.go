package components

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/internal/components/proto"
)

// adapterSpec is an HTTPAdapter with its templates resolved: the value spec of an event.
type adapterSpec struct {
	URL                string            `json:"url"`
	Headers            map[string]string `json:"headers,omitempty"`
	InsecureSkipVerify bool              `json:"insecureSkipVerify,omitempty"`
	FollowRedirects    string            `json:"followRedirects,omitempty"`
}

// adapterCall is a request to a place outside.
type adapterCall struct{ spec adapterSpec }

// routeAdapter finds the target of an event that is for an HTTPAdapter: the adapter component that is connected here, or else the broker calls.
func (b *Broker) routeAdapter(e *proto.Event, c *pairing) (routed, *Failure) {
	kind, name := e.Target.Type, e.Target.Name
	switch {
	case !c.dependsOn(kind, name):
		return routed{}, fail(codeComponentMismatch, "")
	case kind != typeHTTPAdapter:
		return routed{}, fail(codeUnsupportedAdapter, "%s", kind)
	case !c.has(&e.Source):
		return routed{}, fail(codeComponentMismatch, "")
	}
	a := c.adapters[name]
	if a == nil {
		return routed{}, fail(codeNotFound, "HTTPAdapter %q not found", name)
	}
	spec, err := a.resolve(c.bound)
	if err != nil {
		return routed{}, fail(codeInvalid, "%v", err)
	}
	for i := range b.now.Load().objects.Adapters {
		x := &b.now.Load().objects.Adapters[i]
		if id := x.id(); x.Type == kind && b.streams.has(id.Group()) {
			text, err := json.Marshal(spec)
			if err != nil {
				return routed{}, asFailure(err)
			}
			e.Values = setValue(e.Values, "spec", jsonText(string(text)))
			e.Target = id
			return routed{}, nil
		}
	}
	return routed{adapter: &adapterCall{spec}}, nil
}

// has reports whether a replica of the group is connected.
func (x *streams) has(group string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.all {
		if s.id.Group() == group {
			return true
		}
	}
	return false
}

// resolve puts variables and secrets into the adapter's templates.
func (a *HTTPAdapter) resolve(b *bound) (s adapterSpec, err error) {
	s = adapterSpec{Headers: map[string]string{}, InsecureSkipVerify: a.InsecureSkipVerify, FollowRedirects: a.FollowRedirects}
	if s.URL, err = b.resolveText(a.URL); err != nil {
		return s, fmt.Errorf("url: %w", err)
	}
	for name, text := range a.Headers {
		if s.Headers[name], err = b.resolveText(text); err != nil {
			return s, fmt.Errorf("headers.%s: %w", name, err)
		}
	}
	return s, nil
}

func (b *bound) resolveText(text string) (string, error) {
	t, err := ParseTemplate(text)
	if err != nil {
		return "", err
	}
	secrets := map[string]string{}
	for _, f := range t.fields {
		if s, ok := b.secrets[f.name]; ok && f.kind == "Secrets" {
			if secrets[f.name], ok = s.read(); !ok {
				return "", fmt.Errorf("secret %q cannot be read", f.name)
			}
		}
	}
	return t.Resolve(b.vars, secrets)
}

// call makes the request of an event outside, and sends what comes back to its source. It has a goroutine of its own, up to the event's life.
func (b *Broker) call(a *adapterCall, e *proto.Event, from sender) {
	started := b.start(func() {
		ctx, cancel := context.WithTimeout(b.ctx, time.Duration(e.TTL))
		defer cancel()
		start := b.o.Now()
		answer, err := a.do(ctx, e, b.o.MaxEvent)
		if e.Category != proto.Request {
			from.answer(e, nil)
			return
		}
		left := e.TTL - int64(b.o.Now().Sub(start))
		if left <= 0 || ctx.Err() != nil {
			from.answer(e, fail(codeTimeout, ""))
			return
		}
		if err != nil {
			from.answer(e, asFailure(err))
			return
		}
		b.answerCall(e, answer, left, from)
	})
	if !started {
		from.answer(e, fail(codeBrokerUnavailable, ""))
	}
}

// answerCall sends the response to a call to its source.
func (b *Broker) answerCall(e, answer *proto.Event, left int64, from sender) {
	answer.ID, answer.ParentID, answer.TTL, answer.Category = proto.NewID(), e.ID, left, proto.Response
	answer.CreateTime, answer.Span, answer.Type = b.o.Now().UnixNano(), e.Span, typeHTTP
	answer.HasContext, answer.Context, answer.HasSource, answer.Source = true, e.Context, true, b.web
	answer.HasTarget, answer.Target = true, e.Source
	in, f := b.inlets.Get().(*inlet), b.finders.Get().(*Finder)
	defer b.inlets.Put(in)
	defer b.finders.Put(f)
	b.send(in, f, answer, viaRequest, done{e, from})
	in.flush()
}

// done passes on what became of the answer to an event.
type done struct {
	e    *proto.Event
	from sender
}

func (d done) answer(*proto.Event, *Failure) { d.from.answer(d.e, nil) }

// do makes the request.
func (a *adapterCall) do(ctx context.Context, e *proto.Event, most int) (*proto.Event, error) {
	r, err := a.request(ctx, e)
	if err != nil {
		return nil, fail(codeInvalid, "%v", err)
	}
	client := http.Client{CheckRedirect: a.redirect, Transport: sharedTransport(a.spec.InsecureSkipVerify)}
	resp, err := client.Do(r)
	if err != nil {
		return nil, fail(codeUnexpected, "http request failed: %v", plainURLError(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	switch {
	case err != nil:
		return nil, fail(codeUnexpected, "http request failed: %v", plainURLError(err))
	case len(body) > most:
		return nil, fail(codeContentTooLarge, "")
	}
	status, _ := json.Marshal(resp.StatusCode)
	return &proto.Event{
		ContentType: resp.Header.Get("Content-Type"), Content: body,
		Values: []proto.Entry{{Key: "status", Value: jsonText(resp.Status)}, {Key: "statusCode", Value: status}, {Key: "header", Value: jsonLists(resp.Header)}},
	}, nil
}

// plainURLError drops the URL of an error, which may hold a secret.
func plainURLError(err error) error {
	if x, ok := errors.AsType[*url.Error](err); ok {
		return x.Err
	}
	return err
}

// request is the HTTP request: method, headers and body of the event; the URL is the adapter's, with the event's path behind its own and the event's parameters, where
// those of the adapter win.
func (a *adapterCall) request(ctx context.Context, e *proto.Event) (*http.Request, error) {
	base, err := url.Parse(a.spec.URL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, errors.New("the adapter's URL is none")
	}
	given, err := url.Parse(textValue(e, "url"))
	if err != nil {
		return nil, errors.New("the event's url is none")
	}
	u := *base
	u = *u.JoinPath(within(given.EscapedPath()))
	query := given.Query()
	for k, v := range base.Query() {
		query[k] = v
	}
	u.RawQuery = query.Encode()
	method := textValue(e, "method")
	if method == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(e.Content))
	if err != nil {
		return nil, errors.New("the method is none")
	}
	if text, ok := proto.Find(e.Values, "header"); ok {
		if v, err := parseValue(text); err == nil {
			lists, _ := v.(map[string][]string)
			for name, list := range lists {
				r.Header[http.CanonicalHeaderKey(name)] = list
			}
		}
	}
	if e.ContentType != "" {
		r.Header.Set("Content-Type", e.ContentType)
	}
	for name, text := range a.spec.Headers {
		if strings.EqualFold(name, "Host") {
			r.Host = text
			continue
		}
		r.Header.Set(name, text)
	}
	return r, nil
}

// within is a path whose ".." do not lead out of what it is put behind, however they are written.
func within(path string) string {
	var parts []string
	for part := range strings.SplitSeq(path, "/") {
		switch plain, _ := url.PathUnescape(part); plain {
		case "..":
			parts = parts[:max(len(parts)-1, 0)]
		case ".":
		default:
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/")
}

// textValue is a value of an event that is a text.
func textValue(e *proto.Event, key string) string {
	text, ok := proto.Find(e.Values, key)
	if !ok {
		return ""
	}
	v, _ := parseValue(text)
	s, _ := v.(string)
	return s
}

func (a *adapterCall) redirect(r *http.Request, via []*http.Request) error {
	switch {
	case a.spec.FollowRedirects == "Always", a.spec.FollowRedirects == "SameHost" && r.URL.Host == via[0].URL.Host:
		if len(via) >= 10 {
			return errors.New("more than 10 redirects")
		}
		return nil
	}
	return http.ErrUseLastResponse
}

// sharedTransport are connections to places outside; those that do not check certificates are not kept.
func sharedTransport(insecure bool) http.RoundTripper {
	if !insecure {
		return http.DefaultTransport
	}
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
}
