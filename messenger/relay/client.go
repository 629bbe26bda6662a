package relay

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// Options of a Client. URL and Domain are needed, mostly Token too.
type Options struct {
	URL    string      // ws:, wss:, http: or https: and the relay's host and port; /api/DOMAIN/relay/connect is added to its path
	Domain string      // the name space of the topics
	Token  string      // of the key
	TLS    *tls.Config // nil: the system's roots

	Window     int           // parts of a request or a response that nobody has taken; 0 is 8
	Timeout    time.Duration // how long a request may be without anything from the other side; 0 is 30 s, negative for ever
	Buffer     int           // bytes of parts that came and were not read, of each request and response; 0 is 1 MiB
	Hold       time.Duration // how long a full buffer of which nothing is read may hold up the connection; 0 is 1 s, negative not at all
	Concurrent int           // served requests at a time; more are answered with the failure "busy"; 0 is 1000
	MaxMessage int           // bytes; 0 is 16 MiB
	PingEvery  time.Duration // how long a silent relay is left alone; 0 is 30 s

	NoReconnect bool          // a lost connection is not made again
	RetryAfter  time.Duration // the first pause before it is tried; it doubles with each failure, and is jittered; 0 is 200 ms
	RetryMost   time.Duration // the longest; 0 is 15 s
}

func (o *Options) defaults() {
	o.Window = cmp.Or(o.Window, 8)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.Buffer = cmp.Or(o.Buffer, 1<<20)
	o.Hold = cmp.Or(o.Hold, time.Second)
	o.Concurrent = cmp.Or(o.Concurrent, 1000)
	o.MaxMessage = cmp.Or(o.MaxMessage, 16<<20)
	o.PingEvery = cmp.Or(o.PingEvery, 30*time.Second)
	o.RetryAfter = cmp.Or(o.RetryAfter, 200*time.Millisecond)
	o.RetryMost = cmp.Or(o.RetryMost, 15*time.Second)
}

// Client is a connection to a relay that is made again when it is lost, and a second one for its responses where it serves. Its methods are for any goroutine.
type Client struct {
	// Set at construction, never changed.
	o       Options
	address string // with the token
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{} // closed when run has ended
	backing sync.Mutex    // held while the way back is connected

	mu       sync.Mutex      // guards what follows, and the output of conn
	conn     *websocket.Conn // nil while there is none
	back     *websocket.Conn // what answers requests goes by it; nil: by conn
	closed   bool            // there will be none any more
	lastID   uint64
	lastRef  uint64
	refs     map[string]func(*op) // who waits for an answer; called under mu
	topics   map[string]*served
	requests map[string]*Response // by id
	serving  map[servedKey]*Request
	atWork   int             // handlers: of serving, and of requests whose id came again
	idle     []chan struct{} // closed when no handler is at work
	handlers sync.WaitGroup
	events   []func() // callbacks to do when mu is released
	onRole   func(topic string, role Role)
	onError  func(error)
}

// Connect connects to a relay. ctx bounds that, and not the life of the Client. Where the relay refuses the token or the domain, or there is none, the
// error is an *Error with the code "forbidden".
func Connect(ctx context.Context, o Options) (*Client, error) {
	o.defaults()
	address, err := connectURL(&o)
	if err != nil {
		return nil, err
	}
	c := &Client{o: o, address: address, done: make(chan struct{}), refs: map[string]func(*op){}, topics: map[string]*served{},
		requests: map[string]*Response{}, serving: map[servedKey]*Request{}}
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.conn = conn
	go c.run(conn)
	return c, nil
}

// connectURL is where to connect to.
func connectURL(o *Options) (string, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" {
		return "", errors.New("relay: the URL is like ws://HOST:PORT")
	}
	switch u.Scheme {
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	case "ws", "wss":
	default:
		return "", errors.New("relay: the scheme of the URL is ws, wss, http or https")
	}
	if o.Domain == "" {
		return "", errors.New("relay: a domain is needed")
	}
	u = u.JoinPath("api", url.PathEscape(o.Domain), "relay", "connect")
	u.User, u.Fragment = nil, ""
	u.RawQuery = url.Values{"token": {o.Token}}.Encode()
	return u.String(), nil
}

func (c *Client) dial(ctx context.Context) (*websocket.Conn, error) {
	conn, err := websocket.Dial(ctx, c.address, websocket.DialOptions{TLS: c.o.TLS,
		Conn: websocket.Options{MaxMessage: c.o.MaxMessage, PingEvery: c.o.PingEvery, Mutex: &c.mu, Release: c.release}})
	var refused *websocket.RefusedError
	if errors.As(err, &refused) {
		switch refused.Status {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound: // the last: of a domain, or where there is no relay
			return nil, &Error{Code: Forbidden, Message: fmt.Sprintf("the server answers %d: %s", refused.Status, strings.TrimSpace(refused.Text))}
		}
	}
	return conn, err
}

// OnRole has f called when the role of the client on a topic changes: told by the relay, or found when it serves the topic again after a
// reconnect. f is called in the order of the changes, by the connection's reader: it must not wait for the client.
func (c *Client) OnRole(f func(topic string, role Role)) {
	c.mu.Lock()
	c.onRole = f
	c.mu.Unlock()
}

// OnError has f called with what concerns no call: a lost connection, one that cannot be made again, a topic that cannot be served again, an error of a
// handler, a complaint of the relay. It is called as that of OnRole is.
func (c *Client) OnError(f func(error)) {
	c.mu.Lock()
	c.onError = f
	c.mu.Unlock()
}

// Close ends the connection and everything unfinished with the code "closed", and waits for handlers that are at work, so that none of them may call
// it. An iterator of a request's body that waits for something is not waited for.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	if c.conn != nil {
		conn := c.conn
		c.release()
		conn.Close(websocket.Normal, "")
	} else {
		c.release()
	}
	c.cancel()
	<-c.done
	c.handlers.Wait()
}

// Idle waits until no request is being answered: behind Unserve and before Close, nobody waits in vain then for a response.
func (c *Client) Idle(ctx context.Context) error {
	c.mu.Lock()
	if c.atWork == 0 {
		c.release()
		return nil
	}
	idle := make(chan struct{})
	c.idle = append(c.idle, idle)
	c.release()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done is closed when the Client is over: by Close, or where it does not connect again.
func (c *Client) Done() <-chan struct{} { return c.done }

// release unlocks, and then does the callbacks that were asked for.
func (c *Client) release() {
	events := c.events
	c.events = nil
	c.mu.Unlock()
	for _, f := range events {
		f()
	}
}

// tellError asks for a call of OnError. Called under mu.
func (c *Client) tellError(err error) {
	if f := c.onError; f != nil {
		c.events = append(c.events, func() { f(err) })
	}
}

func (c *Client) tellRole(topic string, role Role) {
	if f := c.onRole; f != nil {
		c.events = append(c.events, func() { f(topic, role) })
	}
}
