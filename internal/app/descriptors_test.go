//go:build unix

package app

import (
	"testing"

	"github.com/fingerpost/fingerpost/forwarder"
)

// Clients do not take every descriptor that the process may have.
func TestConnectionsAreBoundByDescriptors(t *testing.T) {
	for _, c := range []struct {
		name             string
		configured, want int
		files            uint64
	}{
		{"there are enough for the default", 0, 0, 10_200},
		{"the default is too many", 0, 824, 1024},
		{"few files", 0, 32, 64},
		{"fewer are configured", 20, 20, 64},
		{"more are configured", 5000, 824, 1024},
		{"next to none", 0, 1, 1},
	} {
		if got := withinDescriptors(forwarder.Limits{Connections: c.configured}, c.files); got.Connections != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got.Connections, c.want)
		}
	}
}
