package users

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"gopkg.in/yaml.v3"

	"github.com/fingerpost/fingerpost/internal/admin"
)

// ErrNoSuchUser tells that a file has no such user.
var ErrNoSuchUser = errors.New("no such user")

// Edit is a change of one user of a file. What is nil stays as it is; in a new user it is left out.
type Edit struct {
	Name      string
	Role      *admin.Role
	Send      []string
	Receive   []string
	Verifiers []string // as amqp.Verifier.String gives them
}

// Put adds a user to a file, or changes the one of that name; a file that is not there is made. Comments stay.
func Put(path string, e Edit) (added bool, err error) {
	err = edit(path, func(top *yaml.Node) error {
		users := child(top, "users", yaml.SequenceNode)
		u := find(users, e.Name)
		if added = u == nil; added {
			u = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			set(u, "name", scalar(e.Name))
			users.Style &^= yaml.FlowStyle
			users.Content = append(users.Content, u)
		}
		if e.Role != nil {
			set(u, "role", scalar(e.Role.String()))
		}
		if e.Send != nil {
			set(u, "send", list(e.Send, yaml.FlowStyle))
		}
		if e.Receive != nil {
			set(u, "receive", list(e.Receive, yaml.FlowStyle))
		}
		if e.Verifiers != nil {
			u.Style &^= yaml.FlowStyle
			set(u, "verifiers", list(e.Verifiers, 0))
		}
		return nil
	})
	return added, err
}

// Remove takes a user out of a file.
func Remove(path, name string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	return edit(path, func(top *yaml.Node) error {
		users := child(top, "users", yaml.SequenceNode)
		for i, u := range users.Content {
			if nameOf(u) == name {
				users.Content = append(users.Content[:i:i], users.Content[i+1:]...)
				return nil
			}
		}
		return ErrNoSuchUser
	})
}

// edit reads a file, changes it, holds what came out to what Parse takes, and puts it in the place of the old one.
func edit(path string, change func(top *yaml.Node) error) error {
	unlock, err := lock(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unlock()
	text, err := readAll(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := Parse(path, text); err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return err
	}
	if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		doc = yaml.Node{
			Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode, Tag: "!!map"}},
			HeadComment: doc.HeadComment, FootComment: doc.FootComment,
		}
	}
	top := doc.Content[0]
	if find := lookup(top, "secret"); find == nil {
		secret := make([]byte, 32)
		rand.Read(secret)
		top.Content = append([]*yaml.Node{scalar("secret"), scalar(base64.StdEncoding.EncodeToString(secret))}, top.Content...)
	}
	if err := change(top); err != nil {
		return err
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return err
	}
	if _, err := Parse(path, out.Bytes()); err != nil {
		return fmt.Errorf("the file would not be read again: %w", err)
	}
	return replace(path, out.Bytes())
}

// replace writes a file that only its user can read, and puts it in the place of another, whole or not at all.
func replace(path string, text []byte) (err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(text); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func lookup(m *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return m.Content[i+1]
		}
	}
	return nil
}

func child(m *yaml.Node, key string, kind yaml.Kind) *yaml.Node {
	n := lookup(m, key)
	if n == nil {
		n = &yaml.Node{}
		m.Content = append(m.Content, scalar(key), n)
	}
	if n.Kind != kind {
		*n = yaml.Node{Kind: kind, HeadComment: n.HeadComment, LineComment: n.LineComment, FootComment: n.FootComment}
	}
	return n
}

func find(users *yaml.Node, name string) *yaml.Node {
	for _, u := range users.Content {
		if nameOf(u) == name {
			return u
		}
	}
	return nil
}

func nameOf(u *yaml.Node) string {
	if n := lookup(u, "name"); n != nil {
		return n.Value
	}
	return ""
}

func set(m *yaml.Node, key string, v *yaml.Node) {
	if old := lookup(m, key); old != nil {
		v.HeadComment, v.LineComment, v.FootComment = old.HeadComment, old.LineComment, old.FootComment
		*old = *v
		return
	}
	m.Content = append(m.Content, scalar(key), v)
}

func scalar(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

func list(texts []string, style yaml.Style) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: style}
	for _, s := range texts {
		n.Content = append(n.Content, scalar(s))
	}
	return n
}
