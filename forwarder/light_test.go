//go:build !heavy

package forwarder_test

// How much of the matrix is done where the tests are part of the whole suite: steps without a divisor in common with its sides.
const (
	matrixStep  = 23
	matrixBytes = 4 << 20
)
