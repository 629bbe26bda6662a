// Package web is the HTTP listener: whether the router is alive and ready, and its metrics. Read first: handler in server.go.
package web
