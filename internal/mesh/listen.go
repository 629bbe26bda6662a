package mesh

import (
	"context"
	"crypto/tls"
	"errors"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// ListenOptions of a listener. Only the address is needed.
type ListenOptions struct {
	Address   string      // host:port; port 0 takes a free one
	TLS       *tls.Config // nil: plain
	WebSocket bool        // else TCP, each message behind a header
}

// listener takes connections.
type listener struct {
	m   *Mesh
	ln  net.Listener
	web *http.Server // nil: TCP

	once sync.Once
}

// handshakeWait is for TLS, and for the request of a WebSocket.
const handshakeWait = 10 * time.Second

// Listen opens a port. Stop ends it.
func (m *Mesh) Listen(o ListenOptions) (net.Addr, error) {
	ln, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, err
	}
	l := &listener{m: m, ln: ln}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopping {
		ln.Close()
		return nil, errClosed
	}
	m.listeners = append(m.listeners, l)
	if !o.WebSocket {
		m.running.Go(func() { l.accept(o.TLS) })
		return ln.Addr(), nil
	}
	l.web = &http.Server{
		Handler: l, ReadHeaderTimeout: handshakeWait, MaxHeaderBytes: 16 << 10, ErrorLog: log.New(discard{}, "", 0),
		TLSConfig: o.TLS,
	}
	m.running.Go(func() {
		if o.TLS != nil {
			l.web.ServeTLS(ln, "", "")
			return
		}
		l.web.Serve(ln)
	})
	return ln.Addr(), nil
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// stop takes no more connections.
func (l *listener) stop() {
	l.once.Do(func() {
		if l.web == nil {
			l.ln.Close()
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		l.web.Shutdown(ctx)
		l.web.Close()
	})
}

// accept takes TCP connections.
func (l *listener) accept(secure *tls.Config) {
	pause := time.Duration(0)
	for {
		nc, err := l.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, mostly
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			if !l.m.pause(pause) {
				return
			}
			continue
		}
		pause = 0
		l.m.start(func() { l.serve(nc, secure) })
	}
}

// pause waits; false where the mesh ends.
func (m *Mesh) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-m.ctx.Done():
		return false
	}
}

// start runs a connection. Stop waits for it.
func (m *Mesh) start(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running.Go(f)
}

func (l *listener) serve(nc net.Conn, secure *tls.Config) {
	if secure != nil {
		t := tls.Server(nc, secure)
		ctx, cancel := context.WithTimeout(l.m.ctx, handshakeWait)
		err := t.HandshakeContext(ctx)
		cancel()
		if err != nil {
			nc.Close()
			return
		}
		nc = t
	}
	t := newTCPTransport(nc, &l.m.o)
	err := l.m.serve(t, nil)
	if err == errDoor {
		l.m.takeTCP(nc, t.door)
		return
	}
	l.m.ended(nc.RemoteAddr(), err)
}

// ServeHTTP takes WebSockets.
func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l.m.takeWeb(w, r) {
		return
	}
	gate := websocket.Gate{Origins: l.m.o.Origins, Speaks: "Rembus"}
	nc, already := gate.Upgrade(w, r)
	if nc == nil {
		return
	}
	l.m.start(func() { l.m.ended(nc.RemoteAddr(), l.m.serve(newWebTransport(nc, already, false, &l.m.o), nil)) })
}

// ended logs why a connection is over, where there is something to be said.
func (m *Mesh) ended(from net.Addr, err error) {
	if !isGone(err) {
		m.o.Log.Info("a connection of the mesh ended", "from", from.String(), "error", err)
	}
}
