package app

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/fingerpost/fingerpost/internal/nats"
)

// NATS is what is between the brokers of components. In a file a text alone is its URL.
type NATS struct {
	URL      string   `yaml:"url"`     // empty or "embedded": a server of its own, where there are components; nats://HOST:PORT,…: others; "off": none
	Listen   string   `yaml:"listen"`  // of the server of its own: HOST:PORT where others connect; embedded://HOST:PORT is the same; empty: nowhere
	Cluster  string   `yaml:"cluster"` // HOST:PORT where servers of other routers connect, that are one with it; empty: it is alone
	Routes   []string `yaml:"routes"`  // nats://HOST:PORT of those
	Replicas int      `yaml:"replicas"`

	User         string  `yaml:"user"` // of the connection, and what the server of its own asks for
	PasswordFile string  `yaml:"passwordFile"`
	PasswordEnv  string  `yaml:"passwordEnv"`
	TokenFile    string  `yaml:"tokenFile"`
	TokenEnv     string  `yaml:"tokenEnv"`
	Credentials  string  `yaml:"credentials"` // file of a JWT and its seed
	NKey         string  `yaml:"nkey"`        // file of a seed
	TLS          NATSTLS `yaml:"tls"`
}

// NATSTLS is TLS to the server; of a server of its own, that of its listeners.
type NATSTLS struct {
	CA   string `yaml:"ca"`   // who signs the other's certificate
	Cert string `yaml:"cert"` // our own
	Key  string `yaml:"key"`
}

// UnmarshalYAML reads a text, or all keys.
func (n *NATS) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		return node.Decode(&n.URL)
	}
	type keys NATS
	return node.Decode((*keys)(n))
}

func (n *NATS) files() []*string {
	return []*string{&n.PasswordFile, &n.TokenFile, &n.Credentials, &n.NKey, &n.TLS.CA, &n.TLS.Cert, &n.TLS.Key}
}

func (n *NATS) embedded() bool {
	return n.URL == "" || n.URL == "embedded" || strings.HasPrefix(n.URL, "embedded://")
}

// check says what is wrong, and under which key.
func (n *NATS) check() (key string, err error) {
	if n.URL == "off" {
		return "", nil
	}
	if err := nats.CheckURL(n.URL); err != nil {
		return ".url", err
	}
	for _, l := range []struct{ key, at string }{{".listen", n.Listen}, {".cluster", n.Cluster}} {
		if l.at == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(l.at); err != nil {
			return l.key, fmt.Errorf("%q: write HOST:PORT", l.at)
		}
		if !n.embedded() {
			return l.key, errors.New("it is for a server of one's own: leave out url")
		}
	}
	for i, r := range n.Routes {
		if err := nats.CheckURL(r); err != nil || !strings.Contains(r, "://") || strings.HasPrefix(r, "embedded") {
			return fmt.Sprintf(".routes[%d]", i), fmt.Errorf("%q: write nats://HOST:PORT", r)
		}
	}
	switch {
	case len(n.Routes) > 0 && n.Cluster == "":
		return ".routes", errors.New("they need cluster: where the others connect")
	case n.Listen != "" && strings.HasPrefix(n.URL, "embedded://"):
		return ".listen", errors.New("url says it")
	case n.Replicas < 0 || n.Replicas > 5:
		return ".replicas", fmt.Errorf("%d is out of range: 1 to 5", n.Replicas)
	}
	return n.checkLogin()
}

