//go:build heavy

package interop

import (
	"strings"
	"testing"
)

// What the examples of the clients' documentation show. Others have a test of their own: simple_send and simple_recv
// (TestEveryClientToEveryClient), client, server and rpc (TestRequestsAndReplies), direct_send and direct_recv (TestColossus), drain
// (TestDrain), reconnect (TestReconnectStorm), tls and sasl (TestForeignClientsLogInOverTLS), websockets
// (TestForeignClientsOverWebSocket). Left out: recurring_timer, which connects to nothing; Tracing, rabbitMQ, broker, db_* and *_tornado,
// which are about other software; send_raw, whose bytes are those of TestEveryTypePasses.
var examples = []struct {
	client, name string
	source       map[string]any // of the answer, where it counts
}{
	{rhea, "helloworld", nil},
	{rhea, "selector", map[string]any{"filter": nil}},
	{rhea, "browser", nil},
	{rhea, "durable", map[string]any{"durable": 0.0, "expiry": "link-detach"}},
	{proton, "helloworld", nil},
	{proton, "selector", map[string]any{"filter": nil}},
	{proton, "browser", nil},
	{proton, "blocking", nil},
	{proton, "sync", nil},
}

func TestExamplesOfTheClients(t *testing.T) {
	f := newFortress(t, "ANONYMOUS", "")
	r := startRouter(t, "examples", "", "--listen", "ws://127.0.0.1:0")
	ways := map[string]string{"TCP": r.url(), "TLS": f.at(""), "WebSocket": strings.TrimPrefix(r.line(), "ready ")}
	for _, x := range examples {
		for way, url := range ways {
			if x.client == proton && way == "WebSocket" {
				continue // proton has none
			}
			t.Run(x.client+" "+x.name+" over "+way, func(t *testing.T) {
				address := "examples/" + x.client + "/" + x.name
				if x.name == "sync" {
					waitReady(client(t, rhea, "recv", "--url", url, "--address", address, "--reply", "--quiet"))
				}
				p := client(t, x.client, "examples", "--url", url, "--example", x.name, "--address", address)
				e := p.next()
				for ; e.text("event") == "source"; e = p.next() {
					for key, want := range x.source {
						if e[key] != want {
							t.Errorf("%s of the source: got %v, want %v", key, e[key], want)
						}
					}
				}
				if e.text("event") != "done" || e.text("got") != "green red green" {
					t.Errorf("got %v, want all three messages", e)
				}
			})
		}
	}
	t.Run("proton transaction", func(t *testing.T) {
		p := client(t, proton, "examples", "--url", r.url(), "--example", "transaction")
		if e := p.expect("error"); e.text("condition") != "amqp:not-implemented" {
			t.Errorf("got %v", e)
		}
	})
}
