package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/mesh"
	"github.com/fingerpost/fingerpost/routetable"
)

// Mesh is the router as Rembus sees it. Its listeners are among the others, by their scheme.
type Mesh struct {
	EID            string            `yaml:"eid"`            // marks commands that this router has seen: auto (empty), or a number from 2^32 on
	Policy         string            `yaml:"policy"`         // how one of several exposers is chosen: first_up (empty), round_robin, less_busy
	Admins         []string          `yaml:"admins"`         // names that may give privileged commands; without it boss, [] nobody
	Tenants        map[string]string `yaml:"tenants"`        // pins by tenant, "." for names without one: with it a name may be registered
	Keys           string            `yaml:"keys"`           // directory of public keys and secrets; empty: mesh/keys in the state directory, or in memory
	Server         bool              `yaml:"server"`         // nothing is relayed between components and routers: they reach what is here by other wires, and that reaches them
	Authenticated  bool              `yaml:"authenticated"`  // nobody is taken who has not proven a name
	Overwrite      bool              `yaml:"overwrite"`      // a second connection of a name ends the first; else it is refused
	AllowShutdown  bool              `yaml:"allowShutdown"`  // shutdown ends the router; else the listeners of Rembus alone
	AckTimeout     Duration          `yaml:"ackTimeout"`     // for an ack of a publish; 0 is 2 s
	SendRetries    int               `yaml:"sendRetries"`    // how often one is sent again; 0 is 10, -1 never
	RequestTimeout Duration          `yaml:"requestTimeout"` // for the answer of a method; 0 is 20 s
	MaxMessage     Size              `yaml:"maxMessage"`     // of a message; 0 is 16 MiB less 16 KiB, which is the most
	Retention      Duration          `yaml:"retention"`      // how long publishes are kept for components that come later; 0 is 24 h, negative not at all
	RetentionBytes Size              `yaml:"retentionBytes"` // and how many bytes of them at most; 0 is 256 MiB; 16 MiB without a state directory
	HTTPSubscribe  bool              `yaml:"httpSubscribe"`  // anybody may say by HTTP what a component subscribes to and exposes
	Peers          []MeshPeer        `yaml:"peers"`          // routers that this one connects to
}

// MeshPeer is another router of the mesh.
type MeshPeer struct {
	URL        string   `yaml:"url"`        // ws://HOST:PORT, wss://, tcp:// or tls://
	As         string   `yaml:"as"`         // the name that is said there; empty: this router's
	Failovers  []string `yaml:"failovers"`  // tried in turn while the first is away
	KeyFile    string   `yaml:"keyFile"`    // private key that proves the name, PEM; relative to the file that names it
	SecretFile string   `yaml:"secretFile"` // or a secret: its first line
	CA         string   `yaml:"ca"`         // of wss and tls: who signs the peer's certificate; empty: the system's authorities
}

var policies = []string{"", "first_up", "round_robin", "less_busy"}

// unless says for which keys 0 is no value, since it would be what is taken without the key, and what to write instead.
var unless = []struct{ key, write string }{
	{"ackTimeout", "1ms is short"}, {"requestTimeout", "1ms is short"}, {"sendRetries", "-1 is never"}, {"maxMessage", "1KiB is the least"},
	{"retention", "-1s is not at all"}, {"retentionBytes", "4MiB is the least"},
}

// check says what is wrong, and under which key. written tells whether a key is there.
func (m *Mesh) check(written func(key string) bool) (key string, err error) {
	zero := map[string]bool{
		"ackTimeout": m.AckTimeout == 0, "requestTimeout": m.RequestTimeout == 0, "sendRetries": m.SendRetries == 0, "maxMessage": m.MaxMessage == 0,
		"retention": m.Retention == 0, "retentionBytes": m.RetentionBytes == 0,
	}
	for _, u := range unless {
		if zero[u.key] && written("mesh."+u.key) {
			return "." + u.key, fmt.Errorf("it cannot be 0: %s", u.write)
		}
	}
	if key, err := m.checkValues(); err != nil {
		return key, err
	}
	if key, err := m.checkPeople(); err != nil {
		return key, err
	}
	return m.checkPeers()
}

func (m *Mesh) checkValues() (key string, err error) {
	_, err = m.mark()
	switch {
	case err != nil:
		return ".eid", err
	case !slices.Contains(policies, m.Policy):
		return ".policy", fmt.Errorf("no policy %q: there are %s", m.Policy, strings.Join(policies[1:], ", "))
	case m.AckTimeout < 0:
		return ".ackTimeout", errors.New("it cannot be negative")
	case m.RequestTimeout < 0:
		return ".requestTimeout", errors.New("it cannot be negative")
	case m.MaxMessage != 0 && m.MaxMessage < 1<<10 || m.MaxMessage > 16<<20:
		return ".maxMessage", fmt.Errorf("%d is out of range: 1KiB to 16MiB", m.MaxMessage)
	case m.RetentionBytes != 0 && m.RetentionBytes < 4<<20 || m.RetentionBytes > 1<<40:
		return ".retentionBytes", fmt.Errorf("%d is out of range: 4MiB to 1024GiB", m.RetentionBytes)
	case m.SendRetries < -1 || m.SendRetries > 1000:
		return ".sendRetries", fmt.Errorf("%d is out of range: -1 to 1000", m.SendRetries)
	}
	return "", nil
}

