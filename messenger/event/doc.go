// Package event is for components that speak with an event router in Go: a Manager has handlers for types of events and sends events.
//
// Read first: (*Manager).Run, then (*Manager).session.
package event
