package components

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// token is a JWT, taken apart.
type token struct {
	alg, kid  string
	signed    []byte // what the signature is of
	signature []byte
	claims    claims
}

// claims are those of a service account's token.
type claims struct {
	Expires    *float64 `json:"exp"`
	NotBefore  *float64 `json:"nbf"`
	Kubernetes struct {
		ServiceAccount struct {
			Name string `json:"name"`
		} `json:"serviceaccount"`
	} `json:"kubernetes.io"`
}

// maxToken is the longest token that is looked at.
const maxToken = 16 << 10

// parseToken reads a JWT (RFC 7519) in compact form; its signature is not judged. ErrPass says that it is none.
func parseToken(text string) (*token, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 || len(text) > maxToken {
		return nil, ErrPass
	}
	var raw [3][]byte
	for i, p := range parts {
		var err error
		if raw[i], err = base64.RawURLEncoding.DecodeString(p); err != nil {
			return nil, ErrPass
		}
	}
	var head struct{ Alg, Kid string }
	t := &token{signed: []byte(text[:len(parts[0])+1+len(parts[1])]), signature: raw[2]}
	if json.Unmarshal(raw[0], &head) != nil || json.Unmarshal(raw[1], &t.claims) != nil {
		return nil, ErrPass
	}
	t.alg, t.kid = head.Alg, head.Kid
	if t.claims.Kubernetes.ServiceAccount.Name == "" {
		return nil, errors.New("the token names no service account")
	}
	return t, nil
}

// KeySet judges tokens by keys of its own.
type KeySet struct {
	keys []key
	now  func() time.Time
}

type key struct {
	id, alg string // empty: any
	public  crypto.PublicKey
}

// ReadJWKS reads a file of keys (RFC 7517): RSA, P-256 and Ed25519.
func ReadJWKS(file string) (*KeySet, error) {
	text, err := readBounded(file, 1<<20)
	if err != nil {
		return nil, err
	}
	s, err := ParseJWKS(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// ParseJWKS reads the text of such a file.
func ParseJWKS(text []byte) (*KeySet, error) {
	var file struct{ Keys []jsonKey }
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	s := &KeySet{now: time.Now}
	for i, k := range file.Keys {
		public, err := k.public()
		if err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
		s.keys = append(s.keys, key{k.Kid, k.Alg, public})
	}
	if len(s.keys) == 0 {
		return nil, errors.New("no key in the file")
	}
	return s, nil
}

// jsonKey is a key of a file.
type jsonKey struct{ Kty, Kid, Alg, Crv, N, E, X, Y string }

func (k *jsonKey) public() (crypto.PublicKey, error) {
	number := func(s string) *big.Int {
		b, err := base64.RawURLEncoding.DecodeString(s)
		if err != nil || len(b) > 1024 {
			return new(big.Int)
		}
		return new(big.Int).SetBytes(b)
	}
	switch {
	case k.Kty == "RSA":
		e := number(k.E)
		p := &rsa.PublicKey{N: number(k.N), E: int(e.Int64())}
		if p.N.BitLen() < 2048 || !e.IsInt64() || p.E < 3 || p.E >= 1<<31 {
			return nil, errors.New("an RSA key of less than 2048 bits, or none")
		}
		return p, nil
	case k.Kty == "EC" && k.Crv == "P-256":
		x, y := number(k.X), number(k.Y)
		point := make([]byte, 65)
		if point[0] = 4; x.BitLen() > 256 || y.BitLen() > 256 {
			return nil, errors.New("not a point of P-256")
		}
		x.FillBytes(point[1:33])
		y.FillBytes(point[33:])
		return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	case k.Kty == "OKP" && k.Crv == "Ed25519":
		b, err := base64.RawURLEncoding.DecodeString(k.X)
		if err != nil || len(b) != ed25519.PublicKeySize {
			return nil, errors.New("not a key of Ed25519")
		}
		return ed25519.PublicKey(b), nil
	}
	return nil, fmt.Errorf("kty %q, crv %q: RSA, EC P-256 and OKP Ed25519 are read", k.Kty, k.Crv)
}

// Verify judges a token by its signature and its times.
func (s *KeySet) Verify(_ context.Context, text string) (account string, err error) {
	t, err := parseToken(text)
	if err != nil {
		return "", err
	}
	known := false
	for _, k := range s.keys {
		if k.id != "" && t.kid != "" && k.id != t.kid || k.alg != "" && k.alg != t.alg {
			continue
		}
		if known = true; t.signedBy(k.public) {
			return t.claims.Kubernetes.ServiceAccount.Name, t.claims.current(s.now())
		}
	}
	if !known {
		return "", ErrPass
	}
	return "", errors.New("the token's signature is wrong")
}

// signedBy checks the signature (RFC 7518): RS256, ES256, EdDSA.
func (t *token) signedBy(public crypto.PublicKey) bool {
	sum := sha256.Sum256(t.signed)
	switch p := public.(type) {
	case *rsa.PublicKey:
		return t.alg == "RS256" && rsa.VerifyPKCS1v15(p, crypto.SHA256, sum[:], t.signature) == nil
	case *ecdsa.PublicKey:
		if t.alg != "ES256" || len(t.signature) != 64 {
			return false
		}
		return ecdsa.Verify(p, sum[:], new(big.Int).SetBytes(t.signature[:32]), new(big.Int).SetBytes(t.signature[32:]))
	case ed25519.PublicKey:
		return t.alg == "EdDSA" && ed25519.Verify(p, t.signed, t.signature)
	}
	return false
}

// current checks the token's times. One without an end is refused.
func (c *claims) current(now time.Time) error {
	at := float64(now.Unix())
	switch {
	case c.Expires == nil || at >= *c.Expires:
		return errors.New("the token has expired, or never does")
	case c.NotBefore != nil && at < *c.NotBefore:
		return errors.New("the token is not valid yet")
	}
	return nil
}
