//go:build heavy

package interop

import (
	"testing"
	"time"
)

// How much is done by "make interop".
const (
	messagesUnderLoad = 50_000
)

var perMillisecond = 0 // messages; 0: as many as go

// A peer that connects and does not go on is cut off after about 10 s.
func TestAStalledHandshakeIsCutOff(t *testing.T) {
	r := startRouter(t, "patient", "")
	for name, said := range map[string][]byte{
		"nothing is said":      nil,
		"half a header":        amqpHeader[:4],
		"the SASL header":      saslHeader,
		"the AMQP header":      amqpHeader,
		"the start of a frame": append(append([]byte{}, amqpHeader...), 0, 0, 1, 0, 2, 0),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dialBare(t, r.addr)
			c.bytes(said)
			began := time.Now()
			c.SetReadDeadline(began.Add(patience))
			var err error
			for buf := make([]byte, 512); err == nil; {
				_, err = c.in.Read(buf)
			}
			if took := time.Since(began); !isClosed(err) || took < 3*time.Second || took > 20*time.Second {
				t.Errorf("got %v after %v, want it closed after about 10 s", err, took)
			}
		})
	}
}
