//go:build !heavy

package interop

// How much is done where the tests are part of the whole suite.
const (
	messagesUnderLoad = 5_000
	requesters        = 1_000
	largeBody         = 200 << 20
)

var perMillisecond = 2 // messages; 0: as many as go
