package mesh

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/websocket"
	"github.com/fingerpost/fingerpost/routetable"
)

// What came over AMQP goes to routers of our kind over AMQP (forwarder.Neighbour), and what came by Rembus in its frames. The router that connected opens
// the connection, at the port where it spoke Rembus: a WebSocket at the path /amqp/KEY, or a TCP connection whose first message is the key. The key
// is drawn for each link and told in setup, so that who has it is who has proven the link's name.

const (
	doorKeySize = 16
	doorByte    = 0xa0 // begins the message by which a TCP connection is for AMQP, and is the answer; no frame begins so
	doorPath    = "/amqp/"
)

type doorKey [doorKeySize]byte

func newDoorKey() (k doorKey) {
	rand.Read(k[:])
	return k
}

func (k doorKey) text() string { return linkName(be(k[:8])) + linkName(be(k[8:])) }

func be(b []byte) (n uint64) {
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

// neighbourTo makes the neighbour that a twin is. open is nil where it connects to us.
func (m *Mesh) neighbourTo(t *twin, open func(context.Context) (net.Conn, error)) *forwarder.Neighbour {
	return m.node.NewNeighbour(forwarder.NeighbourOptions{Name: t.name, Dial: open, May: func(address string) bool {
		topic, ok := strings.CutPrefix(address, "topic:")
		return ok && badName(topic) == "" && m.mayUse(t, topic)
	}})
}

// Neighbour tells whether a hop is a router that takes AMQP. A topic goes there as such, and an operator's name as the topic of that name; requests do not.
func (m *Mesh) Neighbour(hop *routetable.Hop, name string) (*forwarder.Neighbour, string) {
	t := m.twinOf(hop.Name)
	if t == nil {
		return nil, ""
	}
	k := keyOf("", name, true)
	if k.kind != laneTopic {
		return nil, ""
	}
	return t.neighbour.Load(), "topic:" + k.name
}

// lets has a router connect for AMQP by a key that it has drawn; false where that is none, or in use.
func (m *Mesh) lets(t *twin, key []byte) bool {
	if len(key) != doorKeySize || t.neighbour.Load() != nil || m.expected(doorKey(key)) != nil {
		return false
	}
	nb := m.neighbourTo(t, nil)
	t.neighbour.Store(nb)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.doors[doorKey(key)] = nb
	return true
}

func (m *Mesh) expected(key doorKey) *forwarder.Neighbour {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.doors[key]
}

// leaves ends what a twin was as a neighbour.
func (m *Mesh) leaves(t *twin) {
	nb := t.neighbour.Swap(nil)
	if nb == nil {
		return
	}
	m.mu.Lock()
	for key, n := range m.doors {
		if n == nb {
			delete(m.doors, key)
		}
	}
	m.mu.Unlock()
	nb.Leave()
}

// openDoor opens the connection for AMQP at a router's port.
func (p *peer) openDoor(ctx context.Context, text string, key doorKey) (net.Conn, error) {
	scheme, address, err := peerAddress(text)
	if err != nil {
		return nil, err
	}
	nc, err := p.dialPlain(ctx, scheme, address)
	if err != nil {
		return nil, err
	}
	if scheme[0] == 'w' {
		return websocket.DialStream(ctx, nc, address, doorPath+key.text(), "amqp")
	}
	if deadline, ok := ctx.Deadline(); ok {
		nc.SetDeadline(deadline)
	}
	_, err = nc.Write(append(append(appendTCPHeader(nil, 1+doorKeySize), doorByte), key[:]...))
	if err == nil {
		err = awaitDoor(nc)
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	nc.SetDeadline(time.Time{})
	return nc, nil
}

// awaitDoor reads the answer to a key. A router that takes nobody without a proof has sent a challenge before it.
func awaitDoor(nc io.Reader) error {
	var b [256]byte
	for range 2 {
		if _, err := io.ReadFull(nc, b[:1]); err != nil {
			return err
		}
		if b[0] == doorByte {
			return nil
		}
		if b[0] != tcpShort {
			return errNoDoor
		}
		_, err := io.ReadFull(nc, b[:1])
		if err == nil {
			_, err = io.ReadFull(nc, b[:b[0]])
		}
		if err != nil {
			return err
		}
	}
	return errNoDoor
}

var errNoDoor = errors.New("the router takes no AMQP here")

// dialPlain opens a TCP connection, with TLS where the scheme has it.
func (p *peer) dialPlain(ctx context.Context, scheme, address string) (net.Conn, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil || scheme != "tls" && scheme != "wss" {
		return nc, err
	}
	config := &tls.Config{}
	if p.o.TLS != nil {
		config = p.o.TLS.Clone()
	}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	t := tls.Client(nc, config)
	if err := t.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, err
	}
	return t, nil
}

// takeWeb takes a WebSocket for AMQP, where the request is for one.
func (m *Mesh) takeWeb(w http.ResponseWriter, r *http.Request) bool {
	text, ok := strings.CutPrefix(r.URL.Path, doorPath)
	if !ok {
		return false
	}
	nb := m.expected(parseDoorKey(text))
	if nb == nil {
		http.Error(w, "no router is expected here", http.StatusNotFound)
		return true
	}
	gate := websocket.Gate{Origins: m.o.Origins, Protocol: "amqp", Speaks: "AMQP 1.0"}
	if nc, already := gate.Upgrade(w, r); nc != nil {
		nb.Take(websocket.NewStream(nc, already, false))
	}
	return true
}

func parseDoorKey(text string) (k doorKey) {
	if len(text) != 32 {
		return k
	}
	for i := range 2 {
		n, ok := parseLinkName(text[16*i : 16*i+16])
		if !ok {
			return doorKey{}
		}
		for j := range 8 {
			k[8*i+j] = byte(n >> (56 - 8*j))
		}
	}
	return k
}

// errDoor says that a TCP connection is for AMQP.
var errDoor = errors.New("the connection is for AMQP")

// isDoor takes note that a connection is for AMQP, by a key that somebody has been told.
func (l *link) isDoor(key []byte) bool {
	t, ok := l.t.(*tcpTransport)
	if !ok || l.m.expected(doorKey(key)) == nil {
		return false
	}
	t.door = doorKey(key)
	return true
}

// takeTCP takes a TCP connection for AMQP whose key has come.
func (m *Mesh) takeTCP(nc net.Conn, key doorKey) {
	nb := m.expected(key)
	if nb == nil {
		nc.Close()
		return
	}
	nc.SetDeadline(time.Time{})
	if _, err := nc.Write([]byte{doorByte}); err != nil {
		nc.Close()
		return
	}
	nb.Take(nc)
}
