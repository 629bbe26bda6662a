package nats

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// embedded is a server in this process.
type embedded struct {
	srv *server.Server
	dir string // of JetStream, where it is not to be kept; removed at the end
}

// startServer starts a server; listen is HOST:PORT, empty for none: then only this process reaches it. dir keeps JetStream; empty is in memory.
func startServer(name, listen, dir string, log *slog.Logger) (*embedded, error) {
	e := &embedded{}
	o := &server.Options{
		ServerName: name, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true, DontListen: listen == "", MaxPayload: maxPayload,
		JetStreamMaxMemory: 256 << 20, JetStreamMaxStore: 4 << 30,
	}
	if dir == "" {
		temporary, err := os.MkdirTemp("", "fingerpost-nats-")
		if err != nil {
			return nil, err
		}
		e.dir, o.StoreDir = temporary, temporary
	}
	if listen != "" {
		host, port, err := net.SplitHostPort(listen)
		if err != nil {
			return nil, errors.Join(err, e.clean())
		}
		o.Host = host
		if o.Port, err = strconv.Atoi(port); err != nil {
			return nil, errors.Join(fmt.Errorf("port %q", port), e.clean())
		}
		if o.Port == 0 {
			o.Port = server.RANDOM_PORT
		}
	}
	srv, err := server.NewServer(o)
	if err != nil {
		return nil, errors.Join(err, e.clean())
	}
	e.srv = srv
	srv.SetLoggerV2(&serverLog{log}, false, false, false)
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		e.close()
		return nil, errors.New("the server is not ready after 10 s")
	}
	return e, nil
}

func (e *embedded) clean() error {
	if e.dir == "" {
		return nil
	}
	return os.RemoveAll(e.dir)
}

func (e *embedded) close() {
	e.srv.Shutdown()
	e.srv.WaitForShutdown()
	e.clean()
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
