package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/events"
	"github.com/fingerpost/fingerpost/internal/mesh"
	"github.com/fingerpost/fingerpost/internal/relay"
	"github.com/fingerpost/fingerpost/internal/web"
	"github.com/fingerpost/fingerpost/routetable"
)

// Version is the version of the program.
const Version = admin.Version

// ConfigError is bad configuration: the program ends with status 2.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// App is a running router.
type App struct {
	config     Config
	load       func() (Config, error) // reads the configuration again
	log        *slog.Logger
	table      *routetable.Table
	node       *forwarder.Node
	relay      *relay.Broker
	mesh       *mesh.Mesh
	grants     *routetable.Table // who may use private topics of the mesh
	events     *events.Router
	components *broker // nil: there is none
	http       *web.Server
	files      *tableFiles
	secret     *secrets

	ready   atomic.Bool        // tables are loaded, listeners are open, and the end has not begun
	cancel  context.CancelFunc // of the watch
	running sync.WaitGroup
}

// Check reads the configuration and every table, with what the tables expect, without starting anything.
func Check(c Config) error {
	if _, err := c.secure(); err != nil {
		return &ConfigError{err}
	}
	if err := c.checkComponents(); err != nil {
		return &ConfigError{err}
	}
	if err := c.checkMesh(); err != nil {
		return &ConfigError{err}
	}
	if _, err := c.eventLinks(); err != nil {
		return &ConfigError{err}
	}
	if err := newTableFiles(routetable.New(), slog.New(slog.DiscardHandler)).use(c.Tables); err != nil {
		return &ConfigError{c.ofTable(err)}
	}
	for _, name := range c.Tables {
		if err := checkExpectations(name); err != nil {
			return &ConfigError{err}
		}
	}
	return nil
}

// checkExpectations holds a table file to its own expect list.
func checkExpectations(name string) error {
	f, err := routetable.ReadFile(name)
	if err != nil {
		return err
	}
	t := routetable.New()
	if _, err := t.LoadFile(f, routetable.LoadReplace); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, failure := range routetable.CheckExpect(t.Snapshot(), f.Expect) {
		return fmt.Errorf("%s: line %d: %s", name, failure.Expect.Line, failure.Msg)
	}
	return nil
}

// Start starts a router and prints a line for each listener, when all of them are open, on ready. load reads the
// configuration, now and on Reload.
func Start(load func() (Config, error), log *slog.Logger, ready io.Writer) (*App, error) {
	c, err := load()
	if err != nil {
		return nil, &ConfigError{err}
	}
	secured, err := c.secure()
	if err != nil {
		return nil, &ConfigError{err}
	}
	secured.access.Limits = boundByDescriptors(log, secured.access.Limits)
	a := &App{config: c, load: load, log: log, secret: newSecrets(log)}
	id, err := a.openTable()
	if err != nil {
		return nil, err
	}
	if err := a.files.use(c.Tables); err != nil {
		a.table.Close()
		var disk *routetable.StateError
		if errors.As(err, &disk) {
			return nil, err
		}
		return nil, &ConfigError{c.ofTable(err)}
	}
	name := c.Name
	if name == "" {
		name = "fingerpost-" + id[:8]
	}
	core := admin.New(a.table, admin.Options{
		Name: name, NodeID: id, Version: Version, Counters: func() map[string]uint64 { return a.status() },
		Choose:      func(x *routetable.Explanation) { a.node.Choose(x) },
		RowCounters: func(r *routetable.Route) admin.RowCounters { return a.node.RowCounters(r) },
	})
	core.Register(fileEntity{a.files})
	a.node = forwarder.New(core, forwarder.Options{
		Name: name, ID: id, LinkCredit: c.Limits.LinkCredit,
		SoftQueue: c.Limits.SoftQueue, SoftQueueBytes: int(c.Limits.SoftQueueBytes),
		HardQueue: c.Limits.HardQueue, HardQueueBytes: int(c.Limits.HardQueueBytes),
		DeliveryTimeout: time.Duration(c.Limits.DeliveryTimeout), MaxFrame: uint32(c.Limits.MaxFrame), MaxMessage: uint64(c.Limits.MaxMessage),
		Access: secured.access, Hops: secured.hops, Version: Version, Log: log,
	})
	a.relay = relay.New(core, relay.Options{
		Busy: time.Duration(c.Relay.Busy), MaxData: int(c.Relay.MaxData), MaxMessage: int(c.Relay.MaxMessage), Connections: c.Limits.Connections,
		Origins: c.HTTP.Origins, Log: log,
	})
	if err := a.startMesh(core, name); err != nil {
		a.Stop()
		return nil, err
	}
	if err := a.startComponents(core); err != nil {
		a.Stop()
		return nil, err
	}
	a.secret.relay = a.relay
	a.relay.Bridge(a.node)
	a.secret.use(c, secured)
	a.secret.node = a.node
	if err := a.startEvents(core, id); err != nil {
		a.Stop()
		return nil, err
	}
	registerNode(core, a.node, a.relay, a.events, a.mesh)
	lines, err := a.listen()
	if err == nil {
		var more []string
		more, err = a.listenComponents()
		lines = append(lines, more...)
	}
	if err == nil {
		err = a.joinMesh(name)
	}
	if err != nil {
		a.Stop()
		return nil, err
	}
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.Background())
	a.running.Go(func() { a.files.watch(ctx) })
	a.running.Go(func() { a.secret.watch(ctx) })
	a.ready.Store(true)
	log.Info("ready", "name", name, "node", id, "version", Version, "rows", a.table.Snapshot().Len(), "listeners", len(lines))
	for _, l := range lines {
		fmt.Fprintln(ready, l)
	}
	return a, nil
}

