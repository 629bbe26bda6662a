// Package web is the HTTP listener: whether the router is alive and ready.
package web
