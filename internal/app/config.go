package app

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
)

// Config is the router's configuration. The yaml names are the keys of router.yaml.
type Config struct {
	Name          string     `yaml:"name"`
	State         string     `yaml:"state"` // directory that keeps the table; relative to the file that names it; empty is none
	Listeners     []Listener `yaml:"listeners"`
	HTTP          HTTP       `yaml:"http"`
	Tables        []string   `yaml:"tables"`        // relative to the file that names them
	AnonymousRole string     `yaml:"anonymousRole"` // for ANONYMOUS beyond loopback: none, viewer, operator, admin
	Limits        Limits     `yaml:"limits"`
	ShutdownGrace Duration   `yaml:"shutdownGrace"` // for what is in flight on SIGTERM; 0 is 10 s

	Users            string     `yaml:"users"` // file of those who may log in; relative to the file that names it; empty is nobody
	Relay            Relay      `yaml:"relay"`
	Mesh             Mesh       `yaml:"mesh"`
	Hops             []Hop      `yaml:"hops"`
	Events           Events     `yaml:"events"`
	Components       Components `yaml:"components"`
	NATS             NATS       `yaml:"nats"`
	TableCredentials bool       `yaml:"tableCredentials"` // users and passwords in the addresses of rows are used

	file  string            // that it was read from
	where map[string]pos    // of its keys, by path: listeners[0].tls.cert
	flags map[string]string // that stand for what the file says, by path
}

// pos is a place in a file.
type pos struct{ line, column int }

// Listener is one place where AMQP clients connect.
type Listener struct {
	URL                string   `yaml:"url"`  // amqp://HOST:PORT or amqps://…; ws:// or wss:// for AMQP over WebSocket; rembus+ws, +wss, +tcp or +tls for Rembus
	TLS                TLS      `yaml:"tls"`  // of amqps, wss, rembus+wss and rembus+tls
	SASL               []string `yaml:"sasl"` // empty: ANONYMOUS, with users SCRAM and PLAIN, with clientCA EXTERNAL
	AllowInsecurePlain bool     `yaml:"allowInsecurePlain"`
	Direct             bool     `yaml:"direct"` // an address that matches nothing and is an amqp URL is dialled
	Shared             bool     `yaml:"shared"` // receivers share a plain name where they ask for neither that nor copies
}

// HTTP is the HTTP listener; an empty Listen or "off" is none.
type HTTP struct {
	Listen  string   `yaml:"listen"`
	TLS     TLS      `yaml:"tls"`     // nothing in it: plain HTTP
	Origins []string `yaml:"origins"` // web pages that may connect to /amqp, to the relay and to ws listeners; see websocket.Gate
}

// Relay is the relay protocol, on the HTTP listener.
type Relay struct {
	Keys       string   `yaml:"keys"` // file of keys; relative to the file that names it; empty is no relay
	Busy       Duration `yaml:"busy"` // until an op that its destination does not take fails; 0 is 30 s
	MaxData    Size     `yaml:"maxData"`
	MaxMessage Size     `yaml:"maxMessage"`
}

// check says what is wrong, and under which key.
func (r *Relay) check() (key string, err error) {
	switch {
	case r.Busy < 0:
		return ".busy", errors.New("it cannot be negative")
	case r.MaxMessage > maxRelayMessage:
		return ".maxMessage", fmt.Errorf("%d is out of range: up to 256MiB", r.MaxMessage)
	case r.MaxData > maxRelayMessage || r.MaxMessage > 0 && r.MaxData > r.MaxMessage:
		return ".maxData", errors.New("no message can hold that much: see maxMessage")
	}
	return "", nil
}

const maxRelayMessage = 256 << 20

// Limits bound what the router holds. Zero is the default of each.
type Limits struct {
	MaxFrame        Size     `yaml:"maxFrame"`
	MaxMessage      Size     `yaml:"maxMessage"`
	LinkCredit      int      `yaml:"linkCredit"`
	SoftQueue       int      `yaml:"softQueue"`
	SoftQueueBytes  Size     `yaml:"softQueueBytes"`
	HardQueue       int      `yaml:"hardQueue"`
	HardQueueBytes  Size     `yaml:"hardQueueBytes"`
	DeliveryTimeout Duration `yaml:"deliveryTimeout"`

	Connections        int `yaml:"connections"`        // of clients
	ConnectionsPerHost int `yaml:"connectionsPerHost"` // of one address
	Sessions           int `yaml:"sessions"`           // of a connection
	Links              int `yaml:"links"`              // of a connection
}

