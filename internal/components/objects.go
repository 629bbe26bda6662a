package components

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/fingerpost/fingerpost/internal/components/proto"
)

// Objects are what the broker goes by: which components there are, in which environments, and what is released. A change makes new ones.
type Objects struct {
	Platform            string                         `yaml:"platform"`
	Adapters            []Identity                     `yaml:"adapters"` // components of the platform: where requests come in, and go out
	Environments        map[string]*Environment        `yaml:"environments"`
	VirtualEnvironments map[string]*VirtualEnvironment `yaml:"virtualEnvironments"`
	Deployments         map[string]*Deployment         `yaml:"deployments"`
	HTTPAdapters        map[string]*HTTPAdapter        `yaml:"httpAdapters"`
	Manifests           map[string]*Manifest           `yaml:"manifests"`
	Releases            map[string]map[string]Release  `yaml:"releases"`   // by virtual environment and app: before those that the virtual environment has
	Components          []Identity                     `yaml:"components"` // who the holder of a token is

	dir   string            // of the file, which names of files are relative to
	texts map[string]string // of the objects of a file, by name, without secrets
}

// Identity is a component, and the token that it shows.
type Identity struct {
	App     string `yaml:"app"`
	Name    string `yaml:"name"`
	Type    string `yaml:"type"` // empty is KubeFox for components
	Hash    string `yaml:"hash"`
	Pod     string `yaml:"pod"`     // of an adapter; empty is any
	Token   Secret `yaml:"token"`   // empty: it is known by something else
	Dialect string `yaml:"dialect"` // D3 or D4; empty: it shows
}

// Environment is a set of variables.
type Environment struct {
	Policy  string            `yaml:"policy"` // testing or stable; empty is testing
	Vars    map[string]any    `yaml:"vars"`
	Secrets map[string]Secret `yaml:"secrets"`
}

// VirtualEnvironment is an environment with changes, and what is released to it.
type VirtualEnvironment struct {
	Environment string             `yaml:"environment"`
	Vars        map[string]any     `yaml:"vars"`
	Secrets     map[string]Secret  `yaml:"secrets"`
	Release     map[string]Release `yaml:"release"`  // by app
	Manifest    string             `yaml:"manifest"` // whose variables and adapters what is released has, and no others; empty: those of the environment
}

// Manifest is what a release was made with.
type Manifest struct {
	Vars         map[string]any          `yaml:"vars"`
	Secrets      map[string]Secret       `yaml:"secrets"`
	HTTPAdapters map[string]*HTTPAdapter `yaml:"httpAdapters"`
}

// Release is a deployment that takes the requests of an app which name none.
type Release struct {
	AppDeployment string `yaml:"appDeployment"` // empty: the app is not released
	Version       string `yaml:"version"`
}

// Deployment is components of an app that belong together.
type Deployment struct {
	App        string                `yaml:"app"`
	Version    string                `yaml:"version"`
	Available  *bool                 `yaml:"available"` // nil is true: only what is available can be released
	Components map[string]*Component `yaml:"components"`
}

// Component is a component of a deployment, as it says of itself when it registers.
type Component struct {
	Type           string                `yaml:"type" json:"type"`
	Hash           string                `yaml:"hash" json:"hash"`
	Image          string                `yaml:"image" json:"image,omitempty"`
	Routes         []ComponentRoute      `yaml:"routes" json:"routes"`
	DefaultHandler bool                  `yaml:"defaultHandler" json:"defaultHandler,omitempty"`
	EnvVarSchema   map[string]VarSchema  `yaml:"envVarSchema" json:"envVarSchema,omitempty"`
	Dependencies   map[string]Dependency `yaml:"dependencies" json:"dependencies,omitempty"`
}

// ComponentRoute is a route of a component; its id is the component's own.
type ComponentRoute struct {
	ID           int                  `yaml:"id" json:"id"`
	Rule         string               `yaml:"rule" json:"rule"`
	Priority     int                  `yaml:"priority" json:"priority,omitempty"` // not looked at
	EnvVarSchema map[string]VarSchema `yaml:"envVarSchema" json:"envVarSchema,omitempty"`
}

// VarSchema says what a component expects of a variable.
type VarSchema struct {
	Type     string `yaml:"type" json:"type,omitempty"` // Array, Boolean, Number, String; empty is any
	Required bool   `yaml:"required" json:"required"`
}