// openTable opens the table that the state directory keeps, or without one an empty table, and gives the node's id.
func (a *App) openTable() (id string, err error) {
	if a.config.State == "" {
		a.table = routetable.New()
		a.files = newTableFiles(a.table, a.log)
		return forwarder.NewID(), nil
	}
	if a.table, err = routetable.Open(a.config.State, a.log); err != nil {
		return "", err
	}
	a.files = newTableFiles(a.table, a.log)
	if id, err = nodeID(a.table); err != nil {
		a.table.Close()
		return "", err
	}
	s := a.table.Snapshot()
	a.log.Info("the table is kept on disk", "directory", a.config.State, "rows", s.Len(), "revision", s.Revision())
	return id, nil
}

// notBound says why there is no listener on a URL, where the configuration asks for it, and what to do where somebody else has the port.
func (a *App) notBound(path, url string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("the port is taken, by another router or program: stop that, or choose another (%w)", err)
	}
	return a.config.at(path, fmt.Errorf("listen %s: %w", url, err))
}

func (a *App) listen() (lines []string, err error) {
	for i, l := range a.config.Listeners {
		path := fmt.Sprintf("listeners[%d].url", i)
		address, err := listenAddress(l.URL)
		if err != nil {
			return nil, &ConfigError{err}
		}
		scheme, _, _ := strings.Cut(l.URL, "://")
		if isRembus(l.URL) {
			line, err := a.listenMesh(l.URL, address)
			if err != nil {
				return nil, a.notBound(path, l.URL, err)
			}
			lines = append(lines, line)
			continue
		}
		o := forwarder.ListenOptions{
			Address: address, TLS: a.secret.listenerTLS(l.URL), SASL: l.SASL, AllowInsecurePlain: l.AllowInsecurePlain, Direct: l.Direct, Shared: l.Shared,
		}
		if scheme[0] == 'w' {
			o.WebSocket = &amqp.WebSocketOptions{Origins: a.config.HTTP.Origins}
		}
		bound, err := a.node.ListenWith(o)
		if err != nil {
			return nil, a.notBound(path, l.URL, err)
		}
		lines = append(lines, "ready "+scheme+"://"+bound.String())
	}
	if h := &a.config.HTTP; h.on() {
		a.http, err = web.Listen(h.Listen, web.Options{
			Ready: a.ready.Load, TLS: a.secret.listenerTLS(h.url()), Log: a.log,
			Relay: a.relay, Topology: a.topology(), Rembus: a.gateway(),
			Events: a.events.Handler(), EventLinks: a.events.LinkHandler(),
			AMQP: a.node.WebSocket(amqp.WebSocketOptions{Origins: a.config.HTTP.Origins}),
			Metrics: web.Metrics{
				Version: Version, Table: a.table, Counters: a.counters, Files: a.files.metrics, Node: a.node.Stats, Relay: a.relay.Stats, Events: a.events.Stats,
			},
		})
		if err != nil {
			return nil, a.notBound("http.listen", h.url(), err)
		}
		a.running.Go(func() {
			if err := a.http.Serve(); err != nil {
				a.log.Error("http listener ended", "error", err)
			}
		})
		scheme, _, _ := strings.Cut(h.url(), "://")
		lines = append(lines, "ready "+scheme+"://"+a.http.Addr().String())
	}
	return lines, nil
}