// Duration is a time, written as 30s or 500ms.
type Duration time.Duration

// UnmarshalYAML reads a duration.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("%q is not a duration: write 30s or 500ms", n.Value)
	}
	*d = Duration(v)
	return nil
}

// Size is a number of bytes, written as 64KiB, 16MiB, 1GiB or a plain number.
type Size uint64

// maxSize is the largest size that is taken: 1 TiB.
const maxSize uint64 = 1 << 40

var sizePattern = regexp.MustCompile(`^([0-9]+)\s*(|B|KiB|MiB|GiB)$`)

// UnmarshalYAML reads a size.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	m := sizePattern.FindStringSubmatch(n.Value)
	if m == nil {
		return fmt.Errorf("%q is not a size: write 64KiB, 16MiB or a number of bytes", n.Value)
	}
	unit := uint64(1) << map[string]uint{"": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30}[m[2]]
	v, err := strconv.ParseUint(m[1], 10, 64)
	if err != nil || v > maxSize/unit {
		return fmt.Errorf("size %q is out of range: up to %dGiB", n.Value, maxSize>>30)
	}
	*s = Size(v * unit)
	return nil
}

// maxConfig is the largest configuration file that is read.
const maxConfig = 1 << 20

// ReadConfig reads router.yaml. Unknown keys are errors, with line and column.
func ReadConfig(file string) (Config, error) {
	var c Config
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return c, fmt.Errorf("%s: not a regular file", file) // to open a pipe may take for ever
	}
	f, err := os.Open(file)
	if err != nil {
		return c, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return c, err
	}
	if len(text) > maxConfig {
		return c, fmt.Errorf("%s: larger than %d bytes", file, maxConfig)
	}
	if c, err = parseConfig(text); err != nil {
		return c, fmt.Errorf("%s: %w", file, err)
	}
	c.file = file
	c.resolve(filepath.Dir(file))
	return c, nil
}

func parseConfig(text []byte) (Config, error) {
	var c Config
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		return c, err
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return c, errors.New("more than one document in the file")
	}
	if len(doc.Content) != 1 {
		return c, nil
	}
	if err := checkKeys(doc.Content[0], reflect.TypeOf(c), ""); err != nil {
		return c, err
	}
	if err := doc.Decode(&c); err != nil {
		return c, err
	}
	c.where = map[string]pos{}
	places(doc.Content[0], "", c.where)
	return c, nil
}

// Listen puts listeners on URLs, those of --listen, in the place of those of the file.
func (c *Config) Listen(urls []string) {
	c.Listeners = nil
	for _, u := range urls {
		c.Listeners = append(c.Listeners, Listener{URL: u})
	}
	c.given("listeners", "--listen")
}

// ListenHTTP puts the HTTP listener where --http says.
func (c *Config) ListenHTTP(address string) {
	c.HTTP.Listen = address
	c.given("http.listen", "--http")
}

// given notes that what is at a path, and below it, comes from a flag: what is wrong with it is said of that.
func (c *Config) given(path, flag string) {
	maps.DeleteFunc(c.where, func(at string, _ pos) bool { return strings.HasPrefix(at, path) })
	if c.flags == nil {
		c.flags = map[string]string{}
	}
	c.flags[path] = flag
}

// places notes where the values of a document are, by path.
func places(n *yaml.Node, path string, where map[string]pos) {
	if path != "" {
		where[path] = pos{n.Line, n.Column}
	}
	for i, v := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			places(v, fmt.Sprintf("%s[%d]", path, i), where)
		case n.Kind == yaml.MappingNode && i%2 == 1:
			places(v, strings.TrimPrefix(path+"."+n.Content[i-1].Value, "."), where)
		}
	}
}