// Dependency is what a component calls.
type Dependency struct {
	Type string `yaml:"type" json:"type"`
}

// HTTPAdapter is a place outside that components call by name.
type HTTPAdapter struct {
	URL                string            `yaml:"url"` // a template, as the headers' values are
	Headers            map[string]string `yaml:"headers"`
	InsecureSkipVerify bool              `yaml:"insecureSkipVerify"`
	FollowRedirects    string            `yaml:"followRedirects"` // Never (default), SameHost, Always
}

// Types of components.
const (
	typeKubeFox     = "KubeFox"
	typeHTTPAdapter = "HTTPAdapter"
	typeDBAdapter   = "DBAdapter"
	typeBroker      = "Broker"
)

// Secret is a text that is never shown: written as it is, or {file: NAME}, or {env: NAME}.
type Secret struct{ text, file, env string }

// UnmarshalYAML reads a secret.
func (s *Secret) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode(&s.text)
	}
	var from map[string]string
	if err := n.Decode(&from); err != nil || len(from) != 1 || from["file"] == "" && from["env"] == "" {
		return fmt.Errorf("line %d: a secret: write its text, {file: NAME} or {env: NAME}", n.Line)
	}
	s.file, s.env = from["file"], from["env"]
	return nil
}

// String hides it.
func (Secret) String() string { return "***" }

// GoString hides it.
func (Secret) GoString() string { return "***" }

// MarshalYAML hides it.
func (Secret) MarshalYAML() (any, error) { return "***", nil }

// written tells whether it is written as it is.
func (s Secret) written() bool { return s.text != "" }

// maxSecret is the largest file of a secret.
const maxSecret = 1 << 20

// read gives the secret's text; ok is false where it cannot be had.
func (s Secret) read() (string, bool) {
	switch {
	case s.env != "":
		return os.LookupEnv(s.env)
	case s.file != "":
		text, err := readBounded(s.file, maxSecret)
		return strings.TrimRight(string(text), "\r\n"), err == nil
	}
	return s.text, s.text != ""
}

// maxObjects is the largest components.yaml.
const maxObjects = 16 << 20

// ReadObjects reads components.yaml. Files that it names are relative to it.
func ReadObjects(file string) (*Objects, error) {
	text, err := readBounded(file, maxObjects)
	if err != nil {
		return nil, err
	}
	o, err := ParseObjects(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	o.resolve(filepath.Dir(file))
	return o, nil
}

func readBounded(name string, most int64) ([]byte, error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", name) // to open a pipe may take for ever
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s: larger than %d bytes", name, most)
	}
	return text, err
}

// resolve makes the names of files relative to a directory.
func (o *Objects) resolve(dir string) {
	o.dir = dir
	at := func(s *Secret) {
		if s.file != "" && !filepath.IsAbs(s.file) {
			s.file = filepath.Join(dir, s.file)
		}
	}
	all := func(m map[string]Secret) {
		for name, s := range m {
			at(&s)
			m[name] = s
		}
	}
	for i := range o.Adapters {
		at(&o.Adapters[i].Token)
	}
	for i := range o.Components {
		at(&o.Components[i].Token)
	}
	for _, e := range o.Environments {
		if e != nil {
			all(e.Secrets)
		}
	}
	for _, v := range o.VirtualEnvironments {
		if v != nil {
			all(v.Secrets)
		}
	}
	for _, m := range o.Manifests {
		if m != nil {
			all(m.Secrets)
		}
	}
}

// ParseObjects reads the text of components.yaml. Unknown keys and what no broker can use are errors; what only a deployment or an environment
// lacks is not: see Problem.
func ParseObjects(text []byte) (*Objects, error) {
	o, err := decodeObjects(text)
	if err != nil {
		return nil, err
	}
	if o.texts, err = splitObjects(text); err != nil {
		return nil, err
	}
	return o, o.check()
}

