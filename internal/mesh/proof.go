package mesh

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// key is what proves who a component is: its public key, or a secret that both know.
type key struct {
	rsa    *rsa.PublicKey
	ecdsa  *ecdsa.PublicKey
	secret string
}

// The kinds of key in a register.
const (
	keyRSA   = 1
	keyECDSA = 2
)

// maxKey is the longest file of a key.
const maxKey = 16 << 10

var errNoKey = errors.New("no public key that is known here: RSA of 2048 to 8192 bits or ECDSA on P-256, as PEM or DER")

// parsePublicKey reads a key as PEM (PUBLIC KEY or RSA PUBLIC KEY) or DER of either.
func parsePublicKey(b []byte) (*key, error) {
	if block, _ := pem.Decode(b); block != nil {
		b = block.Bytes
	}
	if k, err := x509.ParsePKCS1PublicKey(b); err == nil {
		return usable(&key{rsa: k})
	}
	any, err := x509.ParsePKIXPublicKey(b)
	if err != nil {
		return nil, errNoKey
	}
	switch k := any.(type) {
	case *rsa.PublicKey:
		return usable(&key{rsa: k})
	case *ecdsa.PublicKey:
		return usable(&key{ecdsa: k})
	}
	return nil, errNoKey
}

// usable bounds keys: small ones prove nothing, and large ones take long to try.
func usable(k *key) (*key, error) {
	if k.rsa != nil && (k.rsa.N.BitLen() < 2048 || k.rsa.N.BitLen() > 8192) || k.ecdsa != nil && k.ecdsa.Curve.Params().BitSize > 521 {
		return nil, errNoKey
	}
	return k, nil
}

// plainText is what is signed: the CBOR of [challenge, name], and of a shared secret that of [challenge, secret].
func plainText(challenge []byte, text string) []byte {
	return appendText(appendBytes([]byte{majorArray<<5 | 2}, challenge), text)
}

// proves tells whether proof is the answer of who has the private key to a challenge.
func (k *key) proves(challenge []byte, name string, proof []byte) bool {
	switch {
	case k.rsa != nil:
		h := sha256.Sum256(plainText(challenge, name))
		return rsa.VerifyPKCS1v15(k.rsa, crypto.SHA256, h[:], proof) == nil
	case k.ecdsa != nil:
		h := sha256.Sum256(plainText(challenge, name))
		return ecdsa.VerifyASN1(k.ecdsa, h[:], proof)
	}
	h := sha256.Sum256(plainText(challenge, k.secret))
	return subtle.ConstantTimeCompare(h[:], proof) == 1
}

// keyring are the keys of components: in the files of a directory, or in memory where there is none.
//
//	NAME.rsa.pem  NAME.rsa.der  NAME.ecdsa.pem  NAME.ecdsa.der   public keys
//	NAME                                                         a secret: its first line
//
// What a file name cannot hold is percent-encoded in NAME.
type keyring struct {
	dir string

	mu     sync.Mutex // guards what follows
	memory map[string]*key
}

func newKeyring(dir string) *keyring { return &keyring{dir: dir, memory: map[string]*key{}} }

var keyFiles = []string{".rsa.pem", ".rsa.der", ".ecdsa.pem", ".ecdsa.der", ""}

func (r *keyring) file(name, ending string) string {
	return filepath.Join(r.dir, url.PathEscape(name)+ending)
}

// find gives a component's key, nil where it has none. A key that cannot be read is an error: the component has one.
func (r *keyring) find(name string) (*key, error) {
	if r.dir == "" {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.memory[name], nil
	}
	for _, ending := range keyFiles {
		b, err := readSmall(r.file(name, ending))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if ending != "" {
			return parsePublicKey(b)
		}
		if k, err := parsePublicKey(b); err == nil {
			return k, nil
		}
		line, _, _ := bytes.Cut(b, []byte("\n"))
		secret := strings.TrimRight(string(line), "\r")
		if secret == "" {
			return nil, errors.New("the file of a secret is empty")
		}
		return &key{secret: secret}, nil
	}
	return nil, nil
}

func readSmall(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxKey {
		return nil, errNoKey
	}
	return os.ReadFile(name)
}

// add keeps a public key under a name that has none.
func (r *keyring) add(name string, text []byte, kind uint64) error {
	k, err := parsePublicKey(text)
	if err != nil {
		return err
	}
	if len(text) > maxKey || kind == keyRSA && k.rsa == nil || kind == keyECDSA && k.ecdsa == nil || kind != keyRSA && kind != keyECDSA {
		return errNoKey
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dir == "" {
		r.memory[name] = k
		return nil
	}
	ending := ".rsa"
	if k.ecdsa != nil {
		ending = ".ecdsa"
	}
	if block, _ := pem.Decode(text); block != nil {
		ending += ".pem"
	} else {
		ending += ".der"
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	return writeFile(r.file(name, ending), text)
}

// remove forgets the public key of a name.
func (r *keyring) remove(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dir == "" {
		delete(r.memory, name)
		return nil
	}
	for _, ending := range keyFiles {
		if err := os.Remove(r.file(name, ending)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// writeFile writes a file whole or not at all, and has it on disk when it returns.
func writeFile(name string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
