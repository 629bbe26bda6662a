//go:build race

package relay

// allocationsAllowed: under the race detector pools throw away a part of what they are given.
const allocationsAllowed = 3
