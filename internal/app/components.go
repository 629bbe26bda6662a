package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/components"
	"github.com/fingerpost/fingerpost/internal/components/proto"
	"github.com/fingerpost/fingerpost/internal/nats"
)

// Components is the broker of components.
type Components struct {
	File          string   `yaml:"file"`    // components.yaml; relative to the file that names it; empty: there is no broker
	GRPC          string   `yaml:"grpc"`    // HOST:PORT where components connect; empty or "off": nowhere
	TLS           TLS      `yaml:"tls"`     // of grpc; without it the connections of components are not protected
	Genesis       string   `yaml:"genesis"` // HOST:PORT of the HTTP requests that become events; empty or "off": nowhere
	GenesisTLS    TLS      `yaml:"genesisTLS"`
	TTL           Duration `yaml:"ttl"`           // of a request; 0 is 60 s
	ExpiredStatus int      `yaml:"expiredStatus"` // of a request that is not answered by then; 0 is 503
	MaxEvent      Size     `yaml:"maxEvent"`      // of an event's content; 0 is 5 MiB
	Queue         int      `yaml:"queue"`         // events that wait for one replica; 0 is 1000
	Subjects      string   `yaml:"subjects"`      // of NATS: "jetstream", or empty, keeps events until a replica has them; "current" is how today's brokers do it, "current-D3" those of v0.6 and v0.7

	JWKS        string      `yaml:"jwks"` // file of keys that sign the tokens of components
	TokenReview TokenReview `yaml:"tokenReview"`
}

// TokenReview is a Kubernetes API that judges the tokens of service accounts.
type TokenReview struct {
	URL       string `yaml:"url"`       // https://HOST:PORT, or "in-cluster"; empty: none is asked
	CA        string `yaml:"ca"`        // who signs its certificate; empty: the system's authorities, in a cluster the cluster's
	TokenFile string `yaml:"tokenFile"` // the router's own token; read again for each question
	Namespace string `yaml:"namespace"` // of the accounts of components; empty: any
}

// check says what is wrong, and under which key.
func (c *Components) check() (key string, err error) {
	for _, l := range []struct{ key, at string }{{".grpc", c.GRPC}, {".genesis", c.Genesis}} {
		if !isOn(l.at) {
			continue
		}
		if _, _, err := net.SplitHostPort(l.at); err != nil {
			return l.key, fmt.Errorf("%q: write HOST:PORT, or off", l.at)
		}
		if c.File == "" {
			return l.key, errors.New("it needs components.file")
		}
	}
	for _, l := range []struct {
		key string
		tls TLS
	}{{".tls", c.TLS}, {".genesisTLS", c.GenesisTLS}} {
		if err := l.tls.check(l.key[1:]); err != nil {
			return l.key, err
		}
	}
	switch {
	case c.ExpiredStatus != 0 && (c.ExpiredStatus < 400 || c.ExpiredStatus > 599):
		return ".expiredStatus", fmt.Errorf("%d is no status of a failure: 400 to 599", c.ExpiredStatus)
	case c.TTL < 0:
		return ".ttl", errors.New("it cannot be negative")
	case c.MaxEvent > 64<<20:
		return ".maxEvent", fmt.Errorf("%d is out of range: up to 64MiB", c.MaxEvent)
	case c.Subjects != "" && c.Subjects != "jetstream" && c.Subjects != "current" && c.Subjects != "current-D3":
		return ".subjects", fmt.Errorf("%q: write jetstream, current or current-D3", c.Subjects)
	case c.Queue < 0 || c.Queue > 1<<20:
		return ".queue", fmt.Errorf("%d is out of range: up to 1048576", c.Queue)
	}
	if u := c.TokenReview.URL; u != "" && u != "in-cluster" {
		if p, err := url.Parse(u); err != nil || p.Host == "" || p.Scheme != "https" && p.Scheme != "http" {
			return ".tokenReview.url", fmt.Errorf("%q: write https://HOST:PORT, or in-cluster", u)
		}
	}
	return "", nil
}

func isOn(listen string) bool { return listen != "" && listen != "off" }

// files are those that the configuration names.
func (c *Components) files() []*string {
	return []*string{
		&c.File, &c.TLS.Cert, &c.TLS.Key, &c.TLS.ClientCA, &c.GenesisTLS.Cert, &c.GenesisTLS.Key, &c.GenesisTLS.ClientCA,
		&c.JWKS, &c.TokenReview.CA, &c.TokenReview.TokenFile,
	}
}

// listenersTLS are the listeners that have certificates, under their keys.
func (c *Components) listenersTLS() map[string]*Listener {
	all := map[string]*Listener{}
	if isOn(c.GRPC) && c.TLS != (TLS{}) {
		all["components.tls"] = &Listener{URL: c.grpcURL(), TLS: c.TLS}
	}
	if isOn(c.Genesis) && c.GenesisTLS != (TLS{}) {
		all["components.genesisTLS"] = &Listener{URL: c.genesisURL(), TLS: c.GenesisTLS}
	}
	return all
}

// What tells these listeners from others that have certificates.
const (
	grpcScheme  = "grpcs://"
	genesisPath = "/genesis"
)

