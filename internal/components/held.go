package components

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Objects that operators put are held by the table, each as YAML text under a name, KIND/NAME: deployment/hello-main. The form of the text is
// that of components.yaml. They lie over those of the file: what is put under the name of one of the file is in force until it is deleted, and
// a reload of the file leaves it alone.

// Kinds are the kinds of objects, in the order in which they need each other.
func Kinds() []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	return names
}

// kinds are the kinds of objects, their sections of components.yaml, and what Kubernetes calls them.
var kinds = []struct{ name, section, resource string }{
	{"environment", "environments", "Environment"},
	{"httpAdapter", "httpAdapters", "HTTPAdapter"},
	{"deployment", "deployments", "AppDeployment"},
	{"manifest", "manifests", "ReleaseManifest"},
	{"virtualEnvironment", "virtualEnvironments", "VirtualEnvironment"},
	{"release", "releases", "Release"},
	{"adapter", "adapters", ""},
	{"component", "components", ""},
}

// ObjectName is the name of an object, as the table has it. The kind may be written as here, as its section or as Kubernetes does.
func ObjectName(kind, name string) (string, error) {
	for _, k := range kinds {
		if name != "" && kind != "" && (strings.EqualFold(kind, k.name) || strings.EqualFold(kind, k.section) || strings.EqualFold(kind, k.resource)) {
			return k.name + "/" + name, nil
		}
	}
	return "", fmt.Errorf("no object %q %q: the kinds are %s", kind, name, strings.Join(Kinds(), ", "))
}

// sectionOf is the section of a kind.
func sectionOf(kind string) string {
	for _, k := range kinds {
		if k.name == kind {
			return k.section
		}
	}
	return ""
}

// name is the name of an identity among those of its section.
func (i *Identity) name() string {
	if i.App != "" {
		return i.App + "/" + i.Name + "@" + i.Hash
	}
	return i.Name + "@" + i.Hash
}

// splitObjects takes a text in the form of components.yaml apart: the text of each object by its name. Literal secrets are hidden.
func splitObjects(text []byte) (map[string]string, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, plainYAML(err)
	}
	s := splitting{texts: map[string]string{}, room: maxNodes}
	if len(root.Content) == 0 || root.Content[0].Kind != yaml.MappingNode {
		return s.texts, nil
	}
	pairs := root.Content[0].Content
	for i := 0; i+1 < len(pairs); i += 2 {
		s.section(pairs[i].Value, pairs[i+1])
	}
	return s.texts, s.err
}

// maxNodes bounds what aliases make of a file.
const maxNodes = 1 << 20

type splitting struct {
	texts map[string]string
	room  int // nodes
	err   error
}

func (s *splitting) section(section string, n *yaml.Node) {
	n = target(n)
	for _, k := range kinds {
		switch {
		case k.section != section:
		case n.Kind == yaml.SequenceNode:
			for _, x := range n.Content {
				var id Identity
				if err := x.Decode(&id); err == nil {
					s.object(k.name+"/"+id.name(), x)
				}
			}
		case k.name == "release":
			s.pairs(n, func(environment string, apps *yaml.Node) {
				s.pairs(target(apps), func(app string, x *yaml.Node) { s.object("release/"+environment+"/"+app, x) })
			})
		default:
			s.pairs(n, func(name string, x *yaml.Node) { s.object(k.name+"/"+name, x) })
		}
	}
}

func (s *splitting) pairs(n *yaml.Node, f func(name string, x *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		f(n.Content[i].Value, n.Content[i+1])
	}
}

// target is what an alias stands for.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func (s *splitting) object(name string, n *yaml.Node) {
	plain := s.plain(n)
	if kind, _, _ := strings.Cut(name, "/"); s.err == nil {
		hideSecrets(plain, kind == "adapter" || kind == "component")
		var text []byte
		text, s.err = yaml.Marshal(plain)
		s.texts[name] = string(text)
	}
}

// plain is a copy of a node, without aliases, and without comments, in which may be secrets of old.
func (s *splitting) plain(n *yaml.Node) *yaml.Node {
	n = target(n)
	c := *n
	c.Anchor, c.Content, c.HeadComment, c.LineComment, c.FootComment = "", nil, "", "", ""
	if s.room--; s.room < 0 {
		s.err = errors.New("too many aliases")
		return &c
	}
	for _, x := range n.Content {
		c.Content = append(c.Content, s.plain(x))
	}
	return &c
}

// hideSecrets hides the secrets that are written in an object; those that come from elsewhere show where from.
func hideSecrets(n *yaml.Node, identity bool) {
	for i := 1; i < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		key, value := n.Content[i-1].Value, n.Content[i]
		switch {
		case key == "<<":
			hideSecrets(value, identity)
		case identity && key == "token":
			hide(value)
		case !identity && key == "secrets":
			for j := 1; j < len(value.Content); j += 2 {
				hide(value.Content[j])
			}
			hideMerged(value)
		}
	}
	for _, x := range n.Content {
		if n.Kind == yaml.SequenceNode { // of maps that are merged
			hideSecrets(x, identity)
		}
	}
}

