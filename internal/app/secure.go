package app

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/relay"
	"github.com/fingerpost/fingerpost/internal/users"
	"github.com/fingerpost/fingerpost/routetable"
)

// TLS names the files of a listener's certificate.
type TLS struct {
	Cert     string `yaml:"cert"`
	Key      string `yaml:"key"`
	ClientCA string `yaml:"clientCA"` // who signs the certificates of clients; empty: they are not asked for one
}

// Hop says how a peer is dialled that routes name. Those that are not listed are dialled without a login.
type Hop struct {
	URL                string   `yaml:"url"`
	User               string   `yaml:"user"`
	PasswordFile       string   `yaml:"passwordFile"` // its first line
	CA                 string   `yaml:"ca"`           // who signs the peer's certificate; empty: the system's authorities
	Cert               string   `yaml:"cert"`         // ours; without a user it is the login
	Key                string   `yaml:"key"`
	SASL               []string `yaml:"sasl"`     // the mechanisms to use; empty: the best that the peer has
	Failover           []string `yaml:"failover"` // dialled in this order while the peer is away
	InsecureSkipVerify bool     `yaml:"insecureSkipVerify"`
	AllowInsecurePlain bool     `yaml:"allowInsecurePlain"`
}

// secured is what a configuration says of logins and TLS, with all files read.
type secured struct {
	access    forwarder.Access
	listeners map[string]*tls.Config // by the URL of the listener; those with TLS
	hops      forwarder.Hops
	keys      *relay.Keys // nil: there is no relay
	openFiles []string    // secrets that others can read
	began     time.Time   // before the first file was read
}

// resolve takes the names of files as relative to a directory.
func (c *Config) resolve(dir string) {
	in := func(names ...*string) {
		for _, n := range names {
			if *n != "" && !filepath.IsAbs(*n) {
				*n = filepath.Join(dir, *n)
			}
		}
	}
	in(&c.State, &c.Users, &c.Relay.Keys, &c.Events.Tokens, &c.HTTP.TLS.Cert, &c.HTTP.TLS.Key, &c.HTTP.TLS.ClientCA)
	for i := range c.Events.Links {
		in(&c.Events.Links[i].TokenFile)
	}
	in(c.Components.files()...)
	in(c.NATS.files()...)
	in(c.Mesh.files()...)
	for i := range c.Tables {
		in(&c.Tables[i])
	}
	in(&c.HTTP.TLS.Cert, &c.HTTP.TLS.Key, &c.HTTP.TLS.ClientCA)
	for i := range c.Listeners {
		t := &c.Listeners[i].TLS
		in(&t.Cert, &t.Key, &t.ClientCA)
	}
	for i := range c.Hops {
		h := &c.Hops[i]
		in(&h.PasswordFile, &h.CA, &h.Cert, &h.Key)
	}
}

// secure reads the files that a valid configuration names. An error says where the configuration names what is wrong.
func (c *Config) secure() (*secured, error) {
	s := &secured{began: time.Now()}
	role, err := c.validate()
	if err != nil {
		return nil, err
	}
	s.access = forwarder.Access{AnonymousRole: role, Limits: forwarder.Limits{
		Connections: c.Limits.Connections, ConnectionsPerHost: c.Limits.ConnectionsPerHost, Sessions: c.Limits.Sessions, Links: c.Limits.Links,
	}}
	if s.access.Users, err = c.users(); err != nil {
		return nil, c.at("users", err)
	}
	s.listeners = map[string]*tls.Config{}
	for path, l := range c.withTLS() {
		t, key, err := l.tlsConfig()
		if err != nil {
			return nil, c.at(path+key, err)
		}
		s.listeners[l.URL] = t
	}
	if s.hops, err = c.hops(); err != nil {
		return nil, err
	}
	if s.keys, err = c.relayKeys(); err != nil {
		return nil, c.at("relay.keys", err)
	}
	if _, err := readTokens(c.Events.Tokens); err != nil {
		return nil, c.at("events.tokens", err)
	}
	s.openFiles = c.openFiles()
	return s, nil
}

// users reads the users file; nil where none is named.
func (c *Config) users() (forwarder.Users, error) {
	if c.Users == "" {
		return nil, nil
	}
	f, err := users.Read(c.Users)
	if err != nil {
		return nil, err
	}
	d, err := f.Directory()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Users, err)
	}
	return d, nil
}

// relayKeys reads the keys of the relay; nil where no file is named.
func (c *Config) relayKeys() (*relay.Keys, error) {
	if c.Relay.Keys == "" {
		return nil, nil
	}
	return relay.ReadKeys(c.Relay.Keys)
}

// openFiles are the files with secrets that not only their owner can read.
func (c *Config) openFiles() (open []string) {
	names := []string{c.Users, c.Relay.Keys, c.Events.Tokens}
	for _, l := range c.withTLS() {
		names = append(names, l.TLS.Key)
	}
	for _, h := range c.Hops {
		names = append(names, h.PasswordFile, h.Key)
	}
	for _, p := range c.Mesh.Peers {
		names = append(names, p.KeyFile, p.SecretFile)
	}
	for _, l := range c.Events.Links {
		names = append(names, l.TokenFile)
	}
	n := &c.NATS
	names = append(names, n.PasswordFile, n.TokenFile, n.Credentials, n.NKey, n.TLS.Key, c.Components.TokenReview.TokenFile)
	for _, n := range names {
		if info, err := os.Stat(n); n != "" && err == nil && info.Mode().Perm()&0o077 != 0 && !slices.Contains(open, n) {
			open = append(open, n)
		}
	}
	return open
}

