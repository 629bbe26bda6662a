package app

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/events"
	"github.com/fingerpost/fingerpost/internal/web"
)

// Events is the event router: components at /router/manager of the HTTP listener.
type Events struct {
	Window      Duration       `yaml:"window"`      // how long events are kept for replay; 0 is 30 s
	WindowBytes Size           `yaml:"windowBytes"` // and how many bytes of them at most; 0 is 256 MiB
	Soft        int            `yaml:"soft"`        // events that wait for a component from which it is slow; 0 is 800, or hard where that is less
	Hard        int            `yaml:"hard"`        // at which it is disconnected; 0 is 5000
	Stall       Duration       `yaml:"stall"`       // a send that takes longer is shown; 0 is 5 s
	HealthEvery Duration       `yaml:"healthEvery"` // between health checks; 0 is 10 s
	HealthLimit int            `yaml:"healthLimit"` // checks without an answer before a component is in ERROR; 0 is 3
	InfoEvery   Duration       `yaml:"infoEvery"`   // between log lines that count the window; 0 is a minute
	Topology    *bool          `yaml:"topology"`    // /topology is served; nil: unless ENVIRONMENT is production
	Tokens      string         `yaml:"tokens"`      // file of tokens; relative to the file that names it; empty: this machine only, and no token
	Restart     []EventRestart `yaml:"restart"`
	Links       []EventLink    `yaml:"links"`
}

// EventLink is another router that is dialled.
type EventLink struct {
	URL       string `yaml:"url"`       // ws://HOST:PORT/router/link
	TokenFile string `yaml:"tokenFile"` // its first line is the token; relative to the file that names it; empty: none
}

// EventRestart is how a component is started again.
type EventRestart struct {
	Name    string   `yaml:"name"`
	Command []string `yaml:"command"` // a program and its arguments; no shell is asked
}

const (
	minEventTime = Duration(10 * time.Millisecond) // of windows and intervals
	defaultHard  = 5000
)

// check says what is wrong, and under which key.
func (e *Events) check() (key string, err error) {
	for _, d := range []struct {
		key string
		of  Duration
	}{{".window", e.Window}, {".stall", e.Stall}, {".healthEvery", e.HealthEvery}, {".infoEvery", e.InfoEvery}} {
		if d.of < 0 || d.of > 0 && d.of < minEventTime {
			return d.key, fmt.Errorf("%v is out of range: at least %v, or 0 for the default", time.Duration(d.of), time.Duration(minEventTime))
		}
	}
	switch {
	case e.Soft < 0 || e.Soft > 1<<24:
		return ".soft", fmt.Errorf("%d is out of range: up to %d", e.Soft, 1<<24)
	case e.Hard < 0 || e.Hard > 1<<24:
		return ".hard", fmt.Errorf("%d is out of range: up to %d", e.Hard, 1<<24)
	case e.Soft > cmp.Or(e.Hard, defaultHard):
		return ".soft", fmt.Errorf("%d is above the hard limit, %d: nobody would be slow before it is sent away", e.Soft, cmp.Or(e.Hard, defaultHard))
	case e.HealthLimit < 0 || e.HealthLimit > 1000:
		return ".healthLimit", fmt.Errorf("%d is out of range: up to 1000", e.HealthLimit)
	case e.WindowBytes != 0 && e.WindowBytes < 1<<20 || e.WindowBytes > 1<<40:
		return ".windowBytes", fmt.Errorf("%d is out of range: 1MiB to 1024GiB", e.WindowBytes)
	}
	if len(e.Links) > 0 && e.Window != 0 && time.Duration(e.Window) < events.LeastLinkWindow {
		return ".window", fmt.Errorf("%v is too short for links to other routers: at least %v, since one that breaks may be away for half of that, and what comes meanwhile has to be kept",
			time.Duration(e.Window), events.LeastLinkWindow)
	}
	for i, r := range e.Restart {
		if r.Name == "" || len(r.Command) == 0 || r.Command[0] == "" {
			return fmt.Sprintf(".restart[%d]", i), errors.New("write {name: NAME, command: [PROGRAM, ARGUMENT…]}")
		}
	}
	for i, l := range e.Links {
		if !isLinkURL(l.URL) {
			return fmt.Sprintf(".links[%d].url", i), errors.New("write ws://HOST:PORT/router/link, or wss://")
		}
	}
	return "", nil
}

func isLinkURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Hostname() == "" || u.User != nil {
		return false
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16)
	return err == nil && port != 0
}

// Environment puts what the environment says over the events of the file: FINGERPOST_EVENTS_… before the names that EDRI has for the same.
// What is empty is not set.
func (c *Config) Environment(lookup func(string) (string, bool)) error {
	e := &c.Events
	for _, v := range []struct {
		ours, edri string
		set        func(string) error
	}{
		{"WINDOW", "EDRI_CACHE_TIMEOUT", e.Window.set},
		{"WINDOW_BYTES", "", e.WindowBytes.set},
		{"INFO_EVERY", "EDRI_CACHE_INFO_MESSAGE", e.InfoEvery.set},
		{"SOFT", "EDRI_ROUTER_OUTBOUND_QUEUE_SOFT_LIMIT", setInt(&e.Soft)},
		{"HARD", "EDRI_ROUTER_OUTBOUND_QUEUE_HARD_LIMIT", setInt(&e.Hard)},
		{"STALL", "EDRI_ROUTER_OUTBOUND_STALL_SECONDS", e.Stall.set},
		{"HEALTH_EVERY", "EDRI_HEALTH_CHECK_TIMEOUT", e.HealthEvery.set},
		{"HEALTH_LIMIT", "EDRI_HEALTH_CHECK_FAILURE_LIMIT", setInt(&e.HealthLimit)},
		{"TOPOLOGY", "EDRI_API_ENABLE_TOPOLOGY", setBool(&e.Topology)},
	} {
		name := "FINGERPOST_EVENTS_" + v.ours
		text, _ := lookup(name)
		if text == "" && v.edri != "" {
			name = v.edri
			text, _ = lookup(name)
		}
		if text == "" {
			continue
		}
		if err := v.set(text); err != nil {
			return fmt.Errorf("environment %s: %w", name, err)
		}
		if key, err := e.check(); err != nil && strings.EqualFold(key, "."+strings.ReplaceAll(v.ours, "_", "")) {
			return fmt.Errorf("environment %s: %w", name, err)
		}
	}
	host, _ := lookup("EDRI_SWITCH_HOST")
	port, _ := lookup("EDRI_SWITCH_PORT")
	if host != "" || port != "" {
		l := EventLink{URL: "ws://" + net.JoinHostPort(cmp.Or(host, "localhost"), cmp.Or(port, "8899")) + "/router/link"}
		if !isLinkURL(l.URL) {
			return fmt.Errorf("environment EDRI_SWITCH_HOST, EDRI_SWITCH_PORT: %q, %q is no host and port of a router", host, port)
		}
		e.Links = append(e.Links, l)
	}
	if text, _ := lookup("ENVIRONMENT"); e.Topology == nil && strings.EqualFold(text, "production") {
		e.Topology = new(bool)
	}
	return nil
}

// set reads a duration as the environment has it: 30s, or a number of seconds.
func (d *Duration) set(text string) error {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= 0 && seconds < 1e9 {
		*d = Duration(seconds * float64(time.Second))
		return nil
	}
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a duration: write 30s, or a number of seconds", text)
	}
	*d = Duration(v)
	return nil
}

func (s *Size) set(text string) error {
	if s.UnmarshalYAML(&yaml.Node{Value: text}) != nil {
		return fmt.Errorf("%q is not a size: write 256MiB or a number of bytes", text)
	}
	return nil
}

func setInt(n *int) func(string) error {
	return func(text string) (err error) {
		if *n, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		return nil
	}
}