func (n *NATS) checkLogin() (key string, err error) {
	var ways []string
	for _, w := range []struct {
		key string
		set bool
	}{
		{".user", n.User != ""}, {".tokenFile", n.TokenFile != "" || n.TokenEnv != ""}, {".credentials", n.Credentials != ""}, {".nkey", n.NKey != ""},
	} {
		if w.set {
			ways = append(ways, w.key)
		}
	}
	password := n.PasswordFile != "" || n.PasswordEnv != ""
	switch {
	case len(ways) > 1:
		return ways[1], errors.New("one login is enough: user, token, credentials or nkey")
	case password != (n.User != ""):
		return ".user", errors.New("a user needs a password, in passwordFile or passwordEnv, and a password a user")
	case n.embedded() && (n.Credentials != "" || n.NKey != ""):
		return ways[0], errors.New("a server of one's own knows users and tokens")
	case (n.TLS.Cert == "") != (n.TLS.Key == ""):
		return ".tls", errors.New("cert and key come together")
	case n.embedded() && n.TLS != (NATSTLS{}) && n.TLS.Cert == "":
		return ".tls", errors.New("a server of one's own needs cert and key")
	case n.Cluster != "" && n.TLS.Cert != "" && n.TLS.CA == "":
		return ".tls", errors.New("a cluster needs ca: servers show each other certificates")
	}
	return "", nil
}

// options reads the files and variables that the configuration names.
func (n *NATS) options() (o nats.Options, key string, err error) {
	o = nats.Options{URL: n.URL, Replicas: n.Replicas, Cluster: nats.Cluster{Listen: n.Cluster, Routes: n.Routes}}
	if n.Listen != "" {
		o.URL = "embedded://" + n.Listen
	}
	o.Login = nats.Login{User: n.User, Credentials: n.Credentials, NKey: n.NKey}
	if o.Login.Password, key, err = secretOf("password", n.PasswordFile, n.PasswordEnv); err != nil {
		return o, key, err
	}
	if o.Login.Token, key, err = secretOf("token", n.TokenFile, n.TokenEnv); err != nil {
		return o, key, err
	}
	for _, f := range []struct{ key, name string }{{".credentials", n.Credentials}, {".nkey", n.NKey}} {
		if f.name == "" {
			continue
		}
		if _, err := readSecret(f.name); err != nil {
			return o, f.key, err
		}
	}
	o.TLS, key, err = n.tlsConfig()
	return o, key, err
}

// tlsConfig is for both ends: authorities judge servers and clients.
func (n *NATS) tlsConfig() (t *tls.Config, key string, err error) {
	if n.TLS == (NATSTLS{}) {
		return nil, "", nil
	}
	t = &tls.Config{MinVersion: tls.VersionTLS12}
	if n.TLS.CA != "" {
		if t.RootCAs, err = readAuthorities(n.TLS.CA); err != nil {
			return nil, ".tls.ca", err
		}
		t.ClientCAs, t.ClientAuth = t.RootCAs, tls.RequireAndVerifyClientCert
	}
	if n.TLS.Cert != "" {
		pair, at, err := keyPair(n.TLS.Cert, n.TLS.Key)
		if err != nil {
			return nil, ".tls" + at, err
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, "", nil
}

// secretOf is the first line of a file, or a variable of the environment; neither is none. key is the one that names what is wrong.
func secretOf(what, file, env string) (secret, key string, err error) {
	switch {
	case file != "":
		text, err := readSecret(file)
		if err != nil {
			return "", "." + what + "File", err
		}
		first, _, _ := strings.Cut(string(text), "\n")
		if first = strings.TrimRight(first, "\r"); first == "" {
			return "", "." + what + "File", fmt.Errorf("%s: its first line is empty", file)
		}
		return first, "", nil
	case env != "":
		if text := os.Getenv(env); text != "" {
			return text, "", nil
		}
		return "", "." + what + "Env", fmt.Errorf("the environment has no %s", env)
	}
	return "", "", nil
}

// openNATS starts the server of the configuration, or connects to it.
func (a *App) openNATS() (*nats.Conn, error) {
	o, key, err := a.config.NATS.options()
	if err != nil {
		return nil, &ConfigError{a.config.at("nats"+key, err)}
	}
	o.Name, o.Log = "broker-"+a.node.ID(), a.log
	o.MaxMessage = int(a.config.Components.MaxEvent) * 3 / 2
	if a.config.State != "" {
		o.Dir = filepath.Join(a.config.State, "nats")
	}
	return nats.Open(o)
}
