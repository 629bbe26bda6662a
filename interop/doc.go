// Package interop tests the router program from outside: it starts the real binary and drives it with foreign AMQP 1.0
// clients (go-amqp, rhea, qpid-proton) and with a peer of bare frames that shares no code with the product. It holds
// tests only. Read first: TestColossus in colossus_test.go. README.md lists what other routers are blamed for, and the test of each.
package interop
