// Package app is the router program: it reads the configuration, wires table, door, node and listeners, and starts and stops
// them in order. It is the one package that knows them all. Read first: Run in run.go.
package app
