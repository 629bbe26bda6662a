package nats

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// embedded is a server in this process.
type embedded struct {
	srv *server.Server
	dir string // of JetStream, where it is not to be kept; removed at the end
}

// startServer starts a server. One without listeners only this process reaches.
func startServer(o *Options) (*embedded, error) {
	e := &embedded{}
	so, err := o.server()
	if err != nil {
		return nil, err
	}
	if so.StoreDir == "" {
		if e.dir, err = os.MkdirTemp("", "fingerpost-nats-"); err != nil {
			return nil, err
		}
		so.StoreDir = e.dir
	}
	if e.srv, err = server.NewServer(so); err != nil {
		return nil, errors.Join(err, e.clean())
	}
	e.srv.SetLoggerV2(&serverLog{o.Log}, false, false, false)
	e.srv.Start()
	if !e.srv.ReadyForConnections(10 * time.Second) {
		e.close()
		return nil, errors.New("the server is not ready after 10 s")
	}
	return e, nil
}

// server is the options as the server has them.
func (o *Options) server() (so *server.Options, err error) {
	listen, _ := strings.CutPrefix(o.URL, "embedded://")
	if listen == "embedded" {
		listen = ""
	}
	if listen == "" && o.Cluster.Listen != "" {
		listen = "127.0.0.1:0" // the server takes no routes before it listens for clients
	}
	so = &server.Options{
		ServerName: o.Name, JetStream: true, StoreDir: o.Dir, NoSigs: true, NoLog: true, DontListen: listen == "", MaxPayload: int32(min(max(o.MaxMessage, leastMessage), mostMessage)),
		JetStreamMaxMemory: 256 << 20, JetStreamMaxStore: 4 << 30, Username: o.Login.User, Password: o.Login.Password, Authorization: o.Login.Token,
	}
	if o.Login.Credentials != "" || o.Login.NKey != "" {
		return nil, errors.New("a server of one's own knows users and tokens")
	}
	if listen != "" {
		if so.Host, so.Port, err = hostPort(listen); err != nil {
			return nil, err
		}
		so.TLSConfig, so.TLSVerify, so.TLSTimeout = o.TLS, o.TLS != nil && o.TLS.ClientCAs != nil, 5
	}
	c := &o.Cluster
	if c.Listen == "" {
		return so, nil
	}
	so.Cluster = server.ClusterOpts{Name: cmp.Or(c.Name, "fingerpost"), Username: o.Login.User, Password: o.Login.Password, AuthTimeout: 5, TLSConfig: o.TLS, TLSTimeout: 5}
	if so.Cluster.Host, so.Cluster.Port, err = hostPort(c.Listen); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	for _, r := range c.Routes {
		u, err := url.Parse(r)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("route %q: write nats://HOST:PORT", r)
		}
		if u.User == nil && o.Login.User != "" {
			u.User = url.UserPassword(o.Login.User, o.Login.Password)
		}
		so.Routes = append(so.Routes, u)
	}
	return so, nil
}

func hostPort(listen string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, err
	}
	if port, err = strconv.Atoi(text); err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("port %q", text)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

func (e *embedded) clean() error {
	if e.dir == "" {
		return nil
	}
	return os.RemoveAll(e.dir)
}

func (e *embedded) close() {
	e.await(lull)
	e.srv.Shutdown()
	e.srv.WaitForShutdown()
	e.clean()
}

// lull is how long a server that is to end has for what it was asked.
const lull = 5 * time.Second

// await waits, but not longer than most, until the server is at no request of JetStream: a stream that it makes while it shuts down is never closed.
func (e *embedded) await(most time.Duration) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(most); time.Now().Before(end); <-tick.C {
		if info, err := e.srv.Jsz(nil); err != nil || info.API.Inflight == 0 {
			return
		}
	}
}

// serverLog passes on what the server says is wrong.
type serverLog struct{ log *slog.Logger }

func (l *serverLog) Noticef(string, ...any)        {}
func (l *serverLog) Debugf(string, ...any)         {}
func (l *serverLog) Tracef(string, ...any)         {}
func (l *serverLog) Warnf(format string, v ...any) { l.log.Warn("nats: " + fmt.Sprintf(format, v...)) }
func (l *serverLog) Errorf(format string, v ...any) {
	l.log.Error("nats: " + fmt.Sprintf(format, v...))
}
func (l *serverLog) Fatalf(format string, v ...any) {
	l.log.Error("nats: " + fmt.Sprintf(format, v...))
}
