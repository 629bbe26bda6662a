package amqp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// The mechanisms spoken here.
const (
	mechAnonymous = wire.Symbol("ANONYMOUS")
	mechPlain     = wire.Symbol("PLAIN")
	mechExternal  = wire.Symbol("EXTERNAL")
)

// Anonymous is the server side of ANONYMOUS (RFC 4505): anybody, with no name.
func Anonymous() engine.Mechanism {
	return engine.Mechanism{Name: mechAnonymous, Start: func() engine.Exchange { return anonymous{} }}
}

type anonymous struct{}

func (anonymous) Step([]byte) ([]byte, string, bool, error) { return nil, "", true, nil }

// Plain is the server side of PLAIN (RFC 4616). verify tells whether the password is that of the user.
func Plain(verify func(user, password string) bool) engine.Mechanism {
	return engine.Mechanism{Name: mechPlain, Start: func() engine.Exchange { return plain{verify} }}
}

type plain struct {
	verify func(user, password string) bool
}

func (p plain) Step(response []byte) ([]byte, string, bool, error) {
	if response == nil {
		return []byte{}, "", false, nil // the client sends its answer to an empty challenge
	}
	// [authorisation id] NUL user NUL password
	parts := bytes.SplitN(response, []byte{0}, 4)
	if len(parts) != 3 || len(parts[1]) == 0 {
		return nil, "", false, fmt.Errorf("%w: PLAIN response is malformed", engine.ErrAuthentication)
	}
	user := string(parts[1])
	if len(response) > maxSASLMessage {
		return nil, "", false, fmt.Errorf("%w: a PLAIN response of %d bytes", engine.ErrAuthentication, len(response))
	}
	if len(parts[0]) > 0 && string(parts[0]) != user {
		return nil, "", false, fmt.Errorf("%w: acting for another user is not offered: user %q", engine.ErrAuthentication, clip(user))
	}
	if !p.verify(user, string(parts[2])) {
		return nil, "", false, fmt.Errorf("%w: user %q", engine.ErrAuthentication, clip(user))
	}
	return nil, user, true, nil
}

// External is the server side of EXTERNAL (RFC 4422, appendix A): the user is known already, by a certificate.
// known tells whether there is such a user; nil: there is.
func External(user string, known func() bool) engine.Mechanism {
	return engine.Mechanism{Name: mechExternal, Start: func() engine.Exchange { return external{user, known} }}
}

type external struct {
	user  string
	known func() bool
}

// Step takes no answer for an empty one: clients are seen that send none and know no challenge.
func (e external) Step(response []byte) ([]byte, string, bool, error) {
	if len(response) > 0 && string(response) != e.user {
		return nil, "", false, fmt.Errorf("%w: acting for another user is not offered: user %q", engine.ErrAuthentication, clip(e.user))
	}
	if e.known != nil && !e.known() {
		return nil, "", false, fmt.Errorf("%w: a certificate of user %q, whom nobody knows", engine.ErrAuthentication, clip(e.user))
	}
	return nil, e.user, true, nil
}

// maxUserName bounds the name in a certificate.
const maxUserName = 255

// CertificateUser is the user that a client has proven to be by its certificate: the common name of its subject. It is empty where the
// connection has no TLS, or no certificate that was verified, or the name cannot be shown.
func CertificateUser(nc net.Conn) string {
	t := Secured(nc)
	if t == nil {
		return ""
	}
	chains := t.ConnectionState().VerifiedChains
	if len(chains) == 0 || len(chains[0]) == 0 {
		return ""
	}
	name := chains[0][0].Subject.CommonName
	if len(name) > maxUserName || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ""
	}
	return name
}

// ErrInsecurePlain tells that a peer offers no login but one that shows the password to whoever listens.
var ErrInsecurePlain = errors.New("the peer offers PLAIN only, and the connection has no TLS")

// clientSASL logs in: with a password by SCRAM, or PLAIN where that is safe; with a certificate by EXTERNAL; else by ANONYMOUS.
type clientSASL struct {
	user, password string
	hasPassword    bool
	plain          bool // a password may be shown on this connection
	external       bool
	only           []wire.Symbol // the mechanisms to use, nil: any

	chosen wire.Symbol
	scram  *scramClient
	err    error // why none was chosen
}

func newClientSASL(o *DialOptions) *clientSASL {
	s := &clientSASL{user: o.User, password: o.Password, hasPassword: o.PLAIN, external: o.hasCertificate()}
	s.plain = o.TLS != nil || o.AllowInsecurePlain || isLoopback(o.Address)
	for _, m := range o.Mechanisms {
		s.only = append(s.only, wire.Symbol(m))
	}
	return s
}

// order gives the mechanisms that fit what is known, the best first.
func (s *clientSASL) order() (fit []wire.Symbol) {
	if s.hasPassword {
		for _, h := range scramHashes() {
			fit = append(fit, h.mechanism)
		}
		return append(fit, mechPlain)
	}
	if s.external {
		return []wire.Symbol{mechExternal, mechAnonymous}
	}
	return []wire.Symbol{mechAnonymous}
}

// Choose takes the best of the mechanisms that both sides have.
func (s *clientSASL) Choose(offered []wire.Symbol) (wire.Symbol, []byte, bool) {
	for _, m := range s.order() {
		if !slices.Contains(offered, m) || s.only != nil && !slices.Contains(s.only, m) {
			continue
		}
		if m == mechPlain && !s.plain {
			s.err = ErrInsecurePlain
			continue
		}
		initial, err := s.start(m)
		if err != nil {
			s.err = err
			continue
		}
		s.chosen = m
		return m, initial, true
	}
	return "", nil, false
}

func (s *clientSASL) start(m wire.Symbol) (initial []byte, err error) {
	if all, ok := s.outright(m); ok {
		return all, nil
	}
	if s.scram, err = newSCRAMClient(string(m), s.user, s.password); err != nil {
		return nil, err
	}
	return s.scram.first()
}

// outright gives all that a mechanism says; ok is false for one that has more to say.
func (s *clientSASL) outright(m wire.Symbol) (all []byte, ok bool) {
	switch m {
	case mechPlain:
		return []byte("\x00" + s.user + "\x00" + s.password), true
	case mechExternal:
		return []byte{}, true
	case mechAnonymous:
		return []byte("anonymous"), true
	}
	return nil, false
}

// Respond answers a challenge.
func (s *clientSASL) Respond(challenge []byte) ([]byte, error) {
	if all, ok := s.outright(s.chosen); ok {
		return all, nil
	}
	if s.scram == nil {
		return nil, errors.New("a challenge before a mechanism was chosen")
	}
	return s.scram.respond(challenge)
}

// Finish checks that a server of SCRAM has proven that it knows the password.
func (s *clientSASL) Finish(additional []byte) error {
	if s.scram == nil {
		return nil
	}
	return s.scram.finish(additional)
}

// isLoopback tells whether host:port is on this machine by its text: no name but localhost is looked up.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
