// Package proto is the messages of broker.proto as bytes: events, who sends them and gets them, and the dialects of their values.
//
// Read Event.Parse in event.go first. The broker and the programs that are components speak by it.
package proto
