//go:build !race

package forwarder_test

// allocationsAllowed is what pools and sockets may cost, far below one for each message.
const allocationsAllowed = 0.5
