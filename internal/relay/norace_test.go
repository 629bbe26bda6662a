//go:build !race

package relay

const allocationsAllowed = 0.1
