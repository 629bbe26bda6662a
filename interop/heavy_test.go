//go:build heavy

package interop

import (
	"strings"
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

// So is one that is slow to become a WebSocket, or to speak AMQP on it.
func TestAStalledWebSocketIsCutOff(t *testing.T) {
	r := startRouter(t, "patient", "", "--listen", "ws://127.0.0.1:0", "--http", "127.0.0.1:0")
	listener := strings.TrimPrefix(r.line(), "ready ws://")
	page := strings.TrimPrefix(r.line(), "ready http://")
	upgrade := "GET /amqp HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Protocol: amqp\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	for _, addr := range []string{listener, page} {
		for name, said := range map[string]string{
			"nothing is said": "", "half a request": upgrade[:60], "no AMQP": upgrade, "half a frame": upgrade + "\x82\x88abcd12",
			"half an AMQP header": upgrade + "\x82\x84\x00\x00\x00\x00AMQP",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := dialBare(t, addr)
				c.bytes([]byte(said))
				began := time.Now()
				c.SetReadDeadline(began.Add(patience))
				var err error
				for buf := make([]byte, 512); err == nil; {
					_, err = c.in.Read(buf)
				}
				if took := time.Since(began); !isClosed(err) || took < 3*time.Second || took > 25*time.Second {
					t.Errorf("got %v after %v, want it closed after about 10 s", err, took)
				}
			})
		}
	}
}
