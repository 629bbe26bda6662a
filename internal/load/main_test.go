package load

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also the relay of the tests: the test program started again.
func TestMain(m *testing.M) {
	if os.Getenv("LOAD_TEST_RELAY") != "" {
		if err := Relay(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
