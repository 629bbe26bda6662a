package components

import (
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/fingerpost/fingerpost/internal/components/proto"
)

// Names of query parameters and headers that say where a request belongs and what type of event it is, the first that is there counts. Those
// from the third on are of older releases.
var (
	environmentNames = requestNames("kubefox-virtual-environment", "kf-ve", "kubefox-environment", "kf-env", "kfe", "kfv")
	deploymentNames  = requestNames("kubefox-app-deployment", "kf-dep", "kubefox-deployment", "kfd")
	typeNames        = requestNames("kubefox-event-type", "kf-type", "kubefox-type", "kft")
	sampleNames      = requestNames("kubefox-telemetry-sample", "kf-sample")
)

// requestName is a name, as a query has it and as headers do.
type requestName struct{ query, header string }

func requestNames(names ...string) []requestName {
	list := make([]requestName, len(names))
	for i, n := range names {
		list[i] = requestName{n, textproto.CanonicalMIMEHeaderKey(n)}
	}
	return list
}

// typeHTTP is the type of an event that was a request and says no other.
const typeHTTP = "io.kubefox.http"

// Request is a request as an event.
type Request struct {
	View
	Context proto.Context // without the platform
	URL     string
	Sampled bool // its trace is wanted
}

// MapRequest makes an event of a request. What names its context and type is taken out of its headers, which the event has, and out of the query.
func MapRequest(r *http.Request) Request {
	var query url.Values
	if r.URL.RawQuery != "" {
		query = r.URL.Query()
	}
	var q Request
	q.Header, q.Query = r.Header, query
	q.Context.Environment = q.takeOut(environmentNames)
	q.Context.Deployment = q.takeOut(deploymentNames)
	if q.Type = q.takeOut(typeNames); q.Type == "" {
		q.Type = typeHTTP
	}
	sample := q.first(sampleNames)
	q.Sampled = sample == "true" || sample == "1"

	host, scheme := r.Host, "http"
	if r.TLS != nil {
		scheme = "https"
	}
	if forwarded := r.Header.Get("X-Forwarded-Host"); forwarded != "" {
		host = forwarded
		if port := r.Header.Get("X-Forwarded-Port"); port != "" {
			host += ":" + port
		}
		if proto := r.Header.Get("X-Forwarded-Proto"); proto != "" {
			scheme = proto
		}
	}
	q.Method, q.Host, q.Path = r.Method, strings.ToLower(host), r.URL.Path
	q.HasMethod, q.HasHost, q.HasPath = true, true, true
	u := url.URL{Scheme: scheme, Host: host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: query.Encode()}
	q.URL = u.String()
	return q
}

// takeOut gives the first of the names that is there, and removes them all.
func (q *Request) takeOut(names []requestName) string {
	v := q.first(names)
	for _, n := range names {
		delete(q.Query, n.query)
		delete(q.Header, n.header)
	}
	return v
}

// first gives the first of the names that has a value: for each, the query before the headers.
func (q *Request) first(names []requestName) string {
	for _, n := range names {
		for _, list := range [2][]string{q.Query[n.query], q.Header[n.header]} {
			if len(list) > 0 && list[0] != "" {
				return list[0]
			}
		}
	}
	return ""
}