func (c *Components) grpcURL() string    { return grpcScheme + c.GRPC }
func (c *Components) genesisURL() string { return "https://" + c.Genesis + genesisPath }

// broker is the broker of components with its listeners.
type broker struct {
	*components.Broker
	grpc    *components.Server
	genesis *components.Gateway
	nats    *nats.Conn // nil: there is none
}

// options reads the files of the configuration; key is the one that names what is wrong.
func (c *Components) options() (o components.Options, key string, err error) {
	o = components.Options{
		MaxEvent: int(c.MaxEvent), TTL: time.Duration(c.TTL), ExpiredStatus: c.ExpiredStatus, Queue: c.Queue, Hash: Version,
		Current: strings.HasPrefix(c.Subjects, "current"),
	}
	if c.Subjects == "current-D3" {
		o.Between = proto.D3
	}
	if o.Objects, err = components.ReadObjects(c.File); err != nil {
		return o, ".file", err
	}
	if c.JWKS != "" {
		keys, err := components.ReadJWKS(c.JWKS)
		if err != nil {
			return o, ".jwks", err
		}
		o.Verifiers = append(o.Verifiers, keys)
	}
	if r := c.TokenReview; r.URL != "" {
		review, err := components.NewTokenReview(components.TokenReviewOptions{URL: r.URL, CA: r.CA, TokenFile: r.TokenFile, Namespace: r.Namespace})
		if err != nil {
			return o, ".tokenReview", err
		}
		o.Verifiers = append(o.Verifiers, review)
	}
	return o, "", nil
}

// checkComponents reads what the configuration names for the broker.
func (c *Config) checkComponents() error {
	if c.Components.File == "" {
		return nil
	}
	if _, key, err := c.Components.options(); err != nil {
		return c.at("components"+key, err)
	}
	if _, key, err := c.NATS.options(); err != nil {
		return c.at("nats"+key, err)
	}
	return nil
}

// startComponents makes the broker, where there is one.
func (a *App) startComponents(core *admin.Core) error {
	c := &a.config.Components
	if c.File == "" {
		return nil
	}
	o, key, err := c.options()
	if err != nil {
		return &ConfigError{a.config.at("components"+key, err)}
	}
	o.Log = a.log
	if a.config.NATS.URL != "off" {
		if o.NATS, err = a.openNATS(); err != nil {
			return err
		}
	}
	b, err := components.New(a.node, core, o)
	if err != nil {
		if o.NATS != nil {
			o.NATS.Close()
		}
		return err
	}
	a.components = &broker{Broker: b, nats: o.NATS}
	return nil
}

// listenComponents opens the broker's listeners.
func (a *App) listenComponents() (lines []string, err error) {
	c, b := &a.config.Components, a.components
	if b == nil {
		return nil, nil
	}
	if b.nats != nil && b.nats.URL() != "" {
		lines = append(lines, "ready "+b.nats.URL())
	}
	if isOn(c.GRPC) {
		t, scheme := a.secret.listenerTLS(c.grpcURL()), "grpc"
		if t != nil {
			scheme = "grpcs"
		} else {
			a.log.Warn("components connect without TLS: their tokens can be read on the way", "listener", c.GRPC)
		}
		if b.grpc, err = b.Listen(c.GRPC, t); err != nil {
			return nil, a.notBound("components.grpc", scheme+"://"+c.GRPC, err)
		}
		lines = append(lines, "ready "+scheme+"://"+b.grpc.Addr().String())
		a.serve(scheme, b.grpc.Serve)
	}
	if isOn(c.Genesis) {
		t, scheme := a.secret.listenerTLS(c.genesisURL()), "http"
		if t != nil {
			scheme = "https"
		}
		if b.genesis, err = b.ListenHTTP(c.Genesis, t); err != nil {
			return nil, a.notBound("components.genesis", scheme+"://"+c.Genesis, err)
		}
		lines = append(lines, "ready genesis+"+scheme+"://"+b.genesis.Addr().String())
		a.serve("genesis", b.genesis.Serve)
	}
	return lines, nil
}

// serve runs a listener until it is closed.
func (a *App) serve(what string, f func() error) {
	a.running.Go(func() {
		if err := f(); err != nil {
			a.log.Error("a listener ended", "listener", what, "error", err)
		}
	})
}

// reloadComponents reads the broker's file again; use puts it in force.
func (a *App) reloadComponents(c *Config) (use func() error, err error) {
	if a.components == nil || c.Components.File == "" {
		return func() error { return nil }, nil
	}
	o, err := components.ReadObjects(c.Components.File)
	if err != nil {
		return nil, c.at("components.file", err)
	}
	return func() error { return a.components.Use(o) }, nil
}

// stopComponents lets requests be answered, and ends the broker.
func (a *App) stopComponents(ctx context.Context) {
	b := a.components
	if b == nil {
		return
	}
	if b.genesis != nil {
		b.genesis.Close(ctx)
	}
	b.Close()
	if b.grpc != nil {
		b.grpc.Close(ctx)
	}
	if b.nats != nil {
		b.nats.Close()
	}
}
