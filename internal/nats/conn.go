package nats

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of the largest message that a server of one's own takes: more than the most it does not.
const (
	leastMessage = 8 << 20
	mostMessage  = 64 << 20
)

// Options say which NATS. The zero value is a server in this process that keeps nothing.
type Options struct {
	// URL is "embedded" or empty: a server in this process, which only this process reaches; "embedded://HOST:PORT": others too; or URLs of servers,
	// nats://host:4222,…
	URL  string
	Dir  string       // of the embedded server's JetStream; empty: in memory
	Name string       // of the connection and the server
	Log  *slog.Logger // nil: no log

	// The login of this connection. Where the server is in this process it is what others have to show, by a user or a token.
	Login Login

	// TLS of the connection; with a server in this process that of its listeners: those that connect show a certificate where ClientCAs are set.
	// nil: none, and for tls:// URLs the system's authorities.
	TLS *tls.Config

	Cluster Cluster // of a server in this process

	MaxMessage int // bytes of the largest message of a server in this process; 8 MiB at least, 64 MiB at most

	// Replicas is how many servers keep each stream and bucket; 0 is 1, and 3 in a cluster with routes to two others or more.
	Replicas int
}

// Login is who connects: by one of the four. The zero value is nobody.
type Login struct {
	User, Password string
	Token          string
	Credentials    string // file of a JWT and its seed
	NKey           string // file of a seed
}

// Cluster makes servers one. Three of them go on without any one of them; two wait for each other.
type Cluster struct {
	Listen string   // HOST:PORT for other servers; empty: no cluster
	Routes []string // nats://HOST:PORT of others; one's own among them does no harm
	Name   string   // empty is "fingerpost"
}

// CheckURL says what is wrong with Options.URL.
func CheckURL(url string) error {
	if isEmbedded(url) {
		return nil
	}
	for _, u := range strings.Split(url, ",") {
		if !strings.HasPrefix(u, "nats://") && !strings.HasPrefix(u, "tls://") {
			return fmt.Errorf("%q: write embedded, embedded://HOST:PORT, or nats://HOST:PORT,…", url)
		}
	}
	return nil
}

func isEmbedded(url string) bool {
	return url == "" || url == "embedded" || strings.HasPrefix(url, "embedded://")
}

// Conn is a connection. It connects, and connects again, by itself.
type Conn struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	server   *embedded // nil: another's
	memory   bool
	replicas int
	log      *slog.Logger
	posts    posts
	ending   sync.WaitGroup // watches that are being ended
	endMu    sync.Mutex     // guards what follows, and that nothing is added to ending behind it
	closed   bool
}

// Open starts the server, where it is ours, and connects. A server of others that is away is waited for.
func Open(o Options) (*Conn, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Conn{log: o.Log, replicas: o.Replicas}
	if c.replicas == 0 {
		c.replicas = 1
		if o.Cluster.Listen != "" && len(o.Cluster.Routes) >= 2 {
			c.replicas = 3
		}
	}
	options, err := o.options(c)
	if err != nil {
		return nil, err
	}
	url := o.URL
	if isEmbedded(url) {
		if c.memory = o.Dir == ""; c.memory {
			o.Log.Warn("nats: without a state directory JetStream is in memory: a restart begins anew")
		}
		if c.server, err = startServer(&o); err != nil {
			return nil, fmt.Errorf("nats server: %w", err)
		}
		options = append(options, nats.InProcessServer(c.server.srv))
		url = ""
	} else if o.TLS != nil {
		options = append(options, nats.Secure(o.TLS))
	}
	if c.nc, err = nats.Connect(url, options...); err == nil {
		c.js, err = jetstream.New(c.nc)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("nats: %w", err)
	}
	return c, nil
}

