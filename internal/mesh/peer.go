package mesh

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// PeerOptions say how another router is connected to. URL and As are needed.
type PeerOptions struct {
	URL       string        // ws://, wss://, tcp:// or tls://HOST:PORT
	As        string        // the name that is said there
	Failovers []string      // URLs that are tried in turn while the first is away
	Period    time.Duration // between two tries; 0 is 1 s

	TLS    *tls.Config   // of wss and tls; nil: the system's authorities
	Key    crypto.Signer // proves the name: RSA or ECDSA; nil: Secret
	Secret string        // proves the name; empty: it cannot be
}

// peer is a router that we connect to, again and again.
type peer struct {
	m    *Mesh
	o    PeerOptions
	name string // of its twin here
	away bool   // it was lost, or never there

	url string // that is connected to

	// Owned by the reader of its link.
	door    doorKey
	proven  []byte // the challenge that was answered
	known   bool   // the name is taken
	waiting map[ID]func(l *link, f *Frame)
	exports []byte
	later   map[string]map[string]bool // by subscribe and expose: what commands told of since the exports, until the setup is answered
}

// told notes that a command has told of a topic.
func (p *peer) told(kind, topic string) {
	if p.exports == nil {
		return
	}
	if p.later[kind] == nil {
		p.later[kind] = map[string]bool{}
	}
	p.later[kind][topic] = true
}

// still leaves out of what was exported what commands have told of since, and adds of that what is there.
func (p *peer) still(kind string, exported []string, is func(topic string) bool) []string {
	exported = slices.DeleteFunc(exported, func(topic string) bool { return p.later[kind][topic] })
	for topic := range p.later[kind] {
		if is(topic) {
			exported = append(exported, topic)
		}
	}
	return exported
}

const peerPort = "8338"

// Connect connects to another router, and stays connected until Stop.
func (m *Mesh) Connect(o PeerOptions) error {
	if err := CheckName(o.As); err != nil {
		return err
	}
	for _, u := range append([]string{o.URL}, o.Failovers...) {
		if _, err := CheckPeer(u); err != nil {
			return err
		}
	}
	if o.Period == 0 {
		o.Period = time.Second
	}
	p := &peer{m: m, o: o, name: o.As}
	m.mu.Lock()
	defer m.mu.Unlock()
	rid := o.As + "@" + o.URL
	if m.peers[rid] {
		return fmt.Errorf("%s is connected to already, as %s", o.URL, o.As)
	}
	if m.peers[p.name] { // one of several
		p.name = rid
	}
	m.peers[p.name], m.peers[rid] = true, true
	m.running.Go(p.run)
	return nil
}

// CheckPeer says what is wrong with the URL of a peer, else gives it with its port.
func CheckPeer(url string) (whole string, err error) {
	scheme, address, err := peerAddress(url)
	return scheme + "://" + address, err
}

// CheckName says why something cannot be the name of a component or router.
func CheckName(name string) error {
	switch bad := badName(name); {
	case bad != "":
		return fmt.Errorf("%q is no name: %s", name, bad)
	case !isNamed(name):
		return fmt.Errorf("%q is no name: digits alone, and a UUID, are of those that have none", name)
	}
	return nil
}

// ReadKey reads a private key, RSA or ECDSA, from a file of PEM as Rembus components keep it.
func ReadKey(file string) (crypto.Signer, error) {
	text, err := readSmall(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s: no private key in PEM", file)
	}
	if k, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return k, nil
	}
	if k, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return k, nil
	}
	any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if k, ok := any.(crypto.Signer); ok && err == nil {
		return k, nil
	}
	return nil, fmt.Errorf("%s: no private key of RSA or ECDSA", file)
}

// peerAddress gives scheme and host:port of a peer's URL.
func peerAddress(text string) (scheme, address string, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || !slices.Contains([]string{"ws", "wss", "tcp", "tls"}, u.Scheme) {
		return "", "", fmt.Errorf("peer %q: write ws://HOST:PORT, wss://, tcp:// or tls://", text)
	}
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: peerPort, false: "8337"}[u.Scheme[0] == 'w']
	}
	switch n, err := strconv.ParseUint(port, 10, 16); {
	case err != nil || n == 0:
		return "", "", fmt.Errorf("peer %q: the port is 1 to 65535", text)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return "", "", fmt.Errorf("peer %q: nothing more than %s://HOST:PORT; the name is said by as", text, u.Scheme)
	}
	return u.Scheme, net.JoinHostPort(u.Hostname(), port), nil
}

