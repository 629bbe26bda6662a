package forwarder

import (
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// ListenOptions say how clients come in. Only the address is needed.
type ListenOptions struct {
	Address string      // host:port; port 0 takes a free one
	TLS     *tls.Config // nil: plain TCP

	WebSocket *amqp.WebSocketOptions // nil: AMQP straight over it

	// SASL are the mechanisms offered, by name. Empty is ANONYMOUS, and SCRAM and PLAIN where there are users, and EXTERNAL where a
	// client has shown a certificate. Without ANONYMOUS among them every client has to log in.
	SASL []string

	AllowInsecurePlain bool // PLAIN without TLS beyond loopback
	Direct             bool // an address that matches nothing and is an amqp URL is dialled
	Shared             bool // receivers share a plain name (pick any) where they ask for neither that nor copies
}

// Mechanisms are the names of all SASL mechanisms, the one to be preferred first.
func Mechanisms() []string {
	return []string{"SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-1", "EXTERNAL", "PLAIN", "ANONYMOUS"}
}

// Users are those who may log in.
type Users interface {
	Account(name string) *admin.Account // nil: no such user
	Logins() *amqp.Logins
}

// Limits bound what clients take. Zero is the default of each.
type Limits struct {
	Connections        int // of clients; 0 is 10000
	ConnectionsPerHost int // of one address; 0 is no limit of its own
	Sessions           int // of a connection; 0 is 1024
	Links              int // of a connection; 0 is 65536
}

// WithDefaults puts the defaults in the place of zero.
func (l Limits) WithDefaults() Limits {
	if l.Connections == 0 {
		l.Connections = 10_000
	}
	if l.Sessions == 0 {
		l.Sessions = 1024
	}
	if l.Links == 0 {
		l.Links = 65_536
	}
	return l
}

// courtesy is how many connections beyond a limit are let in to be told so; more are closed without a word. A low limit may be that of open
// files, which they take too.
func courtesy(limit int) int { return min(100, max(8, limit/4)) }

// Access is who may come in and what they may do. It can be changed while the node runs.
type Access struct {
	Users         Users      // nil: nobody has a name, but by a certificate
	AnonymousRole admin.Role // for ANONYMOUS beyond loopback
	Limits        Limits
}

// access is an Access made ready.
type access struct {
	Access
	local, remote *admin.Account // of ANONYMOUS
}

func newAccess(a Access) *access {
	a.Limits = a.Limits.WithDefaults()
	return &access{
		Access: a,
		local:  &admin.Account{Role: admin.RoleAdmin, Send: admin.GrantsOfSchemes("topic", "event"), Receive: admin.GrantsOfSchemes("topic", "event")},
		remote: &admin.Account{Role: a.AnonymousRole},
	}
}

// peerAccount is that of a node that we dialled.
func peerAccount() *admin.Account {
	return &admin.Account{Send: admin.GrantsOfSchemes("topic", "event"), Receive: admin.GrantsOfSchemes("topic", "event")}
}

// account gives what a client may do, nil where it is nobody any more.
func (a *access) account(user string, from net.Addr) *admin.Account {
	switch {
	case user == "" && isLoopback(from):
		return a.local
	case user == "":
		return a.remote
	case a.Users == nil:
		return &admin.Account{Name: user} // by a certificate
	}
	return a.Users.Account(user)
}

// hosts counts the connections of each address.
type hosts struct {
	mu    sync.Mutex // a leaf
	count map[netip.Addr]int
}

func (h *hosts) add(from net.Addr, n, limit int) bool {
	t, ok := from.(*net.TCPAddr)
	if !ok {
		return true
	}
	at := t.AddrPort().Addr().Unmap()
	h.mu.Lock()
	defer h.mu.Unlock()
	if n > 0 && limit > 0 && h.count[at] >= limit {
		return false
	}
	if h.count == nil {
		h.count = map[netip.Addr]int{}
	}
	if h.count[at] += n; h.count[at] <= 0 {
		delete(h.count, at)
	}
	return true
}

// Listen opens an AMQP listener; Addr of the result tells the port. Its connections end with the node.
func (n *Node) Listen(address string) (net.Addr, error) {
	return n.ListenWith(ListenOptions{Address: address})
}

// ListenWith opens an AMQP listener with options.
func (n *Node) ListenWith(o ListenOptions) (net.Addr, error) {
	ln, err := amqp.ListenWith(o.Address, amqp.ListenOptions{
		TLS: o.TLS, WebSocket: o.WebSocket, Accept: n.mayConnect, Over: n.disconnected,
		Failing: func(err error) {
			n.log.Error("connections cannot be accepted for now", "listener", o.Address, "error", err)
		},
	})
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.listeners = append(n.listeners, ln)
	n.mu.Unlock()
	n.running.Add(1)
	go func() {
		defer n.running.Done()
		ln.Serve(func(nc net.Conn) *amqp.Conn { return n.take(nc, &o) }, n.connEnded)
	}()
	return ln.Addr(), nil
}

// mayConnect tells whether a socket is taken, before anything of it is read.
func (n *Node) mayConnect(nc net.Conn) bool {
	limits := &n.access.Load().Limits
	if n.sockets.Add(1) <= int64(limits.Connections+courtesy(limits.Connections)) {
		if n.hosts.add(nc.RemoteAddr(), 1, limits.ConnectionsPerHost) {
			return true
		}
	}
	n.sockets.Add(-1)
	n.tooMany(nc)
	return false
}

// tooMany counts and tells that a client is turned away.
func (n *Node) tooMany(nc net.Conn) {
	n.count.connectionsRefused.Add(1)
	n.log.Warn("a connection is refused: there are as many as limits.connections or connectionsPerHost allow", "from", nc.RemoteAddr())
}

// disconnected: a socket that mayConnect took is closed.
func (n *Node) disconnected(nc net.Conn, err error) {
	n.sockets.Add(-1)
	n.hosts.add(nc.RemoteAddr(), -1, 0)
	if err == nil || n.ctx.Err() != nil {
		return
	}
	n.count.handshakesFailed.Add(1)
	n.log.Debug("no TLS with a client", "from", nc.RemoteAddr().String(), "reason", err)
}

// take makes the connection of a client's socket.
func (n *Node) take(nc net.Conn, o *ListenOptions) *amqp.Conn {
	a := n.access.Load()
	owner := &conn{n: n, id: n.nextID.Add(1), direct: o.Direct, shared: o.Shared, isClient: true}
	cfg := n.engineConfig()
	cfg.Mechanisms, cfg.RequireSASL = a.mechanisms(nc, o)
	cfg.ChannelMax = uint16(min(a.Limits.Sessions, 1<<16) - 1)
	if held := n.count.connections.Add(1); held > int64(a.Limits.Connections) {
		n.tooMany(nc)
		cfg.Refuse = &engine.ConnectionError{Condition: wire.CondResourceLimitExceeded, Text: "this router has as many connections as it takes"}
	}
	ac := amqp.NewConn(nc, cfg, nil, func(ac *amqp.Conn) amqp.Owner {
		owner.c = ac
		return owner
	})
	ac.SetGuard(n.guard)
	return ac
}

// mechanisms are those that a client is offered, and whether it has to use one.
func (a *access) mechanisms(nc net.Conn, o *ListenOptions) (list []engine.Mechanism, required bool) {
	names := o.SASL
	if len(names) == 0 {
		names = Mechanisms()
	}
	isTLS := amqp.Secured(nc) != nil
	for _, name := range names {
		switch name {
		case "ANONYMOUS":
			list = append(list, amqp.Anonymous())
		case "EXTERNAL":
			if user := amqp.CertificateUser(nc); user != "" {
				list = append(list, amqp.External(user, func() bool { return a.account(user, nc.RemoteAddr()) != nil }))
			}
		case "PLAIN":
			if a.Users != nil && (isTLS || o.AllowInsecurePlain || isLoopback(nc.RemoteAddr())) {
				list = append(list, amqp.Plain(a.Users.Logins().Check))
			}
		default:
			if a.Users == nil {
				continue
			}
			if m, ok := a.Users.Logins().SCRAM(name); ok {
				list = append(list, m)
			}
		}
	}
	return list, !slices.Contains(names, "ANONYMOUS")
}

func (n *Node) connEnded(c *amqp.Conn, err error) {
	n.count.connections.Add(-1)
	if err == nil || n.ctx.Err() != nil {
		return
	}
	from := c.RemoteAddr()
	if errors.Is(err, engine.ErrAuthentication) || errors.Is(err, amqp.ErrTooManyLogins) {
		n.count.loginsFailed.Add(1)
		if failures, tell := n.guard.Tell(from, time.Now()); tell {
			n.log.Warn("login failed", "from", from.String(), "reason", err, "failures", failures)
		}
		return
	}
	n.log.Info("connection ended", "from", from.String(), "reason", err)
}

// admit says who a client is and what it may do. ANONYMOUS from loopback is admin. Called under the lock.
func (n *Node) admit(c *conn) {
	c.caller.Remote, c.caller.User = c.c.RemoteAddr().String(), c.c.Engine.User()
	c.recognise(n.access.Load()) // SetAccess sees it on the list, or has changed access before
}

// recognise takes what the client may do from a, and closes the connection of one who is nobody any more. Called under the lock.
func (c *conn) recognise(a *access) {
	account := a.account(c.caller.User, c.c.RemoteAddr())
	if account == nil {
		c.account = &admin.Account{Name: c.caller.User, Send: nobody(), Receive: nobody()}
		c.caller.Role = admin.RoleNone
		c.c.CloseLocked(&engine.ConnectionError{Condition: wire.CondUnauthorizedAccess, Text: "this user may not log in any more"})
		return
	}
	c.account, c.caller.Role = account, account.Role
}

// nobody may name no address.
func nobody() *admin.Grants {
	g, _ := admin.NewGrants(nil) // no pattern is wrong
	return g
}

// SetAccess changes who may come in and what they may do. Connections that are there go on as the users they are: with other grants and
// another role where these have changed, and not at all where the user is gone. Receivers of what is not allowed any more are detached.
func (n *Node) SetAccess(a Access) {
	now := newAccess(a)
	n.access.Store(now)
	n.mu.Lock()
	conns := slices.Collect(maps.Values(n.conns))
	receivers := map[*conn][]*receiver{}
	for _, r := range n.receivers {
		receivers[r.c] = append(receivers[r.c], r)
	}
	n.mu.Unlock()
	for _, c := range conns {
		if !c.isClient {
			continue
		}
		c.c.Do(func() {
			if !c.c.Engine.IsOpen() {
				return // it is ending
			}
			c.recognise(now)
			for _, r := range receivers[c] {
				if r.l != nil && !r.l.Gone() && !c.isGranted(r) {
					r.l.Detach(unauthorized("this client may not receive from this address any more"))
				}
			}
		})
	}
}

func unauthorized(text string) *engine.LinkError {
	return &engine.LinkError{Condition: wire.CondUnauthorizedAccess, Text: text}
}
