// Package journal is a log that tests read while it is written.
package journal