// run is the reconnection loop: the first URL, then the failovers, and again.
func (p *peer) run() {
	told := false
	for first := true; ; {
		for i, u := range append([]string{p.o.URL}, p.o.Failovers...) {
			if !first && !p.m.pause(p.o.Period) {
				return
			}
			first = false
			t, err := p.dial(u)
			if err == nil {
				p.m.o.Log.Info("connected to a router", "url", u, "as", p.o.As)
				if i == 0 && p.away && len(p.o.Failovers) > 0 {
					p.m.shed()
				}
				err, told = p.m.serve(t, p), false
			}
			p.away = true
			if p.m.ctx.Err() != nil {
				return
			}
			if !told { // once for each outage
				p.m.o.Log.Warn("a router is away", "url", u, "error", err)
				told = true
			}
			if i > 0 && err == nil {
				break
			}
		}
	}
}

const dialWait = 10 * time.Second

func (p *peer) dial(text string) (transport, error) {
	scheme, address, err := peerAddress(text)
	if err != nil {
		return nil, err
	}
	p.url = text
	ctx, cancel := context.WithTimeout(p.m.ctx, dialWait)
	defer cancel()
	o := &p.m.o
	if scheme[0] == 'w' {
		c, err := websocket.Dial(ctx, scheme+"://"+address+"/", websocket.DialOptions{
			TLS: p.o.TLS, Conn: websocket.Options{MaxMessage: o.MaxMessage, PingEvery: o.PingEvery},
		})
		if err != nil {
			return nil, err
		}
		return webTransport{c}, nil
	}
	nc, err := p.dialPlain(ctx, scheme, address)
	if err != nil {
		return nil, err
	}
	return newTCPTransport(nc, o), nil
}

// shed ends the connections of others, where this router has been their failover: they go back to the first too.
func (m *Mesh) shed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range m.links {
		if l.dialled == nil {
			defer l.t.close(goingAway, "the first router is back")
		}
	}
}

var errTaken = errors.New("a component has the name by which a router is connected to")

// begin says who we are. Called by the link's reader before it reads.
func (p *peer) begin(l *link) error {
	p.waiting, p.exports, p.proven, p.known = map[ID]func(*link, *Frame){}, nil, nil, false
	l.login.name = p.name
	if _, _, reason := p.m.bind(l, true); reason != "" {
		return errTaken
	}
	p.ask(l, &Frame{Type: Identity, Name: []byte(p.o.As), Data: p.m.ports()}, p.identified)
	l.flush()
	return nil
}

// ports is the map of ports that this router listens on: it tells that we are one.
func (m *Mesh) ports() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	ports := map[string]uint64{}
	for _, l := range m.listeners {
		kind := "tcp"
		if l.web != nil {
			kind = "ws"
		}
		if _, port, err := net.SplitHostPort(l.ln.Addr().String()); err == nil && ports[kind] == 0 {
			ports[kind], _ = strconv.ParseUint(port, 10, 16)
		}
	}
	if len(ports) == 0 {
		ports["ws"] = 0 // a router all the same
	}
	b := appendHead(nil, majorMap, uint64(len(ports)))
	for _, kind := range []string{"tcp", "ws"} {
		if port, ok := ports[kind]; ok {
			b = appendHead(appendText(b, kind), majorUint, port)
		}
	}
	return b
}

// ask sends a request of our own; answer gets what comes back.
func (p *peer) ask(l *link, f *Frame, answer func(l *link, f *Frame)) {
	p.askBy(newID(), l, f, answer)
}

// askBy is ask with an id.
func (p *peer) askBy(id ID, l *link, f *Frame, answer func(l *link, f *Frame)) {
	f.ID, f.HasID = id, true
	p.waiting[id] = answer
	l.reply(f)
}

// answer takes the answer to one of ours; false where it is none (sendto_origin).
func (p *peer) answer(l *link, f *Frame) bool {
	take := p.waiting[f.ID.bare()]
	if take == nil && f.ID.bare() == connectionID && f.Status == StatusChallenge {
		take = p.identified // the router takes nobody without a proof (await_challenge)
	}
	if take == nil {
		return false
	}
	delete(p.waiting, f.ID.bare())
	take(l, f)
	return true
}

