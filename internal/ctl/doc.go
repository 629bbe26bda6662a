// Package ctl is routectl: the same verbs on a running router and on a table file.
//
// Read Run first, then editor, the interface that both sides implement: remote speaks AMQP Management at $management,
// local works on a file with no router. A verb is written once, against editor.
package ctl
