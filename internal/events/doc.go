// Package events is the event router: it gives events one order, keeps those of a window for replay, and speaks edri.v1 with components over
// WebSocket. Who gets an event is in the table: a subscription is the row event:req/TYPE (or event:res/TYPE) → event-conn:NAME.
//
// Read first: (*Router).publish in sequencer.go, where an event is stamped, kept, looked up and queued for its components; then push in outbox.go.
// ring.go keeps events for replay, conn.go speaks with a component, frame.go and json.go are the wire, health.go the clock.
//
// Order of locks: Router.mu (the sequencer), then that of one component's connection; never two connections.
package events
