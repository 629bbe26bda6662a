package app

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/relay"
)

// secrets are the users, the certificates and the passwords that the router uses, which are files. They are looked at now and then; what
// changed is read again and takes effect for whoever connects from then on. What is bad leaves what was before in force, and the log
// says so, once for each content.
type secrets struct {
	// Set at construction, never changed.
	node  *forwarder.Node
	relay *relay.Broker
	log   *slog.Logger

	refusedUsers, refusedCertificates, refusedHops, refusedKeys atomic.Uint64

	mu     sync.Mutex // guards what follows
	config Config
	tls    map[string]*atomic.Pointer[tls.Config] // what is in force, by the URL of the listener
	access forwarder.Access
	groups []*secretGroup
}

// secretGroup is what is read in one go.
type secretGroup struct {
	what    string // for the log
	paths   []string
	read    func() error // reads the files, and puts what they hold in force
	refused *atomic.Uint64

	seen map[string]glimpse
	bad  bool   // the last reading was no good: it is not in force
	soon bool   // and is tried once more before the log is told: files that belong together do not change at once
	told string // what the log was last told
}

// glimpse is what was seen of a file.
type glimpse struct {
	info os.FileInfo // nil: it was not there
	at   time.Time
	sum  [sha256.Size]byte
}

// secretsEvery is how often files are looked at.
const secretsEvery = time.Second

func newSecrets(log *slog.Logger) *secrets {
	return &secrets{log: log, tls: map[string]*atomic.Pointer[tls.Config]{}}
}

// use puts what was read in force: all that a new configuration says of logins and TLS. Listeners that are not open yet find their TLS by
// listenerTLS.
func (s *secrets) use(c Config, now *secured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config, s.access = c, now.access
	for url, t := range now.listeners {
		if s.tls[url] == nil {
			s.tls[url] = &atomic.Pointer[tls.Config]{}
		}
		s.tls[url].Store(t)
	}
	if s.relay != nil {
		s.relay.SetKeys(now.keys)
	}
	if s.node != nil {
		s.node.SetAccess(now.access)
		s.node.SetHops(now.hops)
	}
	for _, f := range now.openFiles {
		s.log.Warn("others than its owner can read a secret", "file", f, "do", "chmod 600 "+f)
	}
	s.groups = s.groupsOf(&s.config)
	for _, g := range s.groups {
		g.look()
		for _, seen := range g.seen { // it may have changed when it was just read
			g.soon = g.soon || seen.info == nil || !seen.info.ModTime().Before(now.began)
		}
	}
}

// relayGroups are the files of the relay.
func (s *secrets) relayGroups(c *Config) (groups []*secretGroup) {
	if c.Relay.Keys != "" {
		groups = append(groups, &secretGroup{what: "relay keys", paths: []string{c.Relay.Keys}, refused: &s.refusedKeys, read: func() error {
			k, err := c.relayKeys()
			if err == nil {
				s.relay.SetKeys(k)
			}
			return err
		}})
	}
	return groups
}

// groupsOf names the files of a configuration.
func (s *secrets) groupsOf(c *Config) (groups []*secretGroup) {
	groups = s.relayGroups(c)
	if c.Users != "" {
		groups = append(groups, &secretGroup{what: "users", paths: []string{c.Users}, refused: &s.refusedUsers, read: func() error {
			u, err := c.users()
			if err == nil {
				s.access.Users = u
				s.node.SetAccess(s.access)
			}
			return err
		}})
	}
	for _, l := range c.withTLS() {
		at := s.tls[l.URL]
		if at == nil {
			continue
		}
		paths := []string{l.TLS.Cert, l.TLS.Key}
		if l.TLS.ClientCA != "" {
			paths = append(paths, l.TLS.ClientCA)
		}
		groups = append(groups, &secretGroup{what: "certificate of " + l.URL, paths: paths, refused: &s.refusedCertificates, read: func() error {
			t, _, err := l.tlsConfig()
			if err == nil {
				at.Store(t)
			}
			return err
		}})
	}
	var paths []string
	for _, h := range c.Hops {
		for _, p := range []string{h.PasswordFile, h.CA, h.Cert, h.Key} {
			if p != "" && !slices.Contains(paths, p) {
				paths = append(paths, p)
			}
		}
	}
	if len(paths) > 0 {
		groups = append(groups, &secretGroup{what: "passwords and certificates of hops", paths: paths, refused: &s.refusedHops, read: func() error {
			h, err := c.hops()
			if err == nil {
				s.node.SetHops(h)
			}
			return err
		}})
	}
	return groups
}

// listenerTLS gives the TLS of a listener: always what is in force when a client comes. Nil for plain TCP.
func (s *secrets) listenerTLS(url string) *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.tls[url]
	if at == nil {
		return nil
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return at.Load(), nil },
	}
}

