//go:build heavy

package forwarder_test

const (
	matrixStep  = 1
	matrixBytes = 8 << 20
)
