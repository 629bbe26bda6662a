package users

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/routetable"
)

// User is one who may log in.
type User struct {
	Name      string
	Role      admin.Role
	Send      []string // patterns; nil: every plain name; empty: nothing
	Receive   []string
	Verifiers []amqp.Verifier // none: by certificate only
}

// File is a users file.
type File struct {
	Secret []byte // makes salts for names that nobody has
	Users  []User
}

// The bounds of a users file.
const (
	maxBytes = 16 << 20
	maxUsers = 10_000
	maxName  = 255

	maxPatterns = 1000 // of one list
)

// Error tells what is wrong with a users file, and where.
type Error struct {
	File         string
	Line, Column int
	What         string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.What
	}
	return fmt.Sprintf("%s: line %d: column %d: %s", e.File, e.Line, e.Column, e.What)
}

// Read reads a users file.
func Read(path string) (*File, error) {
	text, err := readAll(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

func readAll(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, &Error{File: path, What: "not a regular file"} // to open a pipe may take for ever
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxBytes {
		return nil, &Error{File: path, What: fmt.Sprintf("larger than %d bytes", maxBytes)}
	}
	return text, nil
}

// Parse reads the text of a users file; name is for errors, each of which is an *Error. The text is YAML:
//
//	secret: BASE64               # made by routectl; keeps names that nobody has looking like others
//	users:
//	  - name: alice              # as it is given at a login; or the common name of a certificate
//	    role: operator           # none (default), viewer, operator, admin: at $management
//	    send: [orders, "topic:orders.#"]      # patterns of a table; left out: every plain name
//	    receive: []                           # nothing
//	    verifiers: [SCRAM-SHA-256$50000:SALT$KEY:KEY]   # made by routectl user add; none: by certificate only
func Parse(name string, text []byte) (*File, error) {
	p := parser{name: name}
	doc, err := p.document(text)
	if err != nil || doc == nil {
		return &File{}, err
	}
	f := &File{}
	err = p.fields(doc, func(key string, v *yaml.Node) error {
		switch key {
		case "secret":
			s, err := p.text(v)
			if err != nil {
				return err
			}
			if f.Secret, err = base64.StdEncoding.DecodeString(s); err != nil || len(f.Secret) < 16 || len(f.Secret) > 1024 {
				return p.at(v, "secret: base64 of 16 bytes or more is wanted")
			}
			return nil
		case "users":
			return p.users(f, v)
		}
		return errUnknown
	}, "secret, users")
	if err != nil {
		return nil, err
	}
	return f, nil
}

var errUnknown = errors.New("unknown key")

type parser struct{ name string }

func (p parser) at(n *yaml.Node, format string, args ...any) error {
	return &Error{p.name, n.Line, n.Column, fmt.Sprintf(format, args...)}
}

// document gives the top of the text, nil where there is none.
func (p parser) document(text []byte) (*yaml.Node, error) {
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, p.yamlError(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, &Error{File: p.name, What: "more than one document in the file"}
	}
	if len(doc.Content) != 1 || doc.Content[0].Tag == "!!null" {
		return nil, nil
	}
	return doc.Content[0], nil
}

// yamlError puts what the YAML reader says in our form.
func (p parser) yamlError(err error) error {
	e := &Error{File: p.name, Column: 1, What: strings.TrimPrefix(err.Error(), "yaml: ")}
	if n, _ := fmt.Sscanf(e.What, "line %d: ", &e.Line); n == 1 {
		_, e.What, _ = strings.Cut(e.What, ": ")
	}
	return e
}

// fields goes over the keys of a map, each once.
func (p parser) fields(n *yaml.Node, take func(key string, v *yaml.Node) error, keys string) error {
	if n.Kind != yaml.MappingNode {
		return p.at(n, "a map of keys is wanted here: %s", keys)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if seen[k.Value] {
			return p.at(k, "key %q occurs twice", k.Value)
		}
		seen[k.Value] = true
		switch err := take(k.Value, v); {
		case err == errUnknown:
			return p.at(k, "unknown key %q: the keys are %s", k.Value, keys)
		case err != nil:
			return err
		}
	}
	return nil
}

func (p parser) text(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return "", p.at(n, "a text is wanted here")
	}
	return n.Value, nil
}

// texts reads a list; one text is a list of one.
func (p parser) texts(n *yaml.Node) ([]string, error) {
	if n.Kind == yaml.ScalarNode && n.Tag != "!!null" {
		return []string{n.Value}, nil
	}
	if n.Kind != yaml.SequenceNode {
		return nil, p.at(n, "a list is wanted here")
	}
	list := []string{}
	for _, e := range n.Content {
		s, err := p.text(e)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

func (p parser) users(f *File, n *yaml.Node) error {
	if n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		return p.at(n, "users: a list is wanted here")
	}
	if len(n.Content) > maxUsers {
		return p.at(n, "%d users: at most %d", len(n.Content), maxUsers)
	}
	seen := map[string]int{}
	for _, e := range n.Content {
		u, err := p.user(e)
		if err != nil {
			return err
		}
		if line := seen[u.Name]; line > 0 {
			return p.at(e, "user %q is on line %d already", u.Name, line)
		}
		seen[u.Name] = e.Line
		f.Users = append(f.Users, u)
	}
	return nil
}

func (p parser) user(n *yaml.Node) (u User, err error) {
	err = p.fields(n, func(key string, v *yaml.Node) (err error) {
		var s string
		switch key {
		case "name":
			if u.Name, err = p.text(v); err == nil {
				if err = CheckName(u.Name); err != nil {
					err = p.at(v, "%v", err)
				}
			}
		case "role":
			if s, err = p.text(v); err == nil {
				if u.Role, err = admin.ParseRole(s); err != nil {
					err = p.at(v, "%v", err)
				}
			}
		case "send":
			u.Send, err = p.patterns(v)
		case "receive":
			u.Receive, err = p.patterns(v)
		case "verifiers":
			u.Verifiers, err = p.verifiers(v)
		default:
			err = errUnknown
		}
		return err
	}, "name, role, send, receive, verifiers")
	if err == nil && u.Name == "" {
		err = p.at(n, "a user without a name")
	}
	return u, err
}

func (p parser) patterns(n *yaml.Node) ([]string, error) {
	list, err := p.texts(n)
	if err != nil {
		return nil, err
	}
	if len(list) > maxPatterns {
		return nil, p.at(n, "%d patterns: at most %d", len(list), maxPatterns)
	}
	for i := range list {
		at := n
		if n.Kind == yaml.SequenceNode {
			at = n.Content[i]
		}
		if err := routetable.ValidatePattern(list[i]); err != nil {
			return nil, p.at(at, "%v", err)
		}
	}
	return list, nil
}

func (p parser) verifiers(n *yaml.Node) ([]amqp.Verifier, error) {
	list, err := p.texts(n)
	if err != nil {
		return nil, err
	}
	var all []amqp.Verifier
	for i, s := range list {
		at := n
		if n.Kind == yaml.SequenceNode {
			at = n.Content[i]
		}
		v, err := amqp.ParseVerifier(s)
		if err != nil {
			return nil, p.at(at, "%v", err)
		}
		for _, o := range all {
			if o.Mechanism == v.Mechanism {
				return nil, p.at(at, "a second verifier for %s", v.Mechanism)
			}
		}
		all = append(all, v)
	}
	return all, nil
}

// CheckName tells what is wrong with the name of a user.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > maxName:
		return fmt.Errorf("the name is longer than %d bytes", maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("the name has characters that cannot be printed")
	case strings.TrimSpace(name) != name:
		return errors.New("the name begins or ends with a blank")
	}
	return nil
}
