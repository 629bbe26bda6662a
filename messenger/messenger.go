package messenger

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// Options of a messenger. The zero value is usable.
type Options struct {
	// Name is the container id that peers see. Empty is a random one.
	Name string

	// Routes is the table to use; several messengers may share one. Nil is a new one, whose rows may take a whole host from the
	// message.
	Routes *routetable.Table

	// MaxOutgoing is how many messages may be on their way: put, and not all copies of them over. Put waits beyond it. 0 is 10000.
	MaxOutgoing int

	// DeliveryTimeout is how long a copy may wait to be sent where its row does not say, and Subscribe for its peer. 0 is 30 s.
	DeliveryTimeout time.Duration

	// Prefetch is how many deliveries each receiving link may have that are not settled. 0 is 100.
	Prefetch int

	// MaxMessageSize is the largest message taken, in bytes. 0 is 64 MiB, negative is no limit.
	MaxMessageSize int64

	// TLS is used for amqps hops; nil checks the peer against the system's roots. ServerName is the hop's host where it is empty. A client
	// certificate in it is the login where there is no user.
	TLS *tls.Config

	// User and Password log in at hops whose address has no user: at all of them, so name in the table only whom you trust with them. The
	// login is by SCRAM where the peer has it, which does not show the password, else by PLAIN.
	User, Password string

	// AllowInsecurePlain lets passwords go over plain TCP to other hosts than loopback.
	AllowInsecurePlain bool

	// Log is told of connections that fail. Nil is silence.
	Log *slog.Logger
}

// Messenger sends and receives messages by address. It is safe for concurrent use. Close it to end its goroutines.
type Messenger struct {
	// Set at construction, never changed.
	o       Options
	routes  *routetable.Table
	log     *slog.Logger
	id      string             // random: of the dynamic addresses made here
	ctx     context.Context    // ends when connections are to be closed
	cancel  context.CancelFunc // of ctx
	abort   chan struct{}      // closed when connections are to end at once
	slots   chan struct{}      // one for each message on its way
	drained chan struct{}      // closed when it closes and nothing is unsent any more
	over    chan struct{}      // closed when Close is done

	in       inbox
	nextID   atomic.Uint64
	turn     atomic.Uint32 // of round-robin groups
	closing  atomic.Bool
	unsent   atomic.Int64 // copies that are queued or half sent
	drainOne sync.Once
	running  sync.WaitGroup

	mu        sync.Mutex // guards what follows; a leaf
	stopped   bool       // no goroutine is started any more
	endpoints map[string]*endpoint
	links     map[string]*line // lines of link: hops, by name
	listeners map[*Listener]struct{}
}

const (
	defaultMaxOutgoing     = 10_000
	defaultDeliveryTimeout = 30 * time.Second
	defaultPrefetch        = 100
	defaultMaxMessageSize  = 64 << 20
)

// New makes a messenger. It connects to nobody before something is put or subscribed to.
func New(o Options) (*Messenger, error) {
	if o.MaxOutgoing < 0 || o.Prefetch < 0 || o.DeliveryTimeout < 0 {
		return nil, errors.New("messenger options: MaxOutgoing, Prefetch and DeliveryTimeout may not be negative")
	}
	if o.Name == "" {
		o.Name = random()
	}
	if o.MaxOutgoing == 0 {
		o.MaxOutgoing = defaultMaxOutgoing
	}
	if o.DeliveryTimeout == 0 {
		o.DeliveryTimeout = defaultDeliveryTimeout
	}
	if o.Prefetch == 0 {
		o.Prefetch = defaultPrefetch
	}
	if o.MaxMessageSize == 0 {
		o.MaxMessageSize = defaultMaxMessageSize
	}
	m := &Messenger{
		o: o, routes: o.Routes, log: o.Log,
		id:    random(),
		abort: make(chan struct{}), slots: make(chan struct{}, o.MaxOutgoing), drained: make(chan struct{}), over: make(chan struct{}),
		endpoints: map[string]*endpoint{}, links: map[string]*line{}, listeners: map[*Listener]struct{}{},
	}
	if m.routes == nil {
		m.routes = routetable.New(routetable.DynamicHosts())
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	m.in.wake = make(chan struct{}, 1)
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

// random gives 64 random bits as text.
func random() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Name is the container id.
func (m *Messenger) Name() string { return m.o.Name }

// Routes is the table that addresses are looked up in. It may be changed at any time: the next Put sees it.
func (m *Messenger) Routes() *routetable.Table { return m.routes }

func (m *Messenger) engineConfig() engine.Config {
	return engine.Config{
		ContainerID: m.o.Name, MaxMessageSize: uint64(max(m.o.MaxMessageSize, 0)),
		Properties: wire.Map{{Key: wire.Symbol("product"), Value: "fingerpost messenger"}},
	}
}

// start registers a goroutine that Close waits for; false when it is too late for one.
func (m *Messenger) start() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return false
	}
	m.running.Add(1)
	return true
}

// sent notes that a copy is sent, or given up.
func (m *Messenger) sent() {
	if m.unsent.Add(-1) == 0 && m.closing.Load() {
		m.drainOne.Do(func() { close(m.drained) })
	}
}

func (m *Messenger) releaseSlot() { <-m.slots }

// Close takes no more puts, waits until what was put is sent or has failed, or ctx ends, and closes every connection. Messages
// without an outcome then have one: not sent is released with [ErrClosed], sent is modified with [ErrInDoubt]. Deliveries
// that were not settled go back to their senders. Wait for the trackers first where their outcomes matter.
func (m *Messenger) Close(ctx context.Context) error {
	if m.closing.Swap(true) {
		select {
		case <-m.over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if m.unsent.Load() == 0 {
		m.drainOne.Do(func() { close(m.drained) })
	}
	var err error
	select {
	case <-m.drained:
	case <-ctx.Done():
		err = ctx.Err()
	}
	m.mu.Lock()
	m.stopped = true
	listeners := make([]*Listener, 0, len(m.listeners))
	for ln := range m.listeners {
		listeners = append(listeners, ln)
	}
	m.mu.Unlock()
	m.cancel()
	stop := context.AfterFunc(ctx, func() { close(m.abort) })
	defer stop()
	for _, ln := range listeners {
		ln.Close(ctx)
	}
	m.running.Wait()
	m.mu.Lock()
	endpoints := m.endpoints
	m.endpoints = map[string]*endpoint{}
	m.mu.Unlock()
	for _, ep := range endpoints {
		ep.end()
	}
	m.in.close()
	close(m.over)
	return err
}
