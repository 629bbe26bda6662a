package components

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/fingerpost/fingerpost/internal/components/proto"
)

var b64 = base64.RawURLEncoding

// signer signs tokens, and is a key of a file.
type signer struct {
	alg  string
	jwk  map[string]string
	sign func(signed []byte) []byte
}

func signers(t *testing.T) []signer {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := e.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return []signer{
		{"RS256", map[string]string{"kty": "RSA", "n": b64.EncodeToString(r.N.Bytes()), "e": b64.EncodeToString(big.NewInt(int64(r.E)).Bytes())}, func(b []byte) []byte {
			sum := sha256.Sum256(b)
			s, _ := rsa.SignPKCS1v15(rand.Reader, r, crypto.SHA256, sum[:])
			return s
		}},
		{"ES256", map[string]string{"kty": "EC", "crv": "P-256", "x": b64.EncodeToString(point[1:33]), "y": b64.EncodeToString(point[33:])}, func(b []byte) []byte {
			sum := sha256.Sum256(b)
			x, y, _ := ecdsa.Sign(rand.Reader, e, sum[:])
			s := make([]byte, 64)
			x.FillBytes(s[:32])
			y.FillBytes(s[32:])
			return s
		}},
		{"EdDSA", map[string]string{"kty": "OKP", "crv": "Ed25519", "x": b64.EncodeToString(public)}, func(b []byte) []byte { return ed25519.Sign(private, b) }},
	}
}

// token makes a token of an account.
func (s *signer) token(account string, expires time.Time, alg string) string {
	head := fmt.Sprintf(`{"alg":%q,"kid":%q}`, alg, s.alg)
	body := fmt.Sprintf(`{"exp":%d,"kubernetes.io":{"serviceaccount":{"name":%q}}}`, expires.Unix(), account)
	signed := b64.EncodeToString([]byte(head)) + "." + b64.EncodeToString([]byte(body))
	return signed + "." + b64.EncodeToString(s.sign([]byte(signed)))
}

func jwks(t *testing.T, list []signer) *KeySet {
	t.Helper()
	var file struct {
		Keys []map[string]string `json:"keys"`
	}
	for _, s := range list {
		s.jwk["kid"] = s.alg
		file.Keys = append(file.Keys, s.jwk)
	}
	text, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	set, err := ParseJWKS(text)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestKeySet(t *testing.T) {
	list := signers(t)
	set := jwks(t, list)
	later, earlier := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	for i, s := range list {
		good := s.token("hello-frontend-aaaaaaa", later, s.alg)
		if got, err := set.Verify(t.Context(), good); err != nil || got != "hello-frontend-aaaaaaa" {
			t.Errorf("%s: got %q, %v", s.alg, got, err)
		}
		other := list[(i+1)%len(list)]
		for name, bad := range map[string]string{
			"expired":        s.token("a", earlier, s.alg),
			"without a name": s.token("", later, s.alg),
			"changed":        strings.Replace(good, ".", ".e30", 1),
			"alg none":       s.token("a", later, "none"),
			"another's alg":  s.token("a", later, other.alg),
			"signature cut":  good[:len(good)-4],
		} {
			if got, err := set.Verify(t.Context(), bad); err == nil {
				t.Errorf("%s %s: taken for %q", s.alg, name, got)
			}
		}
	}
	for _, text := range []string{"", "x", "a.b.c", "frontend-token", "a.b.c.d", strings.Repeat("a", maxToken) + ".b.c"} {
		if _, err := set.Verify(t.Context(), text); !errors.Is(err, ErrPass) {
			t.Errorf("%.20q: got %v", text, err)
		}
	}
	for _, text := range []string{"", "{}", `{"keys":[{"kty":"oct"}]}`, `{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`, `{"keys":[{"kty":"EC","crv":"P-256","x":"AQ","y":"AQ"}]}`} {
		if _, err := ParseJWKS([]byte(text)); err == nil {
			t.Errorf("%s: taken", text)
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add("e30.e30.e30", "{}")
	f.Add(b64.EncodeToString([]byte(`{"alg":"RS256"}`))+"."+b64.EncodeToString([]byte(`{"kubernetes.io":{"serviceaccount":{"name":"x"}}}`))+".AA", `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`)
	f.Fuzz(func(t *testing.T, text, keys string) {
		if set, err := ParseJWKS([]byte(keys)); err == nil {
			if _, err := set.Verify(context.Background(), text); err == nil {
				t.Errorf("%q was taken", text)
			}
		}
		parseToken(text)
	})
}

// kubernetes is an API that knows some tokens.
func kubernetes(t *testing.T, known map[string]string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q tokenReview
		if r.URL.Path != "/apis/authentication.k8s.io/v1/tokenreviews" || r.Method != "POST" || r.Header.Get("Authorization") != "Bearer own" ||
			json.NewDecoder(r.Body).Decode(&q) != nil || q.Kind != "TokenReview" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if name, ok := known[q.Spec.Token]; ok {
			q.Status.Authenticated, q.Status.User.Username = true, name
		} else {
			q.Status.Error = "unknown"
		}
		w.WriteHeader(http.StatusCreated)
		json.NewEncoder(w).Encode(q)
	}))
	t.Cleanup(s.Close)
	return s
}

