package relay

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

// Keys say who may connect, and what with. They are immutable.
type Keys struct {
	by      map[[sha256.Size]byte]*Key // by the hash of the token: a look-up takes as long for a wrong one as for one that is nearly right
	domains map[string]bool
}

// Key is a token and what it is for.
type Key struct {
	Name   string
	Domain string
	Relay  bool // it is linked to a Relay Broker claim

	ask, serve grants // P and S
	hash       [sha256.Size]byte
}

// grants are topics: all, or those that are named.
type grants struct {
	all    bool
	topics map[string]bool
}

func (g *grants) has(topic string) bool { return g.all || g.topics[topic] }

// maxKeys bounds a file of keys.
const maxKeys = 4 << 20

// ReadKeys reads a file of keys. It must be a regular one: to open a pipe may take for ever.
func ReadKeys(file string) (*Keys, error) {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeys+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxKeys {
		return nil, fmt.Errorf("%s: larger than %d bytes", file, maxKeys)
	}
	k, err := ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return k, nil
}

// keyFile is the form of the file.
type keyFile struct {
	Domain string              `json:"domain"` // for people and clients; each key names its own
	Keys   map[string]keyEntry `json:"keys"`
}

type keyEntry struct {
	Token  string   `json:"token"`
	Domain string   `json:"domain"`
	Relay  bool     `json:"relay"`
	P      []string `json:"P"`
	S      []string `json:"S"`
}

// ParseKeys reads keys. Errors name the key, and never a token.
//
//	{"keys": {NAME: {"token": TEXT, "domain": TEXT, "relay": BOOL, "P": [TOPIC...], "S": [TOPIC...]}}}
//
// The topic "*" is every one. P is for requests, S for serving and answering.
func ParseKeys(text []byte) (*Keys, error) {
	var f keyFile
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, jsonError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value in the file")
	}
	if len(f.Keys) == 0 {
		return nil, errors.New(`no key in it: {"keys": {"NAME": {"token": "…", "domain": "…", "relay": true, "P": ["*"], "S": ["*"]}}}`)
	}
	k := &Keys{by: map[[sha256.Size]byte]*Key{}, domains: map[string]bool{}}
	for _, name := range slices.Sorted(maps.Keys(f.Keys)) {
		e := f.Keys[name]
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("key %q: %w", name, err)
		}
		key := &Key{Name: name, Domain: e.Domain, Relay: e.Relay, ask: grantsOf(e.P), serve: grantsOf(e.S), hash: sha256.Sum256([]byte(e.Token))}
		if o := k.by[key.hash]; o != nil {
			return nil, fmt.Errorf("key %q: its token is that of %q", name, o.Name)
		}
		k.by[key.hash], k.domains[e.Domain] = key, true
	}
	return k, nil
}

// jsonError says what is wrong without showing what it is wrong with.
func jsonError(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("byte %d: invalid JSON", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Errorf("byte %d: %s: cannot be %s", kind.Offset, kind.Field, kind.Value)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("invalid JSON: it ends too early")
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return errors.New("invalid JSON")
}

func (e *keyEntry) check() error {
	switch {
	case e.Token == "":
		return errors.New("token: missing")
	case e.Domain == "" || !utf8.ValidString(e.Domain) || strings.ContainsAny(e.Domain, "/?#%\\*") || len(e.Domain) > 255:
		return errors.New("domain: 1 to 255 bytes, without any of / ? # % \\ *")
	case slices.Contains(e.P, "") || slices.Contains(e.S, ""):
		return errors.New("a topic is never empty")
	}
	return nil
}

func grantsOf(topics []string) grants {
	g := grants{topics: map[string]bool{}}
	for _, t := range topics {
		if t == "*" {
			g.all = true
		}
		g.topics[t] = true
	}
	return g
}

// find gives the key of a token; nil where there is none.
func (k *Keys) find(token string) *Key {
	if k == nil || token == "" {
		return nil
	}
	return k.by[sha256.Sum256([]byte(token))]
}

// of gives the key of a connection as it is now; nil where it has none any more.
func (k *Keys) of(c *Conn) *Key {
	if k == nil {
		return nil
	}
	if key := k.by[c.hash]; key != nil && key.Relay && key.Domain == c.domain {
		return key
	}
	return nil
}
