package ctl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/Azure/go-amqp"

	transport "github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
)

// DefaultURL is where a router listens when nothing else is said.
const DefaultURL = "amqp://127.0.0.1:5672"

// dialTimeout bounds connecting, TLS and SASL together; callTimeout bounds each management call. A router answers in
// milliseconds, so the bounds only serve the one who waits.
const (
	dialTimeout = 10 * time.Second
	callTimeout = 30 * time.Second

	longCallTimeout = 5 * time.Minute // see call.timeout
)

// maxReplyBytes bounds one received message: go-amqp has no limit of its own and recurses on its input
// (a page of the table is held below 4 MiB by the router).
const maxReplyBytes = 16 << 20

// endpoint is a parsed --url: where to dial and as whom.
type endpoint struct {
	addr     string // scheme://host:port, without userinfo: safe to print
	user     string
	password string
	hasUser  bool
	tls      *tls.Config
	path     string // of a WebSocket, with its slash; empty is none
	showing  bool   // the password may be shown to whoever listens
}

// tlsFiles are the flags that make the TLS configuration of an amqps URL.
type tlsFiles struct {
	ca, cert, key string
}

func parseEndpoint(raw string, files tlsFiles) (endpoint, error) {
	if !strings.Contains(raw, "://") {
		raw = "amqp://" + raw
	}
	path := ""
	u, err := url.Parse(raw)
	if err != nil {
		return endpoint{}, usage("--url: not a URL: give amqp://host:port or amqps://host:port") // err repeats the password
	}
	port := "5672"
	switch u.Scheme {
	case "amqp":
	case "amqps", "amqp+ssl":
		u.Scheme, port = "amqps", "5671"
	case "ws", "wss":
		port = map[string]string{"ws": "80", "wss": "443"}[u.Scheme]
		if path = u.Path; path == "" || path == "/" {
			path = "/amqp"
		}
	default:
		return endpoint{}, usage("--url: scheme %q: routectl speaks amqp, amqps, ws and wss", u.Scheme)
	}
	if u.Hostname() == "" {
		return endpoint{}, usage("--url: no host: give %s://host:port", u.Scheme)
	}
	if u.Port() != "" {
		port = u.Port()
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return endpoint{}, usage("--url: port %q is out of range", port)
	}
	e := endpoint{addr: u.Scheme + "://" + net.JoinHostPort(u.Hostname(), port), path: path}
	if u.User != nil {
		e.hasUser, e.user = true, u.User.Username()
		e.password, _ = u.User.Password()
	}
	if u.Scheme == "amqps" || u.Scheme == "wss" {
		if e.tls, err = files.config(u.Hostname()); err != nil {
			return endpoint{}, err
		}
	}
	return e, nil
}

// credentials adds the user and the password that flags name to those of the URL.
func (r *run) credentials(e *endpoint) error {
	if r.user != "" {
		if e.hasUser && e.user != r.user {
			return usage("--user %s: the URL names another user", r.user)
		}
		e.hasUser, e.user = true, r.user
	}
	if r.secret != "" {
		if !e.hasUser {
			return usage("--password-file: whose password: give --user, or a URL with a user")
		}
		in := r.env.Stdin
		if r.secret != "-" {
			f, err := os.Open(r.secret)
			if err != nil {
				return usage("--password-file: %v", err)
			}
			defer f.Close()
			in = f
		}
		var err error
		e.password, err = readPassword(in)
		return err
	}
	if e.hasUser && e.password == "" && (e.tls == nil || len(e.tls.Certificates) == 0) {
		return usage("no password for %s: give --password-file FILE", e.user)
	}
	return nil
}

func (f tlsFiles) config(host string) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, usage("--ca: %v", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usage("--ca: %s holds no certificate", f.ca)
		}
	}
	if f.cert != "" || f.key != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, usage("--cert and --key: %v", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// dial connects, authenticates and opens one session.
func (e endpoint) dial(ctx context.Context) (*amqp.Conn, *amqp.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	o := amqp.ConnOptions{
		ContainerID: fmt.Sprintf("routectl-%d-%x", os.Getpid(), time.Now().UnixNano()),
	}
	conn, err := e.connect(ctx, &o)
	if err != nil {
		return nil, nil, e.explain(ctx, err)
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		conn.Close()
		return nil, nil, e.explain(ctx, err)
	}
	return conn, session, nil
}

// connect opens the AMQP connection. The login is ours, before go-amqp has the connection: it has no SCRAM, and shows a password to anybody.
func (e endpoint) connect(ctx context.Context, o *amqp.ConnOptions) (*amqp.Conn, error) {
	_, address, _ := strings.Cut(e.addr, "://")
	nc, err := e.transport(ctx, address)
	if err != nil {
		return nil, err
	}
	o.HostName, _, _ = net.SplitHostPort(address)
	login, err := e.engineDial()
	if err != nil {
		nc.Close()
		return nil, err
	}
	login.Engine.Hostname = o.HostName
	if err := transport.Login(ctx, nc, login); err != nil {
		nc.Close()
		return nil, err
	}
	return amqp.NewConn(ctx, nc, o)
}

// transport connects to host:port, with TLS and a WebSocket where the URL says so.
func (e endpoint) transport(ctx context.Context, address string) (net.Conn, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if e.tls != nil {
		t := tls.Client(nc, e.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, err
		}
		nc = t
	}
	if e.path == "" {
		return nc, nil
	}
	return transport.DialWebSocket(ctx, nc, address, e.path)
}

// explain turns what a network, TLS or SASL layer said into one line with what to do.
func (e endpoint) explain(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) {
		return no("interrupted")
	}
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	text := err.Error()
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return unreachable("%s: connection refused: is the router running, and listening there? (--url or ROUTECTL_URL)", e.addr)
	case errors.As(err, &dns):
		return unreachable("%s: no such host: check --url", e.addr)
	case errors.As(err, &cert):
		return unreachable("%s: the router's certificate is not trusted: %v (--ca FILE)", e.addr, cert.Err)
	case errors.As(err, &record):
		return unreachable("%s: no TLS there: use amqp:// or another port", e.addr)
	case errors.Is(err, transport.ErrInsecurePlain):
		return unreachable("%s: the password would be shown to whoever listens: use amqps:// or wss://, or --allow-insecure-plain", e.addr)
	case errors.Is(err, engine.ErrNoMechanism):
		return unreachable("%s: %s: %s", e.addr, text, e.credentialHint())
	case errors.Is(err, engine.ErrAuthentication):
		return unreachable("%s: authentication failed: %s", e.addr, e.credentialHint())
	case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, engine.ErrProtocolHeader),
		strings.Contains(text, "bad HTTP protocol"): // the alert of a server with TLS, read as HTTP
		return unreachable("%s: the peer hung up: %s", e.addr, e.portHint())
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded):
		return unreachable("%s: no answer within %v: is that an AMQP 1.0 port?", e.addr, dialTimeout)
	}
	return unreachable("%s: %s", e.addr, oneLine(text))
}

// portHint says what else may be at a port where no AMQP is.
func (e endpoint) portHint() string {
	kind := "an AMQP 1.0 port"
	if e.path != "" {
		kind = "a port with WebSocket"
	}
	if e.tls != nil {
		return "is that " + kind + ", and may this client connect?"
	}
	with, _, _ := strings.Cut(e.addr, "://")
	return "is that " + kind + ", and one without TLS (" + with + "s://)?"
}

func (e endpoint) credentialHint() string {
	if e.hasUser {
		return "check the user and the password (--url, --user, --password-file)"
	}
	return "give a user (--user, or amqps://user@host:port) and --password-file"
}
