// Package admin is the door to the table: it authorises a command, plans it into table ops, applies them through one
// writer and answers.
//
// Read Core.Do first; Core.Handle is the same door for AMQP Management requests at $management. The package knows no
// network, no goroutine and no clock of its own: bytes and values in, bytes and values out.
//
// Lock: Core.mu guards providers, held snapshots and load sessions and is a leaf. A command is planned under the table's own lock, so that
// what was planned on is what is applied to.
package admin
