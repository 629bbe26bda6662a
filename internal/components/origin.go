package components

import (
	"net/url"
	"strconv"
)

// originOf is the origin of the rows of a route: who asserts them, down to the route. kind is "release" for what is released and "context" for
// a pair of environment and deployment that was named.
func originOf(kind, context, component string, route int) string {
	return kind + ":" + context + "/" + component + "/r" + strconv.Itoa(route)
}

// contextKey is an environment and a deployment, and where what was released to it is meant, the manifest of that.
type contextKey struct{ environment, deployment, manifest string }

// name is the context in an origin and in the addresses of its events.
func (k contextKey) name() string {
	name := url.PathEscape(k.environment)
	if k.manifest != "" {
		name += ";" + url.PathEscape(k.manifest)
	}
	return name + "/" + url.PathEscape(k.deployment)
}