// decodeObjects reads a text of the form of components.yaml, and checks nothing else of it.
func decodeObjects(text []byte) (*Objects, error) {
	o := &Objects{}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(o); err != nil && !errors.Is(err, io.EOF) {
		return nil, plainYAML(err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document in the file")
	}
	return o, nil
}

// What the YAML reader says: what it shows of a file may be a secret that is in the wrong place, and its words are those of a programmer.
var (
	quoted     = regexp.MustCompile("(?s) `.*?`|( anchor) '.*?'")
	unknownKey = regexp.MustCompile(`field (\S+) not found in type (?:components\.)?(\w+)`)
	wrongType  = regexp.MustCompile(`cannot unmarshal !!(\w+) into \S+`)
	otherWords = strings.NewReplacer("seq", "a list", "map", "a map", "str", "a text", "int", "a number", "float", "a number", "bool", "true or false")
)

// maxMistakes are told of one text.
const maxMistakes = 3

// plainYAML puts what the YAML reader says on one line, without what is in the file.
func plainYAML(err error) error {
	te, ok := errors.AsType[*yaml.TypeError](err)
	if !ok {
		return errors.New(quoted.ReplaceAllString(err.Error(), "$1"))
	}
	var said []string
	for i, text := range te.Errors {
		if i == maxMistakes {
			said = append(said, fmt.Sprintf("and %d more", len(te.Errors)-i))
			break
		}
		text = unknownKey.ReplaceAllString(quoted.ReplaceAllString(text, "$1"), `unknown key "$1" of $2`)
		said = append(said, wrongType.ReplaceAllStringFunc(text, func(s string) string {
			return otherWords.Replace(wrongType.FindStringSubmatch(s)[1]) + " does not fit here"
		}))
	}
	return errors.New(strings.Join(said, "; "))
}

// check says what no broker can use, by its path.
func (o *Objects) check() error {
	if o.Platform == "" {
		return errors.New("platform: missing")
	}
	for _, list := range []struct {
		key  string
		ids  []Identity
		kind string
	}{{"adapters", o.Adapters, typeHTTPAdapter}, {"components", o.Components, typeKubeFox}} {
		for i := range list.ids {
			id := &list.ids[i]
			if id.Type == "" {
				id.Type = list.kind
			}
			if err := checkType(id.Type); err != nil {
				return fmt.Errorf("%s[%d].type: %w", list.key, i, err)
			}
			if id.Name == "" || id.Hash == "" {
				return fmt.Errorf("%s[%d]: name and hash are needed", list.key, i)
			}
			if !proto.IsHash(id.Hash) {
				return fmt.Errorf("%s[%d].hash: %q: %s", list.key, i, id.Hash, hashForm)
			}
			if id.Dialect != "" && id.Dialect != "D3" && id.Dialect != "D4" {
				return fmt.Errorf("%s[%d].dialect: %q: write D3 or D4", list.key, i, id.Dialect)
			}
		}
	}
	return cmp.Or(o.checkEnvironments(), o.checkDeployments(), o.checkReleases())
}

// checkReleases checks what names other objects.
func (o *Objects) checkReleases() error {
	for name, v := range o.VirtualEnvironments {
		if v.Manifest != "" && o.Manifests[v.Manifest] == nil {
			return fmt.Errorf("virtualEnvironments.%s.manifest: there is no manifest %q", name, v.Manifest)
		}
	}
	for name := range o.Releases {
		if o.VirtualEnvironments[name] == nil {
			return fmt.Errorf("releases.%s: there is no virtual environment %q", name, name)
		}
	}
	for name, m := range o.Manifests {
		if m == nil {
			return fmt.Errorf("manifests.%s: empty", name)
		}
		if _, err := varsOf(m.Vars); err != nil {
			return fmt.Errorf("manifests.%s.%w", name, err)
		}
		if err := checkAdapters("manifests."+name+".httpAdapters", m.HTTPAdapters); err != nil {
			return err
		}
	}
	return nil
}

// releasesOf is what is released to a virtual environment, by app.
func (o *Objects) releasesOf(environment string) map[string]Release {
	all := mergedMap(o.VirtualEnvironments[environment].Release, o.Releases[environment])
	maps.DeleteFunc(all, func(_ string, r Release) bool { return r.AppDeployment == "" })
	return all
}

func (o *Objects) checkEnvironments() error {
	for name, e := range o.Environments {
		if e == nil {
			return fmt.Errorf("environments.%s: empty", name)
		}
		if _, err := varsOf(e.Vars); err != nil {
			return fmt.Errorf("environments.%s.%w", name, err)
		}
		if e.Policy != "" && !strings.EqualFold(e.Policy, "testing") && !strings.EqualFold(e.Policy, "stable") {
			return fmt.Errorf("environments.%s.policy: %q: write testing or stable", name, e.Policy)
		}
	}
	for name, v := range o.VirtualEnvironments {
		if v == nil {
			return fmt.Errorf("virtualEnvironments.%s: empty", name)
		}
		if _, err := varsOf(v.Vars); err != nil {
			return fmt.Errorf("virtualEnvironments.%s.%w", name, err)
		}
	}
	return nil
}

// checkType checks the type of a component.
func checkType(s string) error {
	switch s {
	case typeKubeFox, typeHTTPAdapter, typeDBAdapter, typeBroker, "NATS":
		return nil
	}
	return fmt.Errorf("%q: write KubeFox, HTTPAdapter or DBAdapter", s)
}

// checkNames checks that the components have names, and that those are different as identities have them.
func (d *Deployment) checkNames() error {
	seen := map[string]string{}
	for _, name := range sortedKeys(d.Components) {
		clean := cleanName(name)
		switch other, twice := seen[clean]; {
		case clean == "":
			return fmt.Errorf("%s: %s", name, nameForm)
		case twice:
			return fmt.Errorf("%s: it has the name of %s: both are %q", name, other, clean)
		}
		seen[clean] = name
	}
	return nil
}

// nameForm says what a name is.
const nameForm = `write letters, digits and "-", at most 63`

// hashForm says what a hash is.
const hashForm = `write letters, digits, "-", "_" and single dots, at most 128`

func (o *Objects) checkDeployments() error {
	for name, d := range o.Deployments {
		if d == nil || d.App == "" {
			return fmt.Errorf("deployments.%s.app: missing", name)
		}
		if cleanName(d.App) == "" {
			return fmt.Errorf("deployments.%s.app: %q: %s", name, d.App, nameForm)
		}
		if err := d.checkNames(); err != nil {
			return fmt.Errorf("deployments.%s.components.%w", name, err)
		}
		for c, x := range d.Components {
			if x == nil || x.Hash == "" {
				return fmt.Errorf("deployments.%s.components.%s.hash: missing", name, c)
			}
			if !proto.IsHash(x.Hash) {
				return fmt.Errorf("deployments.%s.components.%s.hash: %q: %s", name, c, x.Hash, hashForm)
			}
			if x.Type == "" {
				x.Type = typeKubeFox
			}
			if err := checkType(x.Type); err != nil {
				return fmt.Errorf("deployments.%s.components.%s.type: %w", name, c, err)
			}
		}
	}
	return checkAdapters("httpAdapters", o.HTTPAdapters)
}

func checkAdapters(key string, all map[string]*HTTPAdapter) error {
	for name, a := range all {
		if a == nil || a.URL == "" {
			return fmt.Errorf("%s.%s.url: missing", key, name)
		}
		switch a.FollowRedirects {
		case "", "Never", "SameHost", "Always":
		default:
			return fmt.Errorf("%s.%s.followRedirects: %q: write Never, SameHost or Always", key, name, a.FollowRedirects)
		}
	}
	return nil
}

func varsOf(m map[string]any) (Vars, error) {
	vars := make(Vars, len(m))
	for name, x := range m {
		v, err := valueOf(x)
		if err != nil {
			return nil, fmt.Errorf("vars.%s: %w", name, err)
		}
		vars[name] = v
	}
	return vars, nil
}

func (d *Deployment) available() bool { return d.Available == nil || *d.Available }

// id is who a component of the platform is.
func (x *Identity) id() proto.Component {
	return proto.Component{Type: x.Type, App: cleanName(x.App), Name: cleanName(x.Name), Hash: x.Hash}
}

// id is who a component of the deployment is.
func (d *Deployment) id(name string) proto.Component {
	c := d.Components[name]
	return proto.Component{Type: c.Type, App: cleanName(d.App), Name: cleanName(name), Hash: c.Hash}
}

// groups are all groups of components that there may be.
func (o *Objects) groups() (list []proto.Component) {
	for i := range o.Adapters {
		list = append(list, o.Adapters[i].id())
	}
	seen := map[string]bool{} // components are shared by deployments
	for _, name := range sortedKeys(o.Deployments) {
		d := o.Deployments[name]
		for _, c := range sortedKeys(d.Components) {
			id := d.id(c)
			if !seen[id.Address()] {
				seen[id.Address()] = true
				list = append(list, id)
			}
		}
	}
	return list
}