// identified goes on when the name is taken: it proves it, or tells what we have. A router that takes nobody without a proof challenges first, and may
// answer the identity with the same challenge, or when that is answered; or not at all.
func (p *peer) identified(l *link, f *Frame) {
	switch f.Status {
	case StatusOK:
		if p.known {
			return
		}
		p.known = true
		p.exports, p.later, p.door = append([]byte{}, f.Data...), map[string]map[string]bool{}, newDoorKey()
		p.ask(l, &Frame{Type: Admin, Name: []byte("__config__"), Data: p.m.setupOf(l.twin.Load(), p.door)}, p.setUp)
	case StatusChallenge:
		challenge, _, err := readBytes(f.Data)
		if err == nil && p.proven != nil && bytes.Equal(challenge, p.proven) {
			return
		}
		p.proven = bytes.Clone(challenge)
		proof, err2 := p.prove(challenge)
		if err = cmpErr(err, err2); err != nil {
			p.m.o.Log.Error("a router wants a proof", "url", p.o.URL, "as", p.o.As, "error", err)
			l.ending = true
			return
		}
		id := newID()
		if f.ID.bare() == connectionID {
			id = connectionID
		}
		p.askBy(id, l, &Frame{Type: Attestation, Name: []byte(p.o.As), Key: proof, Data: p.m.ports()}, p.identified)
	default:
		p.m.o.Log.Error("a router refuses our name", "url", p.o.URL, "as", p.o.As, "status", uint64(f.Status), "answer", short(f.Data))
		l.ending = true
	}
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// short is the beginning of an answer, as JSON, for the log.
func short(item []byte) string {
	b, _ := appendJSON(nil, item)
	return string(b[:min(len(b), 200)])
}

// prove answers a challenge (attestate).
func (p *peer) prove(challenge []byte) ([]byte, error) {
	if p.o.Key == nil {
		if p.o.Secret == "" {
			return nil, errors.New("there is neither key nor secret")
		}
		h := sha256.Sum256(plainText(challenge, p.o.Secret))
		return h[:], nil
	}
	h := sha256.Sum256(plainText(challenge, p.o.As))
	if k, ok := p.o.Key.(*ecdsa.PrivateKey); ok {
		return ecdsa.SignASN1(rand.Reader, k, h[:])
	}
	return p.o.Key.Sign(rand.Reader, h[:], crypto.SHA256)
}

// setupOf is the command setup: all that others than the peer have here, and the key by which we come for AMQP.
func (m *Mesh) setupOf(t *twin, door doorKey) []byte {
	exposed, subscribed := m.topicsFor(t)
	b := appendText(appendText([]byte{majorMap<<5 | 3}, "cmd"), "setup")
	b = appendTexts(appendText(b, "exposers"), exposed)
	b = appendTexts(appendText(b, "subscribers"), subscribed)
	if m.o.Server { // no router that others could reach anything by
		return b
	}
	b[0] += 2
	b = appendBytes(appendText(b, "amqp"), door[:])
	return appendWide(appendText(b, newsCommand), m.mark)
}

// setUp takes the answer of setup: a router of our kind gives its mark in it. Of another kind, what it has said to the identity are its topics (update_tables),
// and it is asked for its publishes.
func (p *peer) setUp(l *link, f *Frame) {
	t := l.twin.Load()
	if f.Status != StatusOK {
		p.m.o.Log.Error("a router refuses our topics", "url", p.o.URL, "as", p.o.As, "status", uint64(f.Status))
		l.ending = true
		return
	}
	if mark, door := kinOf(f.Data); mark != 0 {
		if door {
			url, key := p.url, p.door
			t.neighbour.Store(p.m.neighbourTo(t, func(ctx context.Context) (net.Conn, error) { return p.openDoor(ctx, url, key) }))
		}
		p.m.kin.up(t, mark)
		return
	}
	exposed, subscribed, err := parseExports(p.exports)
	if err != nil {
		p.m.o.Log.Warn("a router's topics cannot be read", "url", p.o.URL, "error", err)
	}
	exposed = p.still("expose", exposed, func(topic string) bool {
		r, ok := p.m.implementation(t.name, topic)
		return ok && p.m.has(r)
	})
	subscribed = p.still("subscribe", subscribed, func(topic string) bool { return p.m.has(interest(t.name, topic, 0)) })
	p.exports, p.later = nil, nil
	p.m.setup(t, exposed, subscribed)
	p.ask(l, adminOf("reactive"), func(*link, *Frame) {})
}

// adminOf makes a command of no arguments but status.
func adminOf(cmd string) *Frame {
	b := appendText(appendText([]byte{majorMap<<5 | 2}, "cmd"), cmd)
	return &Frame{Type: Admin, Name: []byte("__config__"), Data: append(appendText(b, "status"), cborTrue)}
}
