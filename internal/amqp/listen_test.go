package amqp_test

import (
	"net"
	"testing"

	"github.com/fingerpost/fingerpost/internal/amqp"
)

// A listener is where it was asked to be: 0.0.0.0 is not the addresses of IPv6, too.
func TestListenTCP(t *testing.T) {
	for _, c := range []struct{ address, bound string }{
		{"0.0.0.0:0", "0.0.0.0"}, {"127.0.0.1:0", "127.0.0.1"}, {"[::1]:0", "::1"}, {"[::]:0", "::"},
	} {
		ln, err := amqp.ListenTCP(c.address)
		if err != nil {
			if net.ParseIP(c.bound).To4() == nil {
				t.Logf("%s: %v", c.address, err) // a host without IPv6
				continue
			}
			t.Fatal(err)
		}
		if got := ln.Addr().(*net.TCPAddr).IP.String(); got != c.bound {
			t.Errorf("%s: bound to %s", c.address, got)
		}
		ln.Close()
	}
}
