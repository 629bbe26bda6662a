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

// contextName is an environment and a deployment in an origin.
func contextName(environment, deployment string) string {
	return url.PathEscape(environment) + "/" + url.PathEscape(deployment)
}
