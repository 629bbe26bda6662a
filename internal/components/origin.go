package components

import (
	"net/url"
	"strconv"
	"strings"
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

// routeOf is the route in an origin.
func routeOf(origin string) (id int, ok bool) {
	i := strings.LastIndex(origin, "/r")
	if i < 0 {
		return 0, false
	}
	id, err := strconv.Atoi(origin[i+2:])
	return id, err == nil
}