// at says where the configuration says what is wrong: at a path, or at the nearest one around it that it has, or by the flag.
func (c *Config) at(path string, err error) error {
	for at := path; at != ""; {
		if p, ok := c.where[at]; ok {
			return fmt.Errorf("%s: line %d: column %d: %s: %w", c.file, p.line, p.column, path, err)
		}
		if flag, ok := c.flags[at]; ok {
			return fmt.Errorf("%s: %w", flag, err)
		}
		at = at[:max(strings.LastIndexAny(at, ".["), 0)]
	}
	return fmt.Errorf("%s: %w", path, err)
}

// checkKeys holds a document to the keys of a struct, and its values to their types.
func checkKeys(n *yaml.Node, t reflect.Type, path string) error {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n.Kind == yaml.AliasNode {
		return fmt.Errorf("line %d: column %d: %s: aliases are not read here", n.Line, n.Column, orTop(path))
	}
	if n.Tag == "!!null" {
		return nil // as if the key were not there
	}
	kind, wanted := yaml.ScalarNode, "one value is"
	switch t.Kind() {
	case reflect.Slice:
		kind, wanted = yaml.SequenceNode, "a list is"
	case reflect.Map:
		kind, wanted = yaml.MappingNode, "a map, {name: value}, is"
	case reflect.Struct:
		kind, wanted = yaml.MappingNode, "a map of keys is"
	}
	if n.Kind != kind {
		if n.Kind == yaml.ScalarNode && reflect.PointerTo(t).Implements(unmarshaler) {
			return checkScalar(n, t, path)
		}
		if t.Kind() == reflect.Struct {
			return fmt.Errorf("line %d: column %d: %s: %s wanted here (%s)", n.Line, n.Column, orTop(path), wanted, strings.Join(keysOf(t), ", "))
		}
		return fmt.Errorf("line %d: column %d: %s: %s wanted here, not %s", n.Line, n.Column, orTop(path), wanted, kinds[n.Kind])
	}
	switch kind {
	case yaml.ScalarNode:
		return checkScalar(n, t, path)
	case yaml.SequenceNode:
		for i, e := range n.Content {
			if err := checkKeys(e, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		return nil
	}
	return checkMap(n, t, path)
}

// kinds are what a document says instead of what is wanted.
var kinds = map[yaml.Kind]string{yaml.ScalarNode: "one value", yaml.SequenceNode: "a list", yaml.MappingNode: "a map"}

// checkScalar holds one value to its type.
func checkScalar(n *yaml.Node, t reflect.Type, path string) error {
	err := n.Decode(reflect.New(t).Interface())
	switch {
	case t.Kind() == reflect.Int && (err != nil || n.ShortTag() != "!!int"): // the YAML reader takes 1.5 for 1
		err = fmt.Errorf("%q: a whole number is wanted here", n.Value)
	case t.Kind() == reflect.Bool && err != nil:
		err = errors.New("write true or false")
	}
	if err != nil {
		return fmt.Errorf("line %d: column %d: %s: %w", n.Line, n.Column, orTop(path), err)
	}
	return nil
}

// checkMap holds the keys of a map to those of a struct, and what is under them to its type.
func checkMap(n *yaml.Node, t reflect.Type, path string) error {
	fields := map[string]reflect.Type{}
	var names []string
	if t.Kind() == reflect.Struct {
		names = keysOf(t)
		for f := range t.NumField() {
			fields[t.Field(f).Tag.Get("yaml")] = t.Field(f).Type
		}
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		ft, ok := fields[k.Value]
		if t.Kind() == reflect.Map {
			ft, ok = t.Elem(), true
		}
		if !ok || k.Value == "" && t.Kind() == reflect.Struct {
			return fmt.Errorf("line %d: column %d: unknown key %q in %s: the keys are %s", k.Line, k.Column, k.Value, orTop(path), strings.Join(names, ", "))
		}
		if seen[k.Value] {
			return fmt.Errorf("line %d: column %d: key %q occurs twice", k.Line, k.Column, k.Value)
		}
		seen[k.Value] = true
		if err := checkKeys(v, ft, strings.TrimPrefix(path+"."+k.Value, ".")); err != nil {
			return err
		}
	}
	return nil
}

var unmarshaler = reflect.TypeFor[yaml.Unmarshaler]()

// keysOf gives the keys of a struct, in the order of its fields.
func keysOf(t reflect.Type) []string {
	var names []string
	for f := range t.NumField() {
		if key := t.Field(f).Tag.Get("yaml"); key != "" {
			names = append(names, key)
		}
	}
	return names
}

func orTop(path string) string {
	if path == "" {
		return "the configuration"
	}
	return path
}

// validate checks what can be checked without reading a file, and gives the parsed role.
func (c *Config) validate() (admin.Role, error) {
	role, err := admin.ParseRole(c.AnonymousRole)
	if err != nil {
		return role, c.at("anonymousRole", err)
	}
	for i := range c.Listeners {
		if key, err := c.Listeners[i].check(c.Users != ""); err != nil {
			return role, c.at(fmt.Sprintf("listeners[%d]%s", i, key), err)
		}
	}
	if path, err := c.twice(); err != nil {
		return role, c.at(path, err)
	}
	for i := range c.Hops {
		if key, err := c.Hops[i].check(); err != nil {
			return role, c.at(fmt.Sprintf("hops[%d]%s", i, key), err)
		}
	}
	if key, err := c.HTTP.check(); err != nil {
		return role, c.at("http"+key, err)
	}
	if key, err := c.Relay.check(); err != nil {
		return role, c.at("relay"+key, err)
	}
	if key, err := c.Mesh.check(func(key string) bool { _, ok := c.where[key]; return ok }); err != nil {
		return role, c.at("mesh"+key, err)
	}
	if key, err := c.checkListeners(); err != nil {
		return role, c.at("mesh"+key, err)
	}
	if key, err := c.Events.check(); err != nil {
		return role, c.at("events"+key, err)
	}
	if key, err := c.Components.check(); err != nil {
		return role, c.at("components"+key, err)
	}
	if key, err := c.NATS.check(); err != nil {
		return role, c.at("nats"+key, err)
	}
	for i, o := range c.HTTP.Origins {
		if u, err := url.Parse(o); o != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Path != "") {
			return role, c.at(fmt.Sprintf("http.origins[%d]", i), fmt.Errorf("%q: write https://HOST[:PORT], as browsers do, or *", o))
		}
	}
	return role, c.validateLimits()
}

// twice finds a listener whose place is taken by one before: its port cannot be opened, or (port 0) its certificate would be that of the other.
func (c *Config) twice() (path string, err error) {
	seen := map[string]string{}
	taken := func(at, said, address string, once bool) error {
		if by, ok := seen[address]; ok {
			return fmt.Errorf("%s is there already, at %s", said, by)
		}
		if once || !strings.HasSuffix(address, ":0") {
			seen[address] = at
		}
		return nil
	}
	for i := range c.Listeners {
		l, at := &c.Listeners[i], fmt.Sprintf("listeners[%d].url", i)
		address, _ := listenAddress(l.URL)
		if l.secure() && strings.HasSuffix(address, ":0") {
			address = l.URL
		}
		if err := taken(at, l.URL, address, l.secure()); err != nil {
			return at, err
		}
	}
	for _, l := range []struct{ path, at string }{
		{"http.listen", c.HTTP.Listen}, {"components.grpc", c.Components.GRPC}, {"components.genesis", c.Components.Genesis}, {"nats.listen", c.NATS.Listen}, {"nats.cluster", c.NATS.Cluster},
	} {
		if !isOn(l.at) {
			continue
		}
		if err := taken(l.path, l.at, l.at, false); err != nil {
			return l.path, err
		}
	}
	return "", nil
}

// on tells whether there is an HTTP listener.
func (h *HTTP) on() bool { return h.Listen != "" && h.Listen != "off" }

// check says what is wrong, and under which key, without reading files.
func (h *HTTP) check() (key string, err error) {
	if h.on() {
		_, port, err := net.SplitHostPort(h.Listen)
		if err != nil {
			return ".listen", fmt.Errorf("%q: write HOST:PORT, or off", h.Listen)
		}
		if err := checkPort(port); err != nil {
			return ".listen", fmt.Errorf("%q: %w", h.Listen, err)
		}
	}
	if err := h.TLS.check("tls"); err != nil {
		return ".tls", err
	}
	return "", nil
}

// check holds what is there to be a certificate with its key; name is that of the key.
func (t *TLS) check(name string) error {
	if *t != (TLS{}) && (t.Cert == "" || t.Key == "") {
		return fmt.Errorf("write %s: {cert: FILE, key: FILE}", name)
	}
	return nil
}

func checkPort(port string) error {
	if n, err := strconv.ParseUint(port, 10, 64); err != nil || n > 65535 {
		return fmt.Errorf("port %q is out of range", port)
	}
	return nil
}

func (c *Config) validateLimits() error {
	l := &c.Limits
	for _, n := range []struct {
		name string
		v    int
		most int
	}{
		{"linkCredit", l.LinkCredit, 1 << 24}, {"softQueue", l.SoftQueue, 1 << 24}, {"hardQueue", l.HardQueue, 1 << 24}, {"connections", l.Connections, 1 << 24},
		{"connectionsPerHost", l.ConnectionsPerHost, 1 << 24}, {"sessions", l.Sessions, 1 << 16}, {"links", l.Links, 1 << 24},
	} {
		if n.v < 0 || n.v > n.most {
			return c.at("limits."+n.name, fmt.Errorf("%d is out of range: up to %d", n.v, n.most))
		}
	}
	if l.MaxFrame != 0 && (l.MaxFrame < 512 || l.MaxFrame > 16<<20) {
		return c.at("limits.maxFrame", fmt.Errorf("%d is out of range: 512 to 16MiB", l.MaxFrame))
	}
	if err := c.validateQueues(); err != nil {
		return err
	}
	if l.DeliveryTimeout < 0 {
		return c.at("limits.deliveryTimeout", errors.New("it cannot be negative"))
	}
	if c.ShutdownGrace < 0 {
		return c.at("shutdownGrace", errors.New("it cannot be negative"))
	}
	return nil
}

// validateQueues holds the limits of queues to their order: what is dropped at the hard limit has been held back from the soft one on.
func (c *Config) validateQueues() error {
	l := &c.Limits
	for _, q := range []struct {
		name                     string
		soft, hard               uint64
		defaultSoft, defaultHard uint64
	}{
		{"Queue", uint64(l.SoftQueue), uint64(l.HardQueue), forwarder.DefaultSoftQueue, forwarder.DefaultHardQueue},
		{"QueueBytes", uint64(l.SoftQueueBytes), uint64(l.HardQueueBytes), forwarder.DefaultSoftQueueBytes, forwarder.DefaultHardQueueBytes},
	} {
		soft, hard, named := cmp.Or(q.soft, q.defaultSoft), cmp.Or(q.hard, q.defaultHard), "soft"
		if q.hard != 0 {
			named = "hard"
		}
		if hard < soft {
			return c.at("limits."+named+q.name, fmt.Errorf("soft%s is %d, and hard%s %d: the hard limit cannot be the smaller one", q.name, soft, q.name, hard))
		}
	}
	return nil
}

// listenSchemes are what listeners speak.
var listenSchemes = []string{"amqp", "amqps", "ws", "wss", "rembus+ws", "rembus+wss", "rembus+tcp", "rembus+tls"}

// listenAddress gives host:port of a listener's URL.
func listenAddress(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("%q: not a URL: write amqp://127.0.0.1:5672", text)
	}
	switch {
	case !slices.Contains(listenSchemes, u.Scheme):
		return "", fmt.Errorf("%q: scheme %q is not offered: write amqp://HOST:PORT, or %s", text, u.Scheme, strings.Join(listenSchemes[1:], ", "))
	case u.Scheme[0] == 'w' && u.Port() == "":
		return "", fmt.Errorf("%q: write %s://HOST:PORT", text, u.Scheme)
	case u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Host == "":
		return "", fmt.Errorf("%q: write %s://HOST:PORT and nothing more", text, u.Scheme)
	}
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = map[string]string{"amqp": "5672", "amqps": "5671", "rembus+ws": "8338", "rembus+wss": "8338", "rembus+tcp": "8337", "rembus+tls": "8337"}[u.Scheme]
	}
	if err := checkPort(port); err != nil {
		return "", fmt.Errorf("%q: %w", text, err)
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + port, nil
}