// options are those of the connection.
func (o *Options) options(c *Conn) ([]nats.Option, error) {
	log, said := o.Log, ""
	server := func(nc *nats.Conn) string {
		if isEmbedded(o.URL) {
			return "in this process"
		}
		return nc.ConnectedUrlRedacted()
	}
	list := []nats.Option{
		nats.Name(o.Name), nats.MaxReconnects(-1), nats.ReconnectWait(200 * time.Millisecond), nats.Timeout(5 * time.Second), nats.PingInterval(5 * time.Second),
		nats.RetryOnFailedConnect(true), nats.IgnoreAuthErrorAbort(),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			c.posts.lost()
			if err != nil {
				log.Warn("nats: disconnected", "error", err)
			}
		}),
		nats.ConnectHandler(func(nc *nats.Conn) { log.Info("nats: connected", "server", server(nc)) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Info("nats: connected again", "server", server(nc)) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { // called in one goroutine
			if text := err.Error(); text != said {
				said = text
				log.Warn("nats: cannot connect", "error", err)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) { log.Warn("nats: " + err.Error()) }),
	}
	switch l := &o.Login; {
	case l.User != "":
		list = append(list, nats.UserInfo(l.User, l.Password))
	case l.Token != "":
		list = append(list, nats.Token(l.Token))
	case l.Credentials != "":
		list = append(list, nats.UserCredentials(l.Credentials))
	case l.NKey != "":
		key, err := nats.NkeyOptionFromSeed(l.NKey)
		if err != nil {
			return nil, fmt.Errorf("nats: nkey %s: %w", l.NKey, err)
		}
		list = append(list, key)
	}
	return list, nil
}

// URL is where others reach the server that is ours; empty where they do not.
func (c *Conn) URL() string {
	if c.server == nil || c.server.srv.Addr() == nil {
		return ""
	}
	return "nats://" + c.server.srv.Addr().String()
}

// Close ends the connection, and the server where it is ours.
func (c *Conn) Close() {
	if c.nc != nil {
		if c.Connected() {
			c.nc.FlushTimeout(time.Second)
		}
		c.nc.Close()
		c.posts.lost()
		c.endMu.Lock()
		c.closed = true
		c.endMu.Unlock()
		c.ending.Wait()
	}
	if c.server != nil {
		c.server.close()
	}
}

// end has f done that ends something, which Close waits for; after Close at once: there is nobody to ask any more.
func (c *Conn) end(f func()) {
	c.endMu.Lock()
	closed := c.closed
	if !closed {
		c.ending.Go(f)
	}
	c.endMu.Unlock()
	if closed {
		f()
	}
}

// Connected tells whether there is a server at the other end now.
func (c *Conn) Connected() bool { return c.nc.IsConnected() }

// Message is one message.
type Message struct {
	Subject string
	Header  func(name string) string
	Data    []byte
	At      time.Time // when the server took it; zero where it does not tell
	Tries   int       // how often it was delivered, with this time

	done func(ok bool)
}

// Done says what became of the message: it is not delivered again, or it is, to whoever takes from the same group.
func (m *Message) Done(ok bool) {
	if m.done != nil {
		m.done(ok)
	}
}

// Publish sends a message with the header ce_id, and does not wait for anybody to have it.
func (c *Conn) Publish(subject, id string, data []byte) error {
	return c.nc.PublishMsg(message(subject, id, data))
}

// maxID is the longest id that is told in a header: JetStream takes no message with a large one.
const maxID = 1 << 10

func message(subject, id string, data []byte) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = data
	if len(id) <= maxID {
		m.Header.Set("ce_id", id)
	}
	return m
}

// Subscription is what a Subscribe or Consume goes on with until Stop.
type Subscription struct{ stop func() }

// Stop ends it: nothing is sent here any more, but handle is still called with what has come.
func (s *Subscription) Stop() { s.stop() }

// Subscribe has handle called with each message of a subject, one at a time; of those with the same queue one gets it.
func (c *Conn) Subscribe(subject, queue string, handle func(*Message)) (*Subscription, error) {
	s, err := c.nc.QueueSubscribe(subject, queue, func(m *nats.Msg) {
		handle(&Message{Subject: m.Subject, Header: m.Header.Get, Data: m.Data})
	})
	if err != nil {
		return nil, err
	}
	if c.nc.IsConnected() {
		err = c.nc.FlushTimeout(5 * time.Second)
	}
	return &Subscription{func() { s.Drain() }}, err
}

