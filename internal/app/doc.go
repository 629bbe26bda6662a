// Package app is the router program: it reads the configuration, wires table, door, node and listeners, and starts and stops
// them in order. It is the one package that knows them all. Read first: Start in run.go.
//
// Locks: tableFiles.loading is held while table files are read and applied; it is taken before the table's own lock.
package app