// Reload reads the configuration and the table files again. Tables, users, hops, certificates, the role of
// ANONYMOUS and the limits of connections, sessions and links change at once, all or nothing; what else changed needs a restart, and the
// log names it. A bad file changes nothing, and a table file that has not changed is not loaded again.
func (a *App) Reload() error {
	c, err := a.load()
	if err != nil {
		return err
	}
	if _, err := c.secure(); err != nil {
		return err
	}
	wanted := c
	c.Listeners, c.HTTP = keepListeners(a.config.Listeners, c.Listeners), keepHTTP(a.config.HTTP, c.HTTP)
	secured, err := c.secure()
	if err != nil {
		return err
	}
	use, err := a.reloadComponents(&c)
	if err != nil {
		return err
	}
	if err := a.files.use(c.Tables); err != nil {
		return c.ofTable(err)
	}
	if err := use(); err != nil {
		return err
	}
	if keys := needRestart(&a.config, &wanted); len(keys) > 0 {
		a.log.Warn("what changed here needs a restart", "keys", strings.Join(keys, " "))
	}
	secured.access.Limits = boundByDescriptors(a.log, secured.access.Limits)
	a.secret.use(c, secured)
	a.mesh.SetPeople(c.Mesh.Admins, c.Mesh.Tenants)
	a.config.Tables, a.config.ShutdownGrace, a.config.Listeners, a.config.HTTP = c.Tables, c.ShutdownGrace, c.Listeners, c.HTTP
	return nil
}

// status is the counters that the router entity shows: those of the node and of events.
func (a *App) status() map[string]uint64 {
	all := a.node.Counters()
	maps.Copy(all, a.events.Counters())
	return all
}

// counters are those of the node, of the files that were refused, of the mesh and of the broker.
func (a *App) counters() map[string]uint64 {
	all := a.node.Counters()
	maps.Copy(all, a.secret.counters())
	maps.Copy(all, a.mesh.Counters())
	if a.components != nil {
		maps.Copy(all, a.components.Counters())
	}
	return all
}

// Grace is how long Stop waits for what is in flight.
func (a *App) Grace() time.Duration {
	return cmp.Or(time.Duration(a.config.ShutdownGrace), 10*time.Second)
}

// Stop lets what is in flight settle and ends everything.
func (a *App) Stop() {
	a.ready.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), a.Grace())
	defer cancel()
	if a.cancel != nil {
		a.cancel()
	}
	// All at once: one that needs the whole grace leaves it to the others, too, and nobody new comes in meanwhile.
	a.node.StopListening()
	var protocols sync.WaitGroup
	protocols.Go(func() { a.stopComponents(ctx) })
	protocols.Go(func() { a.relay.Stop(ctx) })
	protocols.Go(func() { a.stopMesh(ctx) })
	if a.events != nil {
		protocols.Go(a.events.Close)
	}
	protocols.Wait()
	a.node.Stop(ctx)
	if a.http != nil {
		a.http.Close(ctx)
	}
	// A table file of a million rows that is being loaded does not hold up the end beyond the grace.
	ended := make(chan struct{})
	go func() { a.running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	if err := a.table.Close(); err != nil {
		a.log.Error("the state directory could not be closed", "error", err)
	}
	a.log.Info("stopped")
}
