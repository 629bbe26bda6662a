package websocket

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gobwas/ws"
)

// handshakeWait is how long a client may take to read the answer of the handshake.
const handshakeWait = 10 * time.Second

// Gate says which requests may become WebSockets. The zero value takes all programs, and no web page but those of an address here.
type Gate struct {
	// Origins are the web pages that may connect, as browsers name them: "https://app.example", or "*" for all. A program that is no browser
	// names none and may connect. Pages that the address itself was used for ("http://127.0.0.1:8080" on 127.0.0.1:8080) may, where it is an
	// IP address or localhost: a name that leads here may be anybody's.
	Origins []string

	Protocol string // the subprotocol, which the client must offer; empty: none is agreed on
	Speaks   string // what is spoken here, for who does not upgrade: "AMQP 1.0"
}

// Upgrade makes a WebSocket of a request, or refuses it: then it has answered, and nc is nil. already are bytes that were read behind the request.
//
// The handler then returns and leaves nc to a goroutine that it starts: nothing of net/http stays in memory for it.
func (g Gate) Upgrade(w http.ResponseWriter, r *http.Request) (nc net.Conn, already []byte) {
	if status, text := g.Refuse(r); status != 0 {
		if status == http.StatusUpgradeRequired {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "websocket")
		}
		http.Error(w, text, status)
		return nil, nil
	}
	up := ws.HTTPUpgrader{Timeout: handshakeWait}
	if g.Protocol != "" {
		up.Protocol = func(p string) bool { return p == g.Protocol }
	}
	nc, rw, _, err := up.Upgrade(r, w)
	if err != nil {
		if nc != nil {
			nc.Close()
		}
		return nil, nil
	}
	if n := rw.Reader.Buffered(); n > 0 {
		b, _ := rw.Reader.Peek(n)
		already = slices.Clone(b)
	}
	return nc, already
}

// Refuse tells why a request is no WebSocket that may be: an HTTP status and words; 0 where it may.
func (g Gate) Refuse(r *http.Request) (status int, text string) {
	switch {
	case !strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		return http.StatusUpgradeRequired, g.speaks()
	case !g.allows(r):
		return http.StatusForbidden, fmt.Sprintf("pages of %q may not connect", r.Header.Get("Origin"))
	case g.Protocol != "" && !offers(r.Header.Values("Sec-WebSocket-Protocol"), g.Protocol):
		return http.StatusBadRequest, "the WebSocket subprotocol " + g.Protocol + " is wanted"
	}
	return 0, ""
}

func (g Gate) speaks() string {
	text := "upgrade to websocket"
	if g.Speaks != "" {
		text = "this is " + g.Speaks + " over WebSocket: " + text
	}
	if g.Protocol != "" {
		text += ", subprotocol " + g.Protocol
	}
	return text
}

func offers(lists []string, protocol string) bool {
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			if strings.TrimSpace(name) == protocol {
				return true
			}
		}
	}
	return false
}

// allows looks at the origin: the web page that has a browser connect.
func (g Gate) allows(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	if len(origins) > 1 {
		return false
	}
	origin := origins[0]
	if slices.Contains(g.Origins, "*") || slices.ContainsFunc(g.Origins, func(a string) bool { return strings.EqualFold(a, origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host) && isOwnName(u.Hostname())
}

// isOwnName tells whether nobody else can make the host lead here.
func isOwnName(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost")
}
