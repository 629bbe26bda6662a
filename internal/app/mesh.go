package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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
	Admins         []string          `yaml:"admins"`         // names that may give privileged commands; empty: boss
	Tenants        map[string]string `yaml:"tenants"`        // pins by tenant, "." for names without one: with it a name may be registered
	Keys           string            `yaml:"keys"`           // directory of public keys and secrets; empty: mesh/keys in the state directory, or in memory
	Server         bool              `yaml:"server"`         // nothing is relayed between components and routers: they reach what is here by other wires, and that reaches them
	Authenticated  bool              `yaml:"authenticated"`  // nobody is taken who has not proven a name
	Overwrite      bool              `yaml:"overwrite"`      // a second connection of a name ends the first; else it is refused
	AllowShutdown  bool              `yaml:"allowShutdown"`  // shutdown ends the router; else the listeners of Rembus alone
	AckTimeout     Duration          `yaml:"ackTimeout"`     // for an ack of a publish; 0 is 2 s
	SendRetries    int               `yaml:"sendRetries"`    // how often one is sent again; 0 is 10, -1 never
	RequestTimeout Duration          `yaml:"requestTimeout"` // for the answer of a method; 0 is 20 s
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

// check says what is wrong, and under which key.
func (m *Mesh) check() (key string, err error) {
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
	case m.SendRetries < -1 || m.SendRetries > 1000:
		return ".sendRetries", fmt.Errorf("%d is out of range: -1 to 1000", m.SendRetries)
	}
	for i := range m.Peers {
		p := &m.Peers[i]
		switch err := mesh.CheckPeer(p.URL, p.Failovers); {
		case err != nil:
			return fmt.Sprintf(".peers[%d].url", i), err
		case p.KeyFile != "" && p.SecretFile != "":
			return fmt.Sprintf(".peers[%d].secretFile", i), errors.New("keyFile and secretFile: one of them")
		}
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

// options reads the files of a peer.
func (p *MeshPeer) options(name string) (o mesh.PeerOptions, err error) {
	o = mesh.PeerOptions{URL: p.URL, As: cmp.Or(p.As, name), Failovers: p.Failovers}
	if p.CA != "" {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		if o.TLS.RootCAs, err = readAuthorities(p.CA); err != nil {
			return o, err
		}
	}
	if p.SecretFile != "" {
		o.Secret, err = readPassword(p.SecretFile)
	}
	if p.KeyFile != "" {
		o.Key, err = mesh.ReadKey(p.KeyFile)
	}
	return o, err
}

// joinMesh connects to the routers that are configured.
func (a *App) joinMesh(name string) error {
	for i := range a.config.Mesh.Peers {
		o, err := a.config.Mesh.Peers[i].options(name)
		if err == nil {
			err = a.mesh.Connect(o)
		}
		if err != nil {
			return &ConfigError{a.config.at(fmt.Sprintf("mesh.peers[%d]", i), err)}
		}
	}
	return nil
}

// isRembus tells whether a listener speaks Rembus.
func isRembus(url string) bool { return strings.HasPrefix(url, "rembus+") }

// startMesh makes the mesh of the node, whose private topics are a table of their own.
func (a *App) startMesh(core *admin.Core, name string) (err error) {
	c := &a.config.Mesh
	keys, acks := c.Keys, ""
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
		acks = filepath.Join(dir, "acks")
	}
	o := mesh.Options{
		Name: name, Version: Version, EID: eid, Policy: c.Policy, Tenants: c.Tenants, Server: c.Server, Authenticated: c.Authenticated, Overwrite: c.Overwrite, AllowShutdown: c.AllowShutdown,
		Shutdown: endProcess, Keys: keys, Acks: acks, Grants: a.grants, AckTimeout: time.Duration(c.AckTimeout), SendRetries: c.SendRetries,
		RequestTimeout: time.Duration(c.RequestTimeout), Connections: a.config.Limits.Connections, Origins: a.config.HTTP.Origins, Log: a.log,
	}
	if len(c.Admins) > 0 {
		o.Admins = c.Admins
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