// A component with a service account's token is judged by its claim, its signature, and Kubernetes.
func TestTokensOfServiceAccounts(t *testing.T) {
	list := signers(t)
	later := time.Now().Add(time.Hour)
	local, remote := &list[0], &list[1]
	elsewhere := remote.token("hello-frontend-aaaaaaa", later, remote.alg)
	stolen := remote.token("hello-frontend-aaaaaaa", later.Add(time.Second), remote.alg)
	foreign := remote.token("hello-frontend-aaaaaaa", later.Add(2*time.Second), remote.alg)
	api := kubernetes(t, map[string]string{elsewhere: "system:serviceaccount:default:hello-frontend-aaaaaaa", stolen: "system:serviceaccount:default:other",
		foreign: "system:serviceaccount:elsewhere:hello-frontend-aaaaaaa"})
	own := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(own, []byte("own\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	review, err := NewTokenReview(TokenReviewOptions{URL: api.URL, TokenFile: own, Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	defer review.client.CloseIdleConnections()
	x := startBroker(t, Options{Verifiers: []Verifier{jwks(t, list[:1]), review}})
	for _, c := range []struct {
		name, token string
		ok          bool
	}{
		{"by a key", local.token("hello-frontend-aaaaaaa", later, local.alg), true},
		{"of another account", local.token("hello-backend-bbbbbbb", later, local.alg), false},
		{"expired", local.token("hello-frontend-aaaaaaa", later.Add(-2*time.Hour), local.alg), false},
		{"by Kubernetes", elsewhere, true},
		{"that Kubernetes knows by another name", stolen, false},
		{"of another namespace", foreign, false},
		{"that Kubernetes does not know", remote.token("hello-frontend-aaaaaaa", later.Add(time.Minute), remote.alg), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := frontend
			w.token = c.token
			s := x.begin(w)
			err := s.register(w)
			if (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
		})
	}
	w := httpsrv
	w.token = local.token("lab-httpsrv", later, local.alg)
	x.connect(w)
}

// By TLS, a component may also show a certificate of its account.
func TestCertificatesOfComponents(t *testing.T) {
	x := startBroker(t, Options{})
	ca := newSelfSigned(t)
	s, err := x.b.Listen("127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{ca.pair("broker")}, ClientCAs: ca.pool, ClientAuth: tls.VerifyClientCertIfGiven,
	})
	x.must(err)
	served := make(chan struct{})
	go func() { defer close(served); s.Serve() }()
	defer func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Close(ctx)
		<-served
	}()
	for name, ok := range map[string]bool{"hello-frontend-aaaaaaa": true, "hello-backend-bbbbbbb": false, "": false} {
		t.Run(name, func(t *testing.T) {
			c := &tls.Config{RootCAs: ca.pool, ServerName: "127.0.0.1"}
			if name != "" {
				c.Certificates = []tls.Certificate{ca.pair(name)}
			}
			conn, err := grpc.NewClient("passthrough:///"+s.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(c)), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(frames{})))
			x.must(err)
			defer conn.Close()
			ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "app", "hello", "component", "frontend", "hash", frontend.hash, "id", "x", "platform", "lab", "type", typeKubeFox))
			defer cancel()
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{StreamName: "Subscribe", ServerStreams: true, ClientStreams: true}, "/kubefox.proto.v1.Broker/Subscribe")
			x.must(err)
			me := &standin{t: t, id: proto.Component{Type: typeKubeFox, App: "hello", Name: "frontend", Hash: frontend.hash, ID: "x"}, stream: stream, ended: make(chan struct{})}
			if err := me.register(who{}); (err == nil) != ok {
				t.Errorf("got %v", err)
			}
			cancel()
			<-me.ended
		})
	}
}

// selfSigned signs certificates for 127.0.0.1.
type selfSigned struct {
	t    *testing.T
	pool *x509.CertPool
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newSelfSigned(t *testing.T) *selfSigned {
	a := &selfSigned{t: t, pool: x509.NewCertPool()}
	pair := a.pair("authority")
	a.cert, a.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	a.pool.AddCert(a.cert)
	return a
}

func (a *selfSigned) pair(name string) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour),
		IsCA: a.cert == nil, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = form, key
	}
	der, err := x509.CreateCertificate(rand.Reader, form, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
