//go:build heavy

package interop

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// How much is done by "make interop".
const (
	messagesUnderLoad = 50_000
	requesters        = 10_000
	largeBody         = 2 << 30
	hostility         = 4 * time.Second // of each hostile client
)

var perMillisecond = 0 // messages; 0: as many as go

// faultCases: all there are.
func faultCases(*rand.Rand) []fault { return allFaults() }

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

// Ten thousand clients and more come at once: those that there is room for are let in, the others are told that there is none, and a
// client that was there before notices nothing.
func TestAStormOfTenThousandConnections(t *testing.T) {
	const limit, storm, atOnce = 10_000, 10_050, 500
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur < storm+200 {
		t.Fatalf("%d files may be open here (%v): the test needs %d (ulimit -n)", files.Cur, err, storm+200)
	}
	r := startRouter(t, "popular", rows("QUIET", "null"), "--http", "127.0.0.1:0")
	metrics := strings.TrimPrefix(r.line(), "ready ") + "/metrics"
	witness, err := dialGo(t, r.url()).NewSender(within(t), "QUIET", nil)
	if err != nil {
		t.Fatal(err)
	}
	o := wire.Open{ContainerID: "guest", MaxFrameSize: 65536}
	hello, start := wire.BeginFrame(append([]byte(nil), amqpHeader...), wire.FrameAMQP, 0)
	hello = wire.EndFrame(o.Append(hello), start)

	began := time.Now()
	conns := make([]net.Conn, storm)
	slots := make(chan struct{}, atOnce)
	var wait sync.WaitGroup
	for i := range conns {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			c, err := net.Dial("tcp", r.addr)
			if err != nil {
				t.Error(err)
				return
			}
			conns[i] = c
			c.SetDeadline(time.Now().Add(patience))
			c.Write(hello)
			io.ReadFull(c, make([]byte, 16)) // the header, and the beginning of an open
		})
	}
	for range 100 {
		if got := sendOne(t, witness, amqp.NewMessage([]byte("x"))); got != "accepted" {
			t.Errorf("the witness is told %s", got)
		}
	}
	wait.Wait()
	took := time.Since(began)
	held, refused := scrape(t, metrics, "fingerpost_connections "), scrape(t, metrics, "fingerpost_connections_refused_total ")
	t.Logf("%d connections in %v: %d held, %d refused, %d MiB resident", storm, took, held, refused, scrape(t, metrics, "process_resident_memory_bytes ")>>20)
	if want := storm + 1 - limit; refused != want {
		t.Errorf("%d were refused, want %d", refused, want)
	}
	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}
	eventually(t, "they are gone", func() bool {
		return sendOne(t, witness, amqp.NewMessage([]byte("x"))) == "accepted" && scrape(t, metrics, "fingerpost_connections ") == 1
	})
}

// scrape gives one number of the metrics.
func scrape(t *testing.T, url, name string) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "\n"+name)
	var n float64
	if _, err := fmt.Sscan(rest, &n); !ok || err != nil {
		t.Fatalf("no %s: %v", name, err)
	}
	return int(n)
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
