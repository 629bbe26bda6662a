package amqp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/xdg-go/scram"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// scramHash is one of the hashes that SCRAM is spoken with (RFC 5802, RFC 7677).
type scramHash struct {
	mechanism wire.Symbol
	generator scram.HashGeneratorFcn
	size      int
}

// scramHashes are those spoken here, the one to be preferred first.
func scramHashes() []scramHash {
	return []scramHash{
		{"SCRAM-SHA-256", scram.SHA256, 32},
		{"SCRAM-SHA-512", scram.SHA512, 64},
		{"SCRAM-SHA-1", scram.SHA1, 20},
	}
}

func scramHashOf(mechanism string) (scramHash, bool) {
	all := scramHashes()
	i := slices.IndexFunc(all, func(h scramHash) bool { return string(h.mechanism) == mechanism })
	if i < 0 {
		return scramHash{}, false
	}
	return all[i], true
}

// Verifier is what a server keeps of a password for one SCRAM mechanism. Nobody can log in with it.
type Verifier struct {
	Mechanism  string
	Iterations int
	Salt       []byte
	StoredKey  []byte
	ServerKey  []byte
}

// The bounds of a verifier. A client computes the iterations at each login, a server at a PLAIN one.
const (
	DefaultIterations = 50_000
	MinIterations     = 4096 // RFC 7677, 4
	MaxIterations     = 2_000_000
	maxSalt           = 64
	saltBytes         = 16
)

// MakeVerifiers makes the verifiers of a password, one for each mechanism; 0 iterations is DefaultIterations.
func MakeVerifiers(user, password string, iterations int) ([]Verifier, error) {
	if iterations == 0 {
		iterations = DefaultIterations
	}
	if password == "" {
		return nil, errors.New("the password is empty")
	}
	var all []Verifier
	for _, h := range scramHashes() {
		salt := make([]byte, saltBytes)
		rand.Read(salt)
		v, err := h.verifier(user, password, salt, iterations)
		if err != nil {
			return nil, errors.New("the password has characters that SASL does not allow (RFC 4013)")
		}
		all = append(all, v)
	}
	return all, nil
}

func (h scramHash) verifier(user, password string, salt []byte, iterations int) (Verifier, error) {
	c, err := h.generator.NewClient(user, password, "")
	if err != nil {
		return Verifier{}, err
	}
	k, err := c.GetStoredCredentialsWithError(scram.KeyFactors{Salt: string(salt), Iters: iterations})
	return Verifier{string(h.mechanism), iterations, salt, k.StoredKey, k.ServerKey}, err
}

// String gives the verifier as the users file has it: MECHANISM$iterations:salt$stored-key:server-key, in base64.
func (v Verifier) String() string {
	b := base64.StdEncoding.EncodeToString
	return v.Mechanism + "$" + strconv.Itoa(v.Iterations) + ":" + b(v.Salt) + "$" + b(v.StoredKey) + ":" + b(v.ServerKey)
}

// ParseVerifier reads what String gives.
func ParseVerifier(text string) (Verifier, error) {
	bad := func(what string) (Verifier, error) {
		return Verifier{}, fmt.Errorf("verifier: %s: it is MECHANISM$iterations:salt$key:key, as routectl user add makes it", what)
	}
	if len(text) > 1024 {
		return bad("it is too long")
	}
	parts := strings.Split(text, "$")
	if len(parts) != 3 {
		return bad("it has no three parts")
	}
	h, ok := scramHashOf(parts[0])
	if !ok {
		return bad("the mechanism is unknown")
	}
	count, salt, ok1 := strings.Cut(parts[1], ":")
	stored, server, ok2 := strings.Cut(parts[2], ":")
	if !ok1 || !ok2 {
		return bad("a colon is missing")
	}
	v := Verifier{Mechanism: parts[0]}
	var err error
	if v.Iterations, err = strconv.Atoi(count); err != nil || v.Iterations < MinIterations || v.Iterations > MaxIterations {
		return bad(fmt.Sprintf("the iterations are a number from %d to %d", MinIterations, MaxIterations))
	}
	for _, f := range []struct {
		text string
		to   *[]byte
		min  int
		max  int
	}{{salt, &v.Salt, 8, maxSalt}, {stored, &v.StoredKey, h.size, h.size}, {server, &v.ServerKey, h.size, h.size}} {
		if *f.to, err = base64.StdEncoding.Strict().DecodeString(f.text); err != nil || len(*f.to) < f.min || len(*f.to) > f.max {
			return bad("a salt or key is not the base64 of one")
		}
	}
	return v, nil
}