func setBool(b **bool) func(string) error {
	return func(text string) error {
		v := strings.EqualFold(text, "true") || text == "1"
		if !v && !strings.EqualFold(text, "false") && text != "0" {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		*b = &v
		return nil
	}
}

// token is an entry of the file of tokens. Lists are patterns, as in a table; what is left out is everything.
type token struct {
	Token     string    `yaml:"token"`
	Name      string    `yaml:"name"`      // who it is, for the log
	Names     *[]string `yaml:"names"`     // of components that it may be
	Subscribe *[]string `yaml:"subscribe"` // event:req/TYPE, event:res/TYPE
	Send      *[]string `yaml:"send"`
	Shareable *[]string `yaml:"shareable"` // event:req/TYPE
	Link      bool      `yaml:"link"`      // it may be another router

	account *events.Account
	sum     [sha256.Size]byte
}

// readTokens reads the file of tokens.
func readTokens(file string) ([]token, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	var list []token
	err = yaml.Unmarshal(text, &doc)
	if err == nil && len(doc.Content) != 1 {
		err = errors.New("no list of tokens in it: [{token: …, name: …}]") // without tokens this whole machine may come
	}
	if err == nil {
		if err = checkKeys(doc.Content[0], reflect.TypeOf(list), "tokens"); err == nil {
			err = doc.Decode(&list)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i := range list {
		if err := list[i].prepare(); err != nil {
			return nil, fmt.Errorf("%s: token %d: %w", file, i+1, err)
		}
	}
	return list, nil
}

func (t *token) prepare() error {
	if len(t.Token) < 8 {
		return errors.New("token: at least 8 bytes are wanted")
	}
	t.sum = sha256.Sum256([]byte(t.Token))
	t.account = &events.Account{Name: t.Name, Link: t.Link}
	for _, list := range []struct {
		patterns *[]string
		to       **admin.Grants
	}{{t.Names, &t.account.Names}, {t.Subscribe, &t.account.Subscribe}, {t.Send, &t.account.Send}, {t.Shareable, &t.account.Shareable}} {
		if list.patterns == nil {
			continue
		}
		var err error
		if *list.to, err = admin.NewGrants(*list.patterns); err != nil {
			return err
		}
	}
	return nil
}

// authorizer tells who a request is: by its token where there are tokens.
func authorizer(tokens []token) func(*http.Request) (*events.Account, error) {
	return func(r *http.Request) (*events.Account, error) {
		given, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !isBearer {
			given = r.URL.Query().Get("token")
		}
		sum := sha256.Sum256([]byte(given))
		var found *events.Account
		for i := range tokens {
			if subtle.ConstantTimeCompare(sum[:], tokens[i].sum[:]) == 1 {
				found = tokens[i].account
			}
		}
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		switch {
		case found != nil:
			return found, nil
		case len(tokens) == 0 && isLoopbackHost(host):
			return &events.Account{Link: true}, nil
		}
		return nil, errors.New("a token is wanted: Authorization: Bearer TOKEN, or ?token=TOKEN")
	}
}

// eventLinks reads the tokens of the links to other routers.
func (c *Config) eventLinks() (links []events.Link, err error) {
	for i, l := range c.Events.Links {
		token := ""
		if l.TokenFile != "" {
			if token, err = readPassword(l.TokenFile); err != nil {
				return nil, c.at(fmt.Sprintf("events.links[%d].tokenFile", i), err)
			}
		}
		links = append(links, events.Link{URL: l.URL, Token: token})
	}
	return links, nil
}

// startEvents makes the event router. Its components come by the HTTP listener.
func (a *App) startEvents(core *admin.Core, id string) error {
	c := &a.config.Events
	tokens, err := readTokens(c.Tokens)
	if err != nil {
		return &ConfigError{a.config.at("events.tokens", err)}
	}
	links, err := a.config.eventLinks()
	if err != nil {
		return &ConfigError{err}
	}
	restart := map[string][]string{}
	for _, r := range c.Restart {
		restart[r.Name] = r.Command
	}
	a.events = events.New(core, events.Options{
		ID: id, Window: time.Duration(c.Window), WindowBytes: int(c.WindowBytes), Soft: c.Soft, Hard: c.Hard, Stall: time.Duration(c.Stall),
		HealthEvery: time.Duration(c.HealthEvery), HealthLimit: c.HealthLimit, InfoEvery: time.Duration(c.InfoEvery),
		Restart: restart, Origins: a.config.HTTP.Origins, Authorize: authorizer(tokens), Log: a.log,
	})
	a.events.Attach(a.node)
	for _, l := range links {
		a.events.Dial(l)
	}
	return nil
}

// shown is the configuration with pointers followed, to be compared.
func (e Events) shown() any {
	topology := "unset"
	if e.Topology != nil {
		topology = strconv.FormatBool(*e.Topology)
	}
	e.Topology = nil
	return []any{e, topology}
}

// topology is what the pages of the HTTP listener look at.
func (a *App) topology() *web.Topology {
	shown := a.config.Events.Topology
	t := &web.Topology{
		Name: a.node.Name(), ID: a.node.ID(), Version: Version, Table: a.table, Node: a.node, Events: a.events, Relay: a.relay, Mesh: a.mesh, Hidden: shown != nil && !*shown,
	}
	if a.components != nil {
		t.Broker = a.components.Broker
	}
	return t
}