// checkPeople looks at admins and tenants.
func (m *Mesh) checkPeople() (key string, err error) {
	for i, name := range m.Admins {
		err := mesh.CheckName(name)
		if err == nil && slices.Contains(m.Admins[:i], name) {
			err = fmt.Errorf("%q is there already", name)
		}
		if err != nil {
			return fmt.Sprintf(".admins[%d]", i), err
		}
	}
	for _, tenant := range slices.Sorted(maps.Keys(m.Tenants)) {
		switch {
		case tenant != "." && (tenant == "" || tenant[0] == '.' || mesh.CheckName("x."+tenant) != nil):
			return ".tenants", fmt.Errorf("%q is no tenant: write what follows the first dot of its names, or \".\" for those without", tenant)
		case m.Tenants[tenant] == "":
			return ".tenants." + tenant, errors.New("the pin is empty: with it anybody could register a name")
		}
	}
	return "", nil
}

func (m *Mesh) checkPeers() (key string, err error) {
	links := map[string]bool{}
	for i := range m.Peers {
		p := &m.Peers[i]
		key, err := p.check()
		if url, _ := mesh.CheckPeer(p.URL); err == nil && links[p.As+" "+url] {
			key, err = ".url", fmt.Errorf("%s is there already by the same name", p.URL)
		} else {
			links[p.As+" "+url] = true
		}
		if err != nil {
			return fmt.Sprintf(".peers[%d]%s", i, key), err
		}
	}
	return "", nil
}

func (p *MeshPeer) check() (key string, err error) {
	url, err := mesh.CheckPeer(p.URL)
	if err != nil {
		return ".url", err
	}
	urls := []string{url}
	for i, u := range p.Failovers {
		url, err := mesh.CheckPeer(u)
		if err == nil && slices.Contains(urls, url) {
			err = fmt.Errorf("%s is there already", u)
		}
		if err != nil {
			return fmt.Sprintf(".failovers[%d]", i), err
		}
		urls = append(urls, url)
	}
	secure := func(url string) bool { return strings.HasPrefix(url, "wss:") || strings.HasPrefix(url, "tls:") }
	switch {
	case p.As != "" && mesh.CheckName(p.As) != nil:
		return ".as", mesh.CheckName(p.As)
	case p.KeyFile != "" && p.SecretFile != "":
		return ".secretFile", errors.New("keyFile and secretFile: one of them")
	case p.CA != "" && !slices.ContainsFunc(urls, secure):
		return ".ca", errors.New("it is for wss and tls")
	}
	return "", nil
}

// mark reads the eid; 0 is auto.
func (m *Mesh) mark() (uint64, error) {
	if m.EID == "" || m.EID == "auto" {
		return 0, nil
	}
	n, err := strconv.ParseUint(m.EID, 0, 64)
	if err != nil || n < 1<<32 {
		return 0, fmt.Errorf("eid %q: write auto, or a number from 4294967296 to 18446744073709551615", m.EID)
	}
	return n, nil
}

// files are the names of files in the configuration.
func (m *Mesh) files() []*string {
	names := []*string{&m.Keys}
	for i := range m.Peers {
		p := &m.Peers[i]
		names = append(names, &p.KeyFile, &p.SecretFile, &p.CA)
	}
	return names
}

// options reads the files of a peer. key is that of one that cannot be read.
func (p *MeshPeer) options(name string) (o mesh.PeerOptions, key string, err error) {
	o = mesh.PeerOptions{URL: p.URL, As: cmp.Or(p.As, name), Failovers: p.Failovers}
	if p.CA != "" {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		if o.TLS.RootCAs, err = readAuthorities(p.CA); err != nil {
			return o, ".ca", err
		}
	}
	if p.SecretFile != "" {
		o.Secret, err = readPassword(p.SecretFile)
		return o, ".secretFile", err
	}
	if p.KeyFile != "" {
		o.Key, err = mesh.ReadKey(p.KeyFile)
	}
	return o, ".keyFile", err
}