// watch looks at the files until ctx ends: now and then, and when there is a sign that one has changed.
func (s *secrets) watch(ctx context.Context) {
	w := &fileWatch{what: "users, keys and certificates", log: s.log, every: secretsEvery, dirs: map[string]os.FileInfo{}, paths: s.paths}
	w.open()
	defer w.close()
	t := time.NewTicker(secretsEvery)
	defer t.Stop()
	sign := time.NewTimer(time.Hour)
	defer sign.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.events:
			sign.Reset(defaultTiming.quiet)
		case <-w.errors:
			sign.Reset(0)
		case <-sign.C:
			s.check()
		case <-t.C:
			w.follow()
			s.check()
		}
	}
}

// paths are the files that are looked at.
func (s *secrets) paths() (paths []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		paths = append(paths, g.paths...)
	}
	return paths
}

// check reads what has changed.
func (s *secrets) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		changed := g.look()
		if !changed && !g.soon {
			continue
		}
		err := g.read()
		switch {
		case err == nil:
			g.bad, g.soon, g.told = false, false, ""
			s.log.Info("read again", "what", g.what)
		case !g.bad:
			g.bad, g.soon = true, true
		default:
			g.soon = false
			if g.told != err.Error() {
				g.told = err.Error()
				g.refused.Add(1)
				s.log.Error("refused: what was before stays in force", "what", g.what, "error", err)
			}
		}
	}
}

// look tells whether one of the files is another than it was.
func (g *secretGroup) look() (changed bool) {
	if g.seen == nil {
		g.seen = map[string]glimpse{}
	}
	for _, p := range g.paths {
		was, known := g.seen[p]
		now := glimpse{at: time.Now()}
		now.info, _ = os.Stat(p)
		if known && was.sameFile(now) {
			continue
		}
		if now.info != nil && now.info.Size() <= maxSecret {
			if text, err := readSecret(p); err == nil {
				now.sum = sha256.Sum256(text)
			}
		}
		g.seen[p] = now
		changed = changed || known && was.sum != now.sum
	}
	return changed
}

// sameFile tells whether a file need not be read to know that it is as it was.
func (g glimpse) sameFile(now glimpse) bool {
	if g.info == nil || now.info == nil {
		return g.info == nil && now.info == nil
	}
	return os.SameFile(g.info, now.info) && g.info.Size() == now.info.Size() && g.info.ModTime().Equal(now.info.ModTime()) &&
		g.at.Sub(g.info.ModTime()).Abs() >= racy
}

// counters are those of files that were refused.
func (s *secrets) counters() map[string]uint64 {
	return map[string]uint64{
		"relayKeysRefused": s.refusedKeys.Load(), "usersRefused": s.refusedUsers.Load(), "certificatesRefused": s.refusedCertificates.Load(), "hopsRefused": s.refusedHops.Load(),
	}
}

// needRestart names the keys in which a new configuration differs from the one that runs, and that do not change without a restart.
func needRestart(old, now *Config) (keys []string) {
	add := func(key string, a, b any) {
		if fmt.Sprintf("%+v", a) != fmt.Sprintf("%+v", b) {
			keys = append(keys, key)
		}
	}
	add("name", old.Name, now.Name)
	add("state", old.State, now.State)
	add("listeners", withoutFiles(old.Listeners), withoutFiles(now.Listeners))
	add("http", withoutCertificate(old.HTTP), withoutCertificate(now.HTTP))
	before, after := old.Relay, now.Relay
	before.Keys, after.Keys = "", "" // changes at once
	add("relay", before, after)
	add("mesh", old.Mesh, now.Mesh)
	add("events", old.Events.shown(), now.Events.shown())
	x, y := old.Components, now.Components
	for _, z := range []*Components{&x, &y} { // read again
		z.File, z.TLS, z.GenesisTLS = "", withoutCertificate(HTTP{TLS: z.TLS}).TLS, withoutCertificate(HTTP{TLS: z.GenesisTLS}).TLS
	}
	add("components", x, y)
	add("nats", old.NATS, now.NATS)
	a, b := old.Limits, now.Limits
	for _, l := range []*Limits{&a, &b} { // those that change at once
		l.Connections, l.ConnectionsPerHost, l.Sessions, l.Links = 0, 0, 0, 0
	}
	add("limits", a, b)
	return keys
}

// keepListeners gives the listeners that are open, with the files that a new configuration names for them.
func keepListeners(open, wanted []Listener) []Listener {
	open = slices.Clone(open)
	for i := range open {
		for _, w := range wanted {
			if w.URL == open[i].URL && w.secure() {
				open[i].TLS = w.TLS
			}
		}
	}
	return open
}

// keepHTTP gives the HTTP listener that is open, with the files that a new configuration names for it.
func keepHTTP(open, wanted HTTP) HTTP {
	if open.Listen == wanted.Listen && (open.TLS == TLS{}) == (wanted.TLS == TLS{}) {
		open.TLS = wanted.TLS
	}
	return open
}

// withoutCertificate leaves out what changes without a restart: with TLS, the files.
func withoutCertificate(h HTTP) HTTP {
	if h.TLS != (TLS{}) {
		h.TLS = TLS{Cert: "one", Key: "one"}
	}
	return h
}

// withoutFiles leaves out what of listeners changes without a restart.
func withoutFiles(list []Listener) []Listener {
	list = slices.Clone(list)
	for i := range list {
		list[i].TLS = TLS{}
	}
	return list
}
