package load

import (
	"fmt"
	"os"
	"testing"

	"github.com/fingerpost/fingerpost/internal/house/leaks"
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
	leaks.Main(m)
}