// hideMerged hides the secrets that are merged into others.
func hideMerged(n *yaml.Node) {
	for i := 1; i < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		if n.Content[i-1].Value != "<<" {
			continue
		}
		from := n.Content[i]
		maps := []*yaml.Node{from}
		if from.Kind == yaml.SequenceNode {
			maps = from.Content
		}
		for _, m := range maps {
			for j := 1; j < len(m.Content); j += 2 {
				hide(m.Content[j])
			}
			hideMerged(m)
		}
	}
}

func hide(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		*n = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "***"}
	}
}

// parsePart reads a part of components.yaml that is to be put: as a file, but for the platform, which it may not have.
func parsePart(text []byte) (*Objects, error) {
	o, err := decodeObjects(text)
	if err != nil {
		return nil, err
	}
	if o.Platform != "" {
		return nil, errors.New("platform: it is the file's")
	}
	for _, list := range [][]Identity{o.Adapters, o.Components} {
		for i, x := range list {
			if slices.ContainsFunc(list[:i], func(o Identity) bool { return o.name() == x.name() }) {
				return nil, fmt.Errorf("%s is there twice: several tokens of a component are for components.yaml", x.name())
			}
		}
	}
	return o, nil
}

// Part makes the text of an object one of a part of components.yaml.
func Part(name, text string) (string, error) {
	kind, name, _ := strings.Cut(name, "/")
	section := sectionOf(kind)
	node := &yaml.Node{}
	if err := yaml.Unmarshal([]byte(text), node); err != nil {
		return "", err
	}
	if len(node.Content) == 1 {
		node = node.Content[0]
	}
	of := func(key string, n any) any { return map[string]any{key: n} }
	var part any
	switch kind {
	case "adapter", "component":
		part = of(section, []any{node})
	case "release":
		environment, app, _ := strings.Cut(name, "/")
		part = of(section, of(environment, of(app, node)))
	default:
		part = of(section, of(name, node))
	}
	b, err := yaml.Marshal(part)
	return string(b), err
}

// parseHeld reads an object of the table.
func parseHeld(name, text, dir string) (*Objects, error) {
	part, err := Part(name, text)
	if err != nil {
		return nil, err
	}
	o, err := parsePart([]byte(part))
	if err == nil {
		o.resolve(dir)
	}
	return o, err
}

// secrets are all that the objects have.
func (o *Objects) secrets() (list []Secret) {
	for _, ids := range [][]Identity{o.Adapters, o.Components} {
		for _, id := range ids {
			list = append(list, id.Token)
		}
	}
	for _, e := range o.Environments {
		if e != nil {
			list = slices.AppendSeq(list, maps.Values(e.Secrets))
		}
	}
	for _, v := range o.VirtualEnvironments {
		if v != nil {
			list = slices.AppendSeq(list, maps.Values(v.Secrets))
		}
	}
	for _, m := range o.Manifests {
		if m != nil {
			list = slices.AppendSeq(list, maps.Values(m.Secrets))
		}
	}
	return list
}

// over lays objects over those of o, which are changed.
func (o *Objects) over(with *Objects) {
	put(&o.Environments, with.Environments)
	put(&o.VirtualEnvironments, with.VirtualEnvironments)
	put(&o.Deployments, with.Deployments)
	put(&o.HTTPAdapters, with.HTTPAdapters)
	put(&o.Manifests, with.Manifests)
	for environment, apps := range with.Releases {
		put(&o.Releases, map[string]map[string]Release{environment: mergedMap(o.Releases[environment], apps)})
	}
	o.Adapters = overIdentities(o.Adapters, with.Adapters)
	o.Components = overIdentities(o.Components, with.Components)
}

func put[V any](dst *map[string]V, with map[string]V) {
	if len(with) > 0 {
		*dst = mergedMap(*dst, with)
	}
}

func mergedMap[V any](a, b map[string]V) map[string]V {
	n := make(map[string]V, len(a)+len(b))
	maps.Copy(n, a)
	maps.Copy(n, b)
	return n
}

func overIdentities(list, with []Identity) []Identity {
	list = slices.DeleteFunc(slices.Clone(list), func(o Identity) bool { // of all pods, else a token that is taken away would still do
		return slices.ContainsFunc(with, func(x Identity) bool { return o.name() == x.name() })
	})
	return append(list, with...)
}

// layer lays the objects of the table over those of the file. One that does not go with the others is left out, and told.
func layer(file *Objects, held map[string]string) (o *Objects, left map[string]error) {
	left = map[string]error{}
	parts := map[string]*Objects{}
	all := new(*file)
	for _, name := range heldOrder(held) {
		part, err := parseHeld(name, held[name], file.dir)
		if err != nil {
			left[name] = err
			continue
		}
		parts[name] = part
		all.over(part)
	}
	if all.check() == nil {
		return all, left
	}
	o = new(*file)
	for _, name := range heldOrder(held) {
		if parts[name] == nil {
			continue
		}
		next := new(*o)
		next.over(parts[name])
		if err := next.check(); err != nil {
			left[name] = err
			continue
		}
		o = next
	}
	return o, left
}

// heldOrder is the order in which objects need each other, and that of their names.
func heldOrder(held map[string]string) []string {
	rank := func(name string) int {
		kind, _, _ := strings.Cut(name, "/")
		return slices.Index(Kinds(), kind)
	}
	return slices.SortedFunc(maps.Keys(held), func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
}