// withTLS gives the listeners that have certificates, and where the configuration names these. The one of HTTP is among them, as https.
func (c *Config) withTLS() iter.Seq2[string, *Listener] {
	return func(yield func(string, *Listener) bool) {
		for i := range c.Listeners {
			if l := &c.Listeners[i]; l.secure() && !yield(fmt.Sprintf("listeners[%d].tls", i), l) {
				return
			}
		}
		if c.HTTP.on() && c.HTTP.TLS != (TLS{}) && !yield("http.tls", &Listener{URL: c.HTTP.url(), TLS: c.HTTP.TLS}) {
			return
		}
		for path, l := range c.Components.listenersTLS() {
			if !yield(path, l) {
				return
			}
		}
	}
}

// url is the address of the HTTP listener, as the log and errors have it.
func (h *HTTP) url() string {
	if h.TLS != (TLS{}) {
		return "https://" + h.Listen
	}
	return "http://" + h.Listen
}

// tlsConfig reads the certificate; key is the one of the configuration that names what is wrong.
func (l *Listener) tlsConfig() (c *tls.Config, key string, err error) {
	pair, key, err := keyPair(l.TLS.Cert, l.TLS.Key)
	if err != nil {
		return nil, key, err
	}
	c = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	switch {
	case strings.HasPrefix(l.URL, grpcScheme):
		c.NextProtos = []string{"h2"}
	case strings.HasSuffix(l.URL, genesisPath):
		c.NextProtos = []string{"h2", "http/1.1"}
	}
	if l.TLS.ClientCA == "" {
		return c, "", nil
	}
	if c.ClientCAs, err = readAuthorities(l.TLS.ClientCA); err != nil {
		return nil, ".clientCA", err
	}
	c.ClientAuth = tls.VerifyClientCertIfGiven
	if len(l.SASL) == 1 && l.SASL[0] == "EXTERNAL" {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, "", nil
}

// keyPair reads a certificate and its key; at is the key of the configuration that names what is wrong.
func keyPair(cert, key string) (pair tls.Certificate, at string, err error) {
	public, err := readSecret(cert)
	if err != nil {
		return pair, ".cert", err
	}
	private, err := readSecret(key)
	if err != nil {
		return pair, ".key", err
	}
	if pair, err = tls.X509KeyPair(public, private); err != nil {
		return pair, ".cert", fmt.Errorf("%s and %s: %w", cert, key, err)
	}
	return pair, "", nil
}

// maxSecret bounds a file with certificates, a key or a password.
const maxSecret = 16 << 20

// readSecret reads a file that the configuration names. It never waits, whatever has that name: it is called while the router runs.
func readSecret(file string) ([]byte, error) {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", file) // to open a pipe may take for ever
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err == nil && len(text) > maxSecret {
		err = fmt.Errorf("%s: larger than %d bytes", file, maxSecret)
	}
	return text, err
}

func readAuthorities(file string) (*x509.CertPool, error) {
	text, err := readSecret(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate in it", file)
	}
	return pool, nil
}

// hops reads the files of the hops.
func (c *Config) hops() (forwarder.Hops, error) {
	all := forwarder.Hops{By: map[string]*forwarder.Hop{}, TableCredentials: c.TableCredentials}
	for i := range c.Hops {
		h := &c.Hops[i]
		path := fmt.Sprintf("hops[%d]", i)
		at, err := parsePeer(h.URL)
		if err != nil {
			return all, c.at(path+".url", err)
		}
		if all.By[forwarder.HopKey(at)] != nil {
			return all, c.at(path+".url", fmt.Errorf("%s is there already", at.Text))
		}
		o := &forwarder.Hop{User: h.User, SASL: h.SASL, AllowInsecurePlain: h.AllowInsecurePlain}
		if h.PasswordFile != "" {
			o.HasPassword = true
			if o.Password, err = readPassword(h.PasswordFile); err != nil {
				return all, c.at(path+".passwordFile", err)
			}
		}
		for j, text := range h.Failover {
			f, err := parsePeer(text)
			if err != nil {
				return all, c.at(fmt.Sprintf("%s.failover[%d]", path, j), err)
			}
			o.Failover = append(o.Failover, f)
		}
		var key string
		if o.TLS, key, err = h.tlsConfig(); err != nil {
			return all, c.at(path+key, err)
		}
		all.By[forwarder.HopKey(at)] = o
	}
	return all, nil
}

func (h *Hop) tlsConfig() (c *tls.Config, key string, err error) {
	c = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: h.InsecureSkipVerify}
	if h.CA != "" {
		if c.RootCAs, err = readAuthorities(h.CA); err != nil {
			return nil, ".ca", err
		}
	}
	if h.Cert != "" {
		pair, key, err := keyPair(h.Cert, h.Key)
		if err != nil {
			return nil, key, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, "", nil
}

// parsePeer reads the URL of a peer: scheme, host and port, and nothing more.
func parsePeer(text string) (*routetable.Hop, error) {
	h, err := routetable.ParseHop(text)
	if err != nil {
		return nil, err
	}
	if h.Scheme != "amqp" && h.Scheme != "amqps" {
		return nil, fmt.Errorf("%s is no peer: write amqp://HOST:PORT or amqps://HOST:PORT", h.Text)
	}
	if h.HasUser || h.HasPass || h.HasName {
		return nil, fmt.Errorf("%s: write %s://HOST:PORT and nothing more", h.Text, h.Scheme)
	}
	return h, nil
}

// maxPassword bounds a password.
const maxPassword = 1024

// readPassword reads the first line of a file.
func readPassword(file string) (string, error) {
	text, err := readSecret(file)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	line = strings.TrimRight(line, "\r")
	if line == "" || len(line) > maxPassword {
		return "", fmt.Errorf("%s: its first line is the password: 1 to %d bytes", file, maxPassword)
	}
	return line, nil
}

// secure tells whether the listener has TLS.
func (l *Listener) secure() bool {
	scheme, _, _ := strings.Cut(l.URL, ":")
	return slices.Contains([]string{"amqps", "wss", "rembus+wss", "rembus+tls"}, scheme)
}

// check says what is wrong with a listener, and under which of its keys, without reading files.
func (l *Listener) check(hasUsers bool) (key string, err error) {
	address, err := listenAddress(l.URL)
	if err != nil {
		return ".url", err
	}
	switch {
	case l.secure() && (l.TLS.Cert == "" || l.TLS.Key == ""):
		return ".tls", fmt.Errorf("%s needs tls: {cert: FILE, key: FILE}, in a configuration file", l.URL)
	case !l.secure() && l.TLS != TLS{}:
		return ".tls", fmt.Errorf("%s has no TLS: write amqps:// or wss://", l.URL)
	case isRembus(l.URL) && (len(l.SASL) > 0 || l.AllowInsecurePlain || l.Direct || l.Shared):
		return ".url", fmt.Errorf("%s: sasl, allowInsecurePlain, direct and shared are for AMQP", l.URL)
	}
	host, _, _ := net.SplitHostPort(address)
	for i, m := range l.SASL {
		at := fmt.Sprintf(".sasl[%d]", i)
		switch {
		case !slices.Contains(forwarder.Mechanisms(), m):
			return at, fmt.Errorf("no mechanism %q: there are %s", m, strings.Join(forwarder.Mechanisms(), ", "))
		case slices.Contains(l.SASL[:i], m):
			return at, fmt.Errorf("%s is there twice", m)
		case m == "EXTERNAL" && l.TLS.ClientCA == "":
			return at, errors.New("EXTERNAL needs tls: {clientCA: FILE}, which says whose certificates count")
		case m != "EXTERNAL" && m != "ANONYMOUS" && !hasUsers:
			return at, fmt.Errorf("%s needs users: FILE", m)
		case m == "PLAIN" && !l.secure() && !l.AllowInsecurePlain && !isLoopbackHost(host):
			return at, errors.New("PLAIN would show passwords to whoever listens: use amqps, or say allowInsecurePlain: true")
		}
	}
	return "", nil
}

func isLoopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// check says what is wrong with a hop, and under which of its keys, without reading files.
func (h *Hop) check() (key string, err error) {
	at, err := parsePeer(h.URL)
	if err != nil {
		return ".url", err
	}
	for i, text := range h.Failover {
		f, err := parsePeer(text)
		if err != nil {
			return fmt.Sprintf(".failover[%d]", i), err
		}
		if at.Scheme == "amqps" && f.Scheme != "amqps" {
			return fmt.Sprintf(".failover[%d]", i), fmt.Errorf("%s has no TLS, and %s has", f.Text, at.Text)
		}
	}
	for i, m := range h.SASL {
		if !slices.Contains(forwarder.Mechanisms(), m) {
			return fmt.Sprintf(".sasl[%d]", i), fmt.Errorf("no mechanism %q: there are %s", m, strings.Join(forwarder.Mechanisms(), ", "))
		}
	}
	switch {
	case (h.Cert == "") != (h.Key == ""):
		return ".cert", errors.New("cert and key go together")
	case at.Scheme == "amqp" && (h.CA != "" || h.Cert != "" || h.InsecureSkipVerify):
		return ".url", fmt.Errorf("%s has no TLS: ca, cert, key and insecureSkipVerify are for amqps", at.Text)
	case h.PasswordFile != "" && h.User == "":
		return ".passwordFile", errors.New("a password, and no user")
	case h.User != "" && h.PasswordFile == "":
		return ".user", errors.New("a user, and no passwordFile")
	case h.InsecureSkipVerify && h.CA != "":
		return ".insecureSkipVerify", errors.New("ca and insecureSkipVerify: one of them")
	}
	return "", nil
}
