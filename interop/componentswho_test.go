package interop

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fingerpost/fingerpost/internal/house/certs"
)

// accountToken is the token of a service account, signed by Ed25519.
func accountToken(key ed25519.PrivateKey, kid, account string, expires time.Time) string {
	part := func(o object) string {
		text, _ := json.Marshal(o)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := part(object{"alg": "EdDSA", "kid": kid}) + "." + part(object{"exp": expires.Unix(), "kubernetes.io": object{"serviceaccount": object{"name": account}}})
	return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(text)))
}

// kubernetesAPI knows the tokens whose key it has, and answers reviews of them over HTTP.
func kubernetesAPI(t *testing.T, known map[string]string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			APIVersion, Kind string
			Spec             struct{ Token string }
		}
		if r.Method != "POST" || r.URL.Path != "/apis/authentication.k8s.io/v1/tokenreviews" || r.Header.Get("Authorization") != "Bearer router" ||
			json.NewDecoder(r.Body).Decode(&review) != nil || review.Kind != "TokenReview" {
			t.Errorf("the API was asked %s %s", r.Method, r.URL)
			http.Error(w, "bad", http.StatusBadRequest)
			return
		}
		account, ok := known[review.Spec.Token]
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		json.NewEncoder(w).Encode(object{"status": object{"authenticated": ok, "user": object{"username": "system:serviceaccount:lab:" + account}}})
	}))
	t.Cleanup(s.Close)
	return s
}

// A router judges components by lists, keys, certificates and a Kubernetes API; the wire tells none why it was refused.
func TestComponentsThatMayConnect(t *testing.T) {
	authority, other := certs.New(t), certs.New(t)
	public, private, _ := ed25519.GenerateKey(rand.Reader)
	_, unknown, _ := ed25519.GenerateKey(rand.Reader)
	hour := time.Now().Add(time.Hour)
	reviewed := accountToken(unknown, "cluster", "hello-own-ccccccc", hour)
	api := kubernetesAPI(t, map[string]string{reviewed: "hello-own-ccccccc"})
	dir := t.TempDir()
	cert, key := authority.Issue(t, "broker")
	for name, text := range map[string]string{
		"ca.pem": string(authority.PEM), "cert.pem": string(cert), "key.pem": string(key), "token": "router\n",
		"keys.json": fmt.Sprintf(`{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "ours", "x": %q}]}`, base64.RawURLEncoding.EncodeToString(public)),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	b := startBroker(t, "who", "D4 D3", fmt.Sprintf("components: {file: components.yaml, grpc: \"127.0.0.1:0\", genesis: \"127.0.0.1:0\", "+
		"tls: {cert: %q, key: %q, clientCA: %q}, jwks: %q, tokenReview: {url: %q, tokenFile: %q}}\nnats: off", in("cert.pem"), in("key.pem"), in("ca.pem"), in("keys.json"), api.URL, in("token")))
	own := kitOptions{app: "hello", name: "own", hash: "cccccccccccc"}
	plain := &tls.Config{RootCAs: authority.Pool, ServerName: "127.0.0.1"}
	with := func(token string, change func(o *kitOptions)) kitOptions {
		o := own
		o.token, o.tls = token, plain
		if change != nil {
			change(&o)
		}
		return o
	}
	certificate := func(a *certs.Authority, name string) func(o *kitOptions) {
		return func(o *kitOptions) {
			o.tls = &tls.Config{RootCAs: authority.Pool, ServerName: "127.0.0.1", Certificates: []tls.Certificate{a.Pair(t, name)}}
		}
	}
	right := accountToken(private, "ours", "hello-own-ccccccc", hour)
	pairs := func(change ...string) func(o *kitOptions) {
		return func(o *kitOptions) {
			all := []string{"app", "hello", "component", "own", "hash", "cccccccccccc", "id", "replica", "platform", "lab", "pod", "", "token", "own-token", "type", "KubeFox"}
			for i := 0; i < len(all); i += 2 {
				if all[i] == change[0] {
					all[i+1] = change[1]
				}
			}
			o.metadata, o.id = append(all, change[2:]...), "replica"
		}
	}
	for name, x := range map[string]struct {
		o  kitOptions
		ok bool
	}{
		"a token of the list":               {with("own-token", nil), true},
		"a token of ours":                   {with(right, nil), true},
		"a certificate":                     {with("", certificate(authority, "hello-own-ccccccc")), true},
		"a token that the cluster knows":    {with(reviewed, nil), true},
		"metadata as it should be":          {with("", pairs("pod", "")), true},
		"no token":                          {with("", nil), false},
		"a token of another component":      {with("backend-token", nil), false},
		"a token of ours, another account":  {with(accountToken(private, "ours", "hello-backend-bbbbbbb", hour), nil), false},
		"a token of ours that has expired":  {with(accountToken(private, "ours", "hello-own-ccccccc", time.Now().Add(-time.Minute)), nil), false},
		"a token of ours with a wrong sign": {with(right[:len(right)-8]+strings.Repeat("A", 8), nil), false},
		"a token that nobody knows":         {with(accountToken(unknown, "cluster", "hello-own-ccccccc", hour.Add(time.Hour)), nil), false},
		"a certificate of another":          {with("", certificate(authority, "hello-backend-bbbbbbb")), false},
		"another platform":                  {with("own-token", pairs("platform", "other")), false},
		"half a hash":                       {with("own-token", pairs("hash", "ccccccc")), false},
		"another type":                      {with("own-token", pairs("type", "HTTPAdapter")), false},
		"no id":                             {with("own-token", pairs("id", "")), false},
		"a key twice":                       {with("own-token", pairs("pod", "", "token", "own-token")), false},
		"a registration of another": {with("own-token", func(o *kitOptions) {
			o.source = object{"type": "KubeFox", "app": "hello", "name": "backend", "hash": "bbbbbbbbbbbb", "id": "x"}
		}), false},
		"a registration with a broker": {with("own-token", func(o *kitOptions) {
			o.id, o.source = "x", object{"type": "KubeFox", "app": "hello", "name": "own", "hash": "cccccccccccc", "id": "x", "broker_id": "b"}
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t, b.grpc, x.o)
			err := k.register(x.o)
			switch s := status.Convert(err); {
			case x.ok && err != nil:
				t.Errorf("refused: %v\n%s", err, b.log)
			case !x.ok && (s.Code() != codes.PermissionDenied || s.Message() != "component unauthorized"):
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("a certificate of strangers", func(t *testing.T) {
		o := with("own-token", certificate(other, "hello-own-ccccccc"))
		if err := newKit(t, b.grpc, o).register(o); err == nil {
			t.Error("taken")
		}
	})
	t.Run("a second stream", func(t *testing.T) {
		o := with("own-token", func(o *kitOptions) { o.id = "twice" })
		first := connectKit(t, b.grpc, o)
		connectKit(t, b.grpc, o)
		select {
		case <-first.ended:
		case <-time.After(patience):
			t.Fatal("the older stream goes on")
		}
		if s := status.Convert(first.err); s.Code() != codes.Aborted {
			t.Errorf("the older stream: %v", first.err)
		}
	})
}