// Logins are the users that a server knows by their passwords. It is not changed once it is made, and safe for concurrent use.
//
// A name that nobody has costs a client the same exchange and the same time as a wrong password: it is given a salt made of the
// name and a secret, and the iterations that most others have.
type Logins struct {
	users      map[string]*login
	secret     []byte
	iterations int
	gate       chan struct{} // bounds how many passwords are hashed at once
}

type login struct {
	byMechanism map[string]Verifier
	proven      atomic.Pointer[[sha256.Size]byte] // mac of the password that was right: hashed once in a process
}

// NewLogins makes logins of the verifiers of each user. The secret makes salts for names that nobody has; empty is a random one, with
// which such a name has another salt after a restart.
func NewLogins(secret []byte, verifiers map[string][]Verifier) *Logins {
	if len(secret) == 0 {
		secret = make([]byte, 32)
		rand.Read(secret)
	}
	l := &Logins{users: map[string]*login{}, secret: secret, gate: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
	counts := map[int]int{}
	for user, list := range verifiers {
		u := &login{byMechanism: map[string]Verifier{}}
		for _, v := range list {
			u.byMechanism[v.Mechanism] = v
			counts[v.Iterations]++
		}
		if len(list) > 0 {
			l.users[user] = u
		}
	}
	l.iterations = DefaultIterations
	for n, users := range counts {
		if best := counts[l.iterations]; users > best || users == best && n > l.iterations {
			l.iterations = n
		}
	}
	return l
}

func (l *Logins) mac(what string, parts ...string) [sha256.Size]byte {
	m := hmac.New(sha256.New, l.secret)
	for _, p := range append([]string{what}, parts...) {
		fmt.Fprintf(m, "%d:", len(p))
		m.Write([]byte(p))
	}
	return [sha256.Size]byte(m.Sum(nil))
}

// verifier gives that of a user, or for a name that has none one that no password fits.
func (l *Logins) verifier(user string, h scramHash) Verifier {
	salt := l.mac("salt", string(h.mechanism), user)
	key := l.mac("key", string(h.mechanism), user)
	v := Verifier{string(h.mechanism), l.iterations, salt[:saltBytes], make([]byte, h.size), make([]byte, h.size)}
	copy(v.StoredKey, key[:])
	copy(v.ServerKey, key[:])
	if u := l.users[user]; u != nil {
		if own, ok := u.byMechanism[v.Mechanism]; ok {
			return own
		}
	}
	return v
}

// Check tells whether a password is that of a user. It takes the time of the iterations, but for a password that was right before.
func (l *Logins) Check(user, password string) bool {
	u := l.users[user]
	mac := l.mac("proven", user, password)
	if u != nil {
		if p := u.proven.Load(); p != nil && subtle.ConstantTimeCompare(p[:], mac[:]) == 1 {
			return true
		}
	}
	l.gate <- struct{}{}
	defer func() { <-l.gate }()
	h := scramHashes()[0]
	if u != nil {
		for _, other := range scramHashes() { // the first that the user has
			if _, ok := u.byMechanism[string(other.mechanism)]; ok {
				h = other
				break
			}
		}
	}
	want := l.verifier(user, h)
	got, err := h.verifier("", password, want.Salt, want.Iterations)
	if err != nil { // characters that no password has: it takes as long
		h.verifier("", "-", want.Salt, want.Iterations)
		return false
	}
	if subtle.ConstantTimeCompare(got.StoredKey, want.StoredKey) != 1 || u == nil {
		return false
	}
	u.proven.Store(&mac)
	return true
}

// maxSASLMessage bounds what a peer may say in one step of a login.
const maxSASLMessage = 4096

// SCRAM is the server side of one SCRAM mechanism (RFC 5802); false where there is none of that name.
func (l *Logins) SCRAM(mechanism string) (engine.Mechanism, bool) {
	h, ok := scramHashOf(mechanism)
	if !ok {
		return engine.Mechanism{}, false
	}
	return engine.Mechanism{Name: h.mechanism, Start: func() engine.Exchange {
		server, err := h.generator.NewServer(func(user string) (scram.StoredCredentials, error) {
			v := l.verifier(user, h)
			return scram.StoredCredentials{
				KeyFactors: scram.KeyFactors{Salt: string(v.Salt), Iters: v.Iterations}, StoredKey: v.StoredKey, ServerKey: v.ServerKey,
			}, nil
		})
		if err != nil {
			return failing{err}
		}
		return &scramServer{conv: server.NewConversation()}
	}}, true
}

type failing struct{ err error }

func (f failing) Step([]byte) ([]byte, string, bool, error) { return nil, "", false, f.err }

type scramServer struct {
	conv    *scram.ServerConversation
	started bool
}

// Step gives the server's final message with the outcome, as additional data (RFC 4422, 3.6; AMQP 1.0 part 5, 5.3.3.5).
func (s *scramServer) Step(response []byte) ([]byte, string, bool, error) {
	if !s.started && len(response) == 0 {
		s.started = true
		return []byte{}, "", false, nil
	}
	s.started = true
	if len(response) > maxSASLMessage {
		return nil, "", false, fmt.Errorf("%w: a SCRAM message of %d bytes", engine.ErrAuthentication, len(response))
	}
	out, err := s.conv.Step(string(response))
	user := s.conv.Username()
	switch {
	case err != nil:
		return nil, "", false, fmt.Errorf("%w: %s: user %q", engine.ErrAuthentication, reasonText(err), clip(user))
	case !s.conv.Done():
		return []byte(out), "", false, nil
	case !s.conv.Valid():
		return nil, "", false, fmt.Errorf("%w: user %q", engine.ErrAuthentication, clip(user))
	case s.conv.AuthzID() != "" && s.conv.AuthzID() != user:
		return nil, "", false, fmt.Errorf("%w: acting for another user is not offered: user %q", engine.ErrAuthentication, clip(user))
	}
	return []byte(out), user, true, nil
}

// reasonText is what a SCRAM error says, without what it repeats of the peer's.
func reasonText(err error) string {
	text, _, _ := strings.Cut(err.Error(), ":")
	return clip(text)
}

// clip bounds what a log tells of a peer's words.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

// scramClient is the client side.
type scramClient struct {
	conv *scram.ClientConversation
	err  error // of an earlier step: what comes after it proves nothing
}

func newSCRAMClient(mechanism, user, password string) (*scramClient, error) {
	h, ok := scramHashOf(mechanism)
	if !ok {
		return nil, fmt.Errorf("no mechanism %s", mechanism)
	}
	c, err := h.generator.NewClient(user, password, "")
	if err != nil {
		return nil, errors.New("user or password have characters that SASL does not allow (RFC 4013)")
	}
	return &scramClient{conv: c.NewConversation()}, nil
}

func (c *scramClient) first() ([]byte, error) {
	s, err := c.conv.Step("")
	return []byte(s), err
}

var errServerUnproven = errors.New("the server has not proven that it knows the password")

// respond answers a challenge. Where the server's final message comes as one, the answer is empty.
func (c *scramClient) respond(challenge []byte) ([]byte, error) {
	var answer string
	switch {
	case c.err != nil:
	case len(challenge) > maxSASLMessage:
		c.err = fmt.Errorf("a challenge of %d bytes", len(challenge))
	default:
		if c.err = checkIterations(string(challenge)); c.err != nil {
			break
		}
		var err error
		if answer, err = c.conv.Step(string(challenge)); err != nil {
			c.err = errors.New(reasonText(err))
		}
	}
	return []byte(answer), c.err
}

// checkIterations keeps a server from having us hash for hours.
func checkIterations(challenge string) error {
	for part := range strings.SplitSeq(challenge, ",") {
		if n, ok := strings.CutPrefix(part, "i="); ok {
			if v, err := strconv.Atoi(n); err == nil && v > MaxIterations {
				return fmt.Errorf("the server wants %d iterations", v)
			}
		}
	}
	return nil
}

// finish takes the server's final message where it comes with the outcome.
func (c *scramClient) finish(additional []byte) error {
	if len(additional) > 0 && !c.conv.Done() {
		if _, err := c.respond(additional); err != nil {
			return err
		}
	}
	if c.err != nil {
		return c.err
	}
	if !c.conv.Valid() {
		return errServerUnproven
	}
	return nil
}