// checkListeners holds the mesh to the listeners.
func (c *Config) checkListeners() (key string, err error) {
	listens := slices.ContainsFunc(c.Listeners, func(l Listener) bool { return isRembus(l.URL) })
	if c.Mesh.HTTPSubscribe && !(listens && c.HTTP.on()) {
		return ".httpSubscribe", errors.New("it needs http.listen and a listener of Rembus")
	}
	for i, p := range c.Mesh.Peers {
		url, _ := mesh.CheckPeer(p.URL)
		for _, l := range c.Listeners {
			if own, err := mesh.CheckPeer(strings.TrimPrefix(l.URL, "rembus+")); err == nil && isRembus(l.URL) && own == url {
				return fmt.Sprintf(".peers[%d].url", i), fmt.Errorf("%s is this router", p.URL)
			}
		}
	}
	return "", nil
}

// checkMesh reads the files of the mesh.
func (c *Config) checkMesh() error {
	if info, err := os.Stat(c.Mesh.Keys); c.Mesh.Keys != "" && err == nil && !info.IsDir() {
		return c.at("mesh.keys", fmt.Errorf("%s is no directory", c.Mesh.Keys))
	}
	for i := range c.Mesh.Peers {
		if _, key, err := c.Mesh.Peers[i].options(""); err != nil {
			return c.at(fmt.Sprintf("mesh.peers[%d]%s", i, key), err)
		}
	}
	return nil
}

// joinMesh connects to the routers that are configured.
func (a *App) joinMesh(name string) error {
	for i := range a.config.Mesh.Peers {
		o, key, err := a.config.Mesh.Peers[i].options(name)
		if err == nil {
			key, err = "", a.mesh.Connect(o)
		}
		if err != nil {
			return &ConfigError{a.config.at(fmt.Sprintf("mesh.peers[%d]%s", i, key), err)}
		}
	}
	return nil
}

// isRembus tells whether a listener speaks Rembus.
func isRembus(url string) bool { return strings.HasPrefix(url, "rembus+") }

// startMesh makes the mesh of the node, whose private topics are a table of their own.
func (a *App) startMesh(core *admin.Core, name string) (err error) {
	c := &a.config.Mesh
	keys, acks, rest := c.Keys, "", ""
	eid, err := c.mark()
	if err != nil {
		return err
	}
	if a.config.State == "" {
		a.grants = routetable.New()
	} else {
		dir := filepath.Join(a.config.State, "mesh")
		if a.grants, err = routetable.Open(filepath.Join(dir, "grants"), a.log); err != nil {
			return err
		}
		if keys == "" {
			keys = filepath.Join(dir, "keys")
		}
		acks, rest = filepath.Join(dir, "acks"), filepath.Join(dir, "rest")
	}
	o := mesh.Options{
		Name: name, Version: Version, EID: eid, Policy: c.Policy, Tenants: c.Tenants, Server: c.Server, Authenticated: c.Authenticated, Overwrite: c.Overwrite, AllowShutdown: c.AllowShutdown,
		Shutdown: endProcess, Keys: keys, Acks: acks, Rest: rest, Grants: a.grants, AckTimeout: time.Duration(c.AckTimeout), SendRetries: c.SendRetries,
		MaxMessage: int(c.MaxMessage), Retention: time.Duration(c.Retention), RetentionBytes: int(c.RetentionBytes),
		RequestTimeout: time.Duration(c.RequestTimeout), Connections: a.config.Limits.Connections, Origins: a.config.HTTP.Origins, Log: a.log,
	}
	o.Admins, o.People = c.Admins, func() ([]string, map[string]string, error) {
		now, err := a.load()
		return now.Mesh.Admins, now.Mesh.Tenants, err
	}
	if h, ok := a.log.Handler().(interface{ Debug(on bool) }); ok {
		o.Debug = h.Debug
	}
	a.mesh = mesh.New(a.node, core, o)
	return nil
}

// endProcess ends the program as a SIGTERM does.
func endProcess() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		p.Signal(syscall.SIGTERM)
	}
}

// listenMesh opens a listener of Rembus.
func (a *App) listenMesh(url, address string) (line string, err error) {
	scheme, _, _ := strings.Cut(url, "://")
	bound, err := a.mesh.Listen(mesh.ListenOptions{
		Address: address, TLS: a.secret.listenerTLS(url), WebSocket: strings.HasPrefix(scheme, "rembus+ws"),
	})
	if err != nil {
		return "", err
	}
	return "ready " + scheme + "://" + bound.String(), nil
}

// gateway is Rembus over HTTP, nil where no listener speaks Rembus.
func (a *App) gateway() http.Handler {
	if !slices.ContainsFunc(a.config.Listeners, func(l Listener) bool { return isRembus(l.URL) }) {
		return nil
	}
	return a.mesh.Gateway(a.config.Mesh.HTTPSubscribe)
}

// stopMesh ends the mesh, and closes its table.
func (a *App) stopMesh(ctx context.Context) {
	if a.mesh != nil {
		a.mesh.Stop(ctx)
	}
	if a.grants == nil {
		return
	}
	if err := a.grants.Close(); err != nil {
		a.log.Error("the table of private topics could not be closed", "error", err)
	}
}
