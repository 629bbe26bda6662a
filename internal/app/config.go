package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

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
}

// Listener is one place where AMQP clients connect.
type Listener struct {
	URL string `yaml:"url"` // amqp://HOST:PORT, or ws://HOST:PORT for AMQP over WebSocket
}

// HTTP is the HTTP listener; an empty Listen or "off" is none.
type HTTP struct {
	Listen  string   `yaml:"listen"`
	Origins []string `yaml:"origins"` // web pages that may connect to /amqp and to ws listeners; see amqp.WebSocketOptions
}

// Limits bound what the router holds. Zero is the default of each.
type Limits struct {
	MaxFrame        Size     `yaml:"maxFrame"`
	MaxMessage      Size     `yaml:"maxMessage"`
	LinkCredit      int      `yaml:"linkCredit"`
	HardQueue       int      `yaml:"hardQueue"`
	HardQueueBytes  Size     `yaml:"hardQueueBytes"`
	DeliveryTimeout Duration `yaml:"deliveryTimeout"`
}

// Duration is a time, written as 30s or 500ms.
type Duration time.Duration

// UnmarshalYAML reads a duration.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: column %d: %q is not a duration: write 30s or 500ms", n.Line, n.Column, n.Value)
	}
	*d = Duration(v)
	return nil
}

// Size is a number of bytes, written as 64KiB, 16MiB, 1GiB or a plain number.
type Size uint64

var sizePattern = regexp.MustCompile(`^([0-9]+)\s*(|B|KiB|MiB|GiB)$`)

// UnmarshalYAML reads a size.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	m := sizePattern.FindStringSubmatch(n.Value)
	if m == nil {
		return fmt.Errorf("line %d: column %d: %q is not a size: write 64KiB, 16MiB or a number of bytes", n.Line, n.Column, n.Value)
	}
	v, err := strconv.ParseUint(m[1], 10, 40)
	if err != nil {
		return fmt.Errorf("line %d: column %d: size %q is out of range", n.Line, n.Column, n.Value)
	}
	*s = Size(v << map[string]uint{"": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30}[m[2]])
	return nil
}

// maxConfig is the largest configuration file that is read.
const maxConfig = 1 << 20

// ReadConfig reads router.yaml. Unknown keys are errors, with line and column.
func ReadConfig(file string) (Config, error) {
	var c Config
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
	for i, t := range c.Tables {
		if !filepath.IsAbs(t) {
			c.Tables[i] = filepath.Join(filepath.Dir(file), t)
		}
	}
	if c.State != "" && !filepath.IsAbs(c.State) {
		c.State = filepath.Join(filepath.Dir(file), c.State)
	}
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
		return c, oneLine(err)
	}
	return c, nil
}

// oneLine puts what the YAML reader says on one line.
func oneLine(err error) error {
	var te *yaml.TypeError
	if errors.As(err, &te) {
		return errors.New(strings.Join(te.Errors, "; "))
	}
	return err
}

// checkKeys holds a document to the keys of a struct.
func checkKeys(n *yaml.Node, t reflect.Type, path string) error {
	switch {
	case n.Kind == yaml.AliasNode:
		return fmt.Errorf("line %d: column %d: aliases are not read here", n.Line, n.Column)
	case t.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		for _, e := range n.Content {
			if err := checkKeys(e, t.Elem(), path); err != nil {
				return err
			}
		}
		return nil
	case t.Kind() != reflect.Struct:
		return nil
	case n.Kind != yaml.MappingNode:
		if n.Tag == "!!null" {
			return nil
		}
		return fmt.Errorf("line %d: column %d: %s: a map of keys is wanted here (%s)", n.Line, n.Column, orTop(path), strings.Join(keysOf(t), ", "))
	}
	fields := map[string]reflect.Type{}
	names := keysOf(t)
	for f, name := range names {
		fields[name] = t.Field(f).Type
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		ft, ok := fields[k.Value]
		if !ok {
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

// keysOf gives the keys of a struct, in the order of its fields.
func keysOf(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for f := range names {
		names[f] = t.Field(f).Tag.Get("yaml")
	}
	return names
}

func orTop(path string) string {
	if path == "" {
		return "the configuration"
	}
	return path
}

// validate checks what can be checked without starting, and gives the parsed role.
func (c *Config) validate() (admin.Role, error) {
	role, err := admin.ParseRole(c.AnonymousRole)
	if err != nil {
		return role, fmt.Errorf("anonymousRole: %w", err)
	}
	for _, l := range c.Listeners {
		if _, err := listenAddress(l.URL); err != nil {
			return role, err
		}
	}
	if h := c.HTTP.Listen; h != "" && h != "off" {
		if _, _, err := net.SplitHostPort(h); err != nil {
			return role, fmt.Errorf("http %q: write HOST:PORT, or off", h)
		}
	}
	for _, o := range c.HTTP.Origins {
		if u, err := url.Parse(o); o != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Path != "") {
			return role, fmt.Errorf("http.origins: %q: write https://HOST[:PORT], as browsers do, or *", o)
		}
	}
	l := c.Limits
	for name, v := range map[string]int{"linkCredit": l.LinkCredit, "hardQueue": l.HardQueue} {
		if v < 0 || v > 1<<24 {
			return role, fmt.Errorf("limits.%s: %d is out of range", name, v)
		}
	}
	if l.MaxFrame != 0 && (l.MaxFrame < 512 || l.MaxFrame > 16<<20) {
		return role, fmt.Errorf("limits.maxFrame: %d is out of range: 512 to 16MiB", l.MaxFrame)
	}
	if l.DeliveryTimeout < 0 || c.ShutdownGrace < 0 {
		return role, errors.New("limits.deliveryTimeout and shutdownGrace cannot be negative")
	}
	return role, nil
}

// listenAddress gives host:port of a listener's URL.
func listenAddress(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("listen %q: not a URL: write amqp://127.0.0.1:5672", text)
	}
	switch {
	case u.Scheme != "amqp" && u.Scheme != "ws":
		return "", fmt.Errorf("listen %q: scheme %q is not offered: write amqp://HOST:PORT or ws://HOST:PORT", text, u.Scheme)
	case u.Scheme == "ws" && u.Port() == "":
		return "", fmt.Errorf("listen %q: write ws://HOST:PORT", text)
	case u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Host == "":
		return "", fmt.Errorf("listen %q: write %s://HOST:PORT and nothing more", text, u.Scheme)
	}
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = "5672"
	}
	if n, err := strconv.Atoi(port); err != nil || n > 65535 {
		return "", fmt.Errorf("listen %q: port %q is out of range", text, port)
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + port, nil
}
