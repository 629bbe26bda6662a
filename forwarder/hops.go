package forwarder

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/routetable"
)

// Hops say how the peers that rows name are dialled. The zero value dials them without a login.
type Hops struct {
	By map[string]*Hop // by HopKey

	// TableCredentials has the user and password that a row's address holds used, where By has no entry for the hop.
	TableCredentials bool
}

// Hop is how one peer is dialled.
type Hop struct {
	User, Password string
	HasPassword    bool
	TLS            *tls.Config // of amqps; nil: the system's roots. ServerName is the host dialled where it is empty
	SASL           []string    // the mechanisms to use; empty: any that fits

	AllowInsecurePlain bool              // PLAIN without TLS beyond loopback
	Failover           []*routetable.Hop // to be dialled, in order, while the hop itself is away
}

// HopKey is the key of an amqp: or amqps: hop: its scheme, host and port.
func HopKey(h *routetable.Hop) string { return h.Scheme + "://" + addressOf(h) }

func addressOf(h *routetable.Hop) string { return net.JoinHostPort(h.Host, strconv.Itoa(int(h.Port))) }

// SetHops changes how hops are dialled from now on. Connections that are there stay.
func (n *Node) SetHops(h Hops) {
	old := n.hops.Swap(newHops(h))
	close(old.changed)
}

// hops are Hops in force.
type hops struct {
	Hops
	changed chan struct{} // closed when others take their place: hops that are away are tried again
}

func newHops(h Hops) *hops { return &hops{h, make(chan struct{})} }

// errTableCredentials keeps a hop away whose row has a password that is not to be used.
var errTableCredentials = errors.New("the row's address has a user or a password: they belong in hops: of the configuration (or set tableCredentials: true)")

// ways gives how an endpoint is dialled: first by its own address.
func (n *Node) ways(e *routetable.Hop) ([]amqp.DialOptions, error) {
	hops := n.hops.Load()
	h := hops.By[HopKey(e)]
	switch {
	case h != nil:
	case !e.HasUser && !e.HasPass:
		h = &Hop{}
	case hops.TableCredentials:
		h = &Hop{User: e.User, Password: e.Password, HasPassword: e.HasUser && e.HasPass}
	default:
		return nil, errTableCredentials
	}
	var ways []amqp.DialOptions
	for _, at := range append([]*routetable.Hop{e}, h.Failover...) {
		o := amqp.DialOptions{
			Address: addressOf(at), User: h.User, Password: h.Password, PLAIN: h.HasPassword,
			Mechanisms: h.SASL, AllowInsecurePlain: h.AllowInsecurePlain, Engine: n.engineConfig(),
		}
		o.Engine.Hostname = at.Host
		if at.Scheme == "amqps" {
			o.TLS = &tls.Config{}
			if h.TLS != nil {
				o.TLS = h.TLS.Clone()
			}
			o.TLS.MinVersion = max(o.TLS.MinVersion, tls.VersionTLS12)
			if o.TLS.ServerName == "" {
				o.TLS.ServerName = at.Host
			}
		}
		ways = append(ways, o)
	}
	return ways, nil
}

// connectBy dials one of the ways and stays until the connection is over. opened tells whether there was one.
func (p *peer) connectBy(ways []amqp.DialOptions, i int) (opened bool, err error) {
	ctx, cancel := context.WithTimeout(p.n.ctx, amqp.HandshakeTimeout)
	defer cancel()
	o := ways[i]
	o.Lock = &p.mu
	c, err := amqp.Dial(ctx, o, func(ac *amqp.Conn) amqp.Owner {
		return &conn{n: p.n, c: ac, id: p.n.nextID.Add(1), dialled: p}
	})
	if err != nil {
		if i > 0 || len(ways) > 1 {
			err = fmt.Errorf("%s: %w", o.Address, err)
		}
		return false, err
	}
	p.n.log.Info("hop connected", "hop", p.endpoint.Text, "at", cmp.Or(o.Address, c.RemoteAddr().String()))
	var home <-chan time.Time
	if i > 0 {
		t := time.NewTicker(p.n.options.ReturnEvery)
		defer t.Stop()
		home = t.C
	}
	for {
		select {
		case <-c.Done():
			return true, c.Err()
		case <-home:
			if p.quiet() && reachable(p.n.ctx, ways[0], c.Done()) && p.quiet() {
				c.Close(nil)
				<-c.Done()
				return true, errGoingHome
			}
		case <-p.n.ctx.Done():
			c.Close(nil)
			<-c.Done()
			return true, c.Err()
		}
	}
}

// quiet tells whether nothing is on its way to the peer: only then may the connection be given up for another.
func (p *peer) quiet() bool {
	for _, ln := range p.all() {
		if ln.busy.Load() > 0 {
			return false
		}
	}
	return true
}

var errGoingHome = errors.New("its own place is back")

// reachable tells whether a peer takes us there. It is not waited for beyond the end of another connection.
func reachable(ctx context.Context, o amqp.DialOptions, over <-chan struct{}) bool {
	ctx, cancel := context.WithTimeout(ctx, amqp.HandshakeTimeout)
	defer cancel()
	go func() {
		select {
		case <-over:
			cancel()
		case <-ctx.Done():
		}
	}()
	c, err := amqp.Dial(ctx, o, func(*amqp.Conn) amqp.Owner { return visitor{} })
	if err != nil {
		return false
	}
	c.Close(nil)
	<-c.Done()
	return true
}

// visitor is a connection that only looks whether it is let in.
type visitor struct{ engine.NoHandler }

func (visitor) AfterInput(bool)     {}
func (visitor) BeforeFlush()        {}
func (visitor) TakeWork() amqp.Work { return nil }
