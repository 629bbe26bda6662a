package mesh

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// prover is what a component has to prove its name with.
type prover struct {
	key crypto.Signer
}

func (p prover) public(t testing.TB) (text []byte, kind uint64) {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(p.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	kind = keyRSA
	if _, ok := p.key.(*ecdsa.PrivateKey); ok {
		kind = keyECDSA
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), kind
}

func (p prover) prove(t testing.TB, challenge []byte, name string) []byte {
	t.Helper()
	h := sha256.Sum256(plainText(challenge, name))
	proof, err := p.key.Sign(rand.Reader, h[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

var madeProvers = sync.OnceValues(func() (map[string]prover, error) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return map[string]prover{"rsa": {r}, "ecdsa": {e}, "rsa.org": {r}, "rsa.x": {r}, "boss": {e}}, err
})

func provers(t testing.TB) map[string]prover {
	p, err := madeProvers()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProofs(t *testing.T) {
	challenge := []byte{1, 2, 3, 4}
	for name, p := range provers(t) {
		text, kind := p.public(t)
		block, _ := pem.Decode(text)
		forms := map[string][]byte{"PEM": text, "DER": block.Bytes}
		if k, ok := p.key.(*rsa.PrivateKey); ok {
			forms["PKCS#1"] = x509.MarshalPKCS1PublicKey(&k.PublicKey)
		}
		for form, b := range forms {
			k, err := parsePublicKey(b)
			if err != nil {
				t.Errorf("%s as %s: %v", name, form, err)
				continue
			}
			proof := p.prove(t, challenge, "foo")
			if !k.proves(challenge, "foo", proof) {
				t.Errorf("%s as %s: not proven", name, form)
			}
			if k.proves(challenge, "bar", proof) || k.proves([]byte{1, 2, 3, 5}, "foo", proof) || k.proves(challenge, "foo", nil) || k.proves(challenge, "foo", proof[1:]) {
				t.Errorf("%s as %s: proven, and should not be", name, form)
			}
		}
		ring := newKeyring(t.TempDir())
		if err := ring.add("a/b", text, kind); err != nil {
			t.Error(err)
		}
		if err := ring.add("c", text, 3-kind); err == nil {
			t.Error("a key of another kind is taken")
		}
		if k, err := ring.find("a/b"); k == nil || err != nil {
			t.Errorf("%s: found %v, %v", name, k, err)
		}
		if err := ring.remove("a/b"); err != nil {
			t.Error(err)
		}
		if k, err := ring.find("a/b"); k != nil || err != nil {
			t.Errorf("%s: found after it was removed: %v, %v", name, k, err)
		}
	}
}

// A secret proves by what both know: its SHA-256 with the challenge, whatever the name.
func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "foo"), []byte("pass word\r\nsecond line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := newKeyring(dir).find("foo")
	if err != nil || k == nil || k.secret != "pass word" {
		t.Fatalf("got %+v, %v", k, err)
	}
	h := sha256.Sum256(unhex(t, "82"+"4401020304"+"697061737320776f7264"))
	if !k.proves([]byte{1, 2, 3, 4}, "foo", h[:]) || k.proves([]byte{1, 2, 3, 5}, "foo", h[:]) {
		t.Error("the proof of a secret is judged wrongly")
	}
	for name, text := range map[string]string{"empty": "", "bad.rsa.pem": "no key"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"empty", "bad"} {
		if k, err := newKeyring(dir).find(name); err == nil {
			t.Errorf("%s: got %+v", name, k)
		}
	}
	if k, err := newKeyring(dir).find("../" + filepath.Base(dir) + "/foo"); k != nil || err != nil {
		t.Errorf("a path leads to %v, %v", k, err)
	}
}

func FuzzPublicKey(f *testing.F) {
	for _, p := range provers(f) {
		text, _ := p.public(f)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if k, err := parsePublicKey(b); err == nil {
			k.proves([]byte{1, 2, 3, 4}, "foo", b)
		}
	})
}
