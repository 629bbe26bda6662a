package web

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/silent"
)

// Server answers HTTP.
type Server struct {
	ln  net.Listener
	srv *http.Server
}

// Options of a server.
type Options struct {
	Ready   func() bool // whether the router takes messages; nil: it does
	Metrics Metrics
	AMQP    http.Handler // at /amqp; nil: there is none
	Relay   http.Handler // at /api/{domain}/relay/connect; nil: there is none
	Events  http.Handler // at /router/manager; nil: there is none
	TLS     *tls.Config  // nil: plain HTTP
	Log     *slog.Logger // of clients that fail, at level debug; nil: none

	EventLinks http.Handler // at /router/link; nil: there is none

	Rembus http.Handler // at every other path: /{topic} and more; nil: there is none

	Topology *Topology // of /topology and /health; nil: they are not there
}

// Listen opens the port.
func Listen(address string, o Options) (*Server, error) {
	ln, err := amqp.ListenTCP(address)
	if err != nil {
		return nil, err
	}
	if o.TLS != nil {
		ln = tls.NewListener(ln, o.TLS)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	srv := &http.Server{
		Handler: handler(o), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	silent.Close(srv)
	return &Server{ln: ln, srv: srv}, nil
}

func handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if o.Ready != nil && !o.Ready() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.Handle("GET /metrics", o.Metrics.handler())
	if o.AMQP != nil {
		mux.Handle("/amqp", o.AMQP)
	}
	if o.Relay != nil {
		mux.Handle("/api/{domain}/relay/connect", o.Relay)
	}
	if o.Events != nil {
		mux.Handle("/router/manager", o.Events)
	}
	if o.EventLinks != nil {
		mux.Handle("/router/link", o.EventLinks)
	}
	if o.Rembus != nil {
		mux.Handle("/", o.Rembus)
	}
	if o.Topology != nil {
		o.Topology.register(mux)
	}
	return mux
}

// Addr is the address that was bound.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Serve answers until Close.
func (s *Server) Serve() error {
	if err := s.srv.Serve(s.ln); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// Close ends it; requests that are being answered have until ctx ends.
func (s *Server) Close(ctx context.Context) error { return s.srv.Shutdown(ctx) }