// Stream is a stream of messages that are kept until they were taken, or are too old.
type Stream struct {
	Name     string
	Subjects []string
	MaxAge   time.Duration
	MaxBytes int64
}

// maxMemory is how much a stream holds that is in memory.
const maxMemory = 64 << 20

// EnsureStream makes a stream, where there is none of the name.
func (c *Conn) EnsureStream(ctx context.Context, s Stream) error {
	if _, err := c.js.Stream(ctx, s.Name); !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	storage := jetstream.FileStorage
	if c.memory {
		storage, s.MaxBytes = jetstream.MemoryStorage, min(s.MaxBytes, maxMemory)
	}
	_, err := c.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: s.Name, Subjects: s.Subjects, Storage: storage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		MaxAge: s.MaxAge, MaxBytes: s.MaxBytes, Replicas: c.replicas, Duplicates: min(s.MaxAge, 100*time.Millisecond),
	})
	return err
}

// Consume has handle called with each new message of a subject of a stream; of those with the same group one gets it, and again where it is not Done in time. The
// group is forgotten when nobody was in it for idle.
func (c *Conn) Consume(ctx context.Context, stream, group, subject string, idle time.Duration, handle func(*Message)) (*Subscription, error) {
	consumer, err := c.js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: group, FilterSubject: subject, DeliverPolicy: jetstream.DeliverNewPolicy, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: 10 * time.Second, MaxDeliver: 5, InactiveThreshold: idle,
	})
	if err != nil {
		return nil, err
	}
	x, err := consumer.Consume(func(m jetstream.Msg) {
		msg := &Message{Subject: m.Subject(), Header: m.Headers().Get, Data: m.Data(), done: func(ok bool) {
			if ok {
				m.Ack()
			} else {
				m.NakWithDelay(10 * time.Millisecond)
			}
		}}
		if meta, err := m.Metadata(); err == nil {
			msg.At, msg.Tries = meta.Timestamp, int(meta.NumDelivered)
		}
		handle(msg)
	}, jetstream.PullMaxMessages(100), jetstream.PullExpiry(5*time.Second))
	if err != nil {
		return nil, err
	}
	return &Subscription{x.Drain}, nil
}

// Bucket is keys with values, which whoever watches it is told of.
type Bucket struct {
	c  *Conn
	kv jetstream.KeyValue
}

// Bucket gives a bucket, which it makes where there is none; a value goes when it is ttl old.
func (c *Conn) Bucket(ctx context.Context, name string, ttl time.Duration) (*Bucket, error) {
	storage := jetstream.FileStorage
	if c.memory {
		storage = jetstream.MemoryStorage
	}
	kv, err := c.js.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = c.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: name, TTL: ttl, Storage: storage, History: 1, MaxBytes: maxMemory / 4, Replicas: c.replicas})
	}
	if err != nil {
		return nil, err
	}
	return &Bucket{c, kv}, nil
}

// Put sets a value.
func (b *Bucket) Put(ctx context.Context, key string, value []byte) error {
	_, err := b.kv.Put(ctx, key, value)
	return err
}

// Delete takes a key away.
func (b *Bucket) Delete(ctx context.Context, key string) error { return b.kv.Delete(ctx, key) }

// Watch calls changed with each key that is there, then with those that change; value nil is a key that is gone. It returns when ctx ends.
func (b *Bucket) Watch(ctx context.Context, changed func(key string, value []byte)) error {
	w, err := b.kv.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer b.c.end(func() { w.Stop() }) // it asks the server, which may be away
	for {
		select {
		case <-ctx.Done():
			return nil
		case x, ok := <-w.Updates():
			switch {
			case !ok:
				return nil
			case x == nil: // all that is there has come
			case x.Operation() == jetstream.KeyValuePut:
				changed(x.Key(), x.Value())
			default:
				changed(x.Key(), nil)
			}
		}
	}
}
