package users

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp"
)

func TestWhatIsWrongWithAUsersFile(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"users:", ""},
		{"# nothing\n", ""},
		{"users: [{name: a}]", ""},
		{"users: [{name: a, role: boss}]", `u: line 1: column 25: no such role: "boss"`},
		{"users: [{name: a}, {name: b}, {name: a}]", `u: line 1: column 31: user "a" is on line 1 already`},
		{"users:\n  - name: a\n    sned: [x]", `u: line 3: column 5: unknown key "sned"`},
		{"users:\n  - role: admin", "u: line 2: column 5: a user without a name"},
		{"users:\n  - name: a\n    send: [x, \"glob:[\"]", "u: line 3: column 15: "},
		{"users:\n  - name: a\n    verifiers: [SCRAM-SHA-256$1:x$y:z]", "u: line 3: column 17: verifier: the iterations"},
		{"users: [{name: \" a\"}]", "u: line 1: column 16: the name begins"},
		{"users: [{name: \"a\\n\"}]", "u: line 1: column 16: the name has"},
		{"users: {}", "u: line 1: column 8: users: a list"},
		{"- a", "u: line 1: column 1: a map of keys"},
		{"users: [", "u: line 1: column 1: did not find"},
		{"secret: AAAA", "u: line 1: column 9: secret"},
		{"users: []\n---\nusers: []", "u: more than one document"},
		{"users: &a [{name: x}]\nusers: *a", `u: line 2: column 1: key "users" occurs twice`},
	} {
		_, err := Parse("u", []byte(c.text))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("%q: %T", c.text, err)
		}
	}
}

func TestADirectoryTellsWhoMayWhat(t *testing.T) {
	v, err := amqp.MakeVerifiers("alice", "secret", amqp.MinIterations)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse("u", []byte(`
users:
  - {name: alice, role: operator, send: [orders, "eu/*", "topic:a/*"], receive: [], verifiers: ["`+v[0].String()+`"]}
  - {name: bob}
  - {name: carol, send: ["*"]}
`))
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Directory()
	if err != nil {
		t.Fatal(err)
	}
	if d.Account("mallory") != nil || d.Account("alice").Role != admin.RoleOperator || d.Account("bob").Role != admin.RoleNone {
		t.Errorf("got %v, %v, %v", d.Account("mallory"), d.Account("alice"), d.Account("bob"))
	}
	for _, c := range []struct {
		user, address string
		send, receive bool
	}{
		{"alice", "orders", true, false}, {"alice", "eu/1", true, false}, {"alice", "us/1", false, false}, {"alice", "", false, false},
		{"alice", "topic:a/b", true, false}, {"alice", "topic:b", false, false}, {"alice", "$reply/1/2", true, true},
		{"bob", "orders", true, true}, {"bob", "topic:a", false, false}, {"bob", "link:7", false, false}, {"bob", "amqp://x/y", true, true},
		{"carol", "orders", true, true}, {"carol", "link:7", false, false}, {"carol", "TOPIC:x", false, false},
	} {
		a := d.Account(c.user)
		if send, receive := a.Send.Allow(c.address), a.Receive.Allow(c.address); send != c.send || receive != c.receive {
			t.Errorf("%s on %s: may send %t, receive %t; want %t, %t", c.user, c.address, send, receive, c.send, c.receive)
		}
	}
	if !d.Logins().Check("alice", "secret") || d.Logins().Check("alice", "Secret") || d.Logins().Check("bob", "") {
		t.Error("passwords are not told apart")
	}
}

func TestEditsKeepWhatTheyDoNotChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.yaml")
	role := admin.RoleViewer
	if added, err := Put(path, Edit{Name: "alice", Role: &role, Send: []string{"a", "b*"}}); err != nil || !added {
		t.Fatalf("got %t, %v", added, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte("# who may log in\n" + strings.Replace(string(text), "role: viewer", "role: viewer # for now", 1))
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	role = admin.RoleAdmin
	for _, e := range []Edit{{Name: "bob"}, {Name: "alice", Role: &role}} {
		if _, err := Put(path, e); err != nil {
			t.Fatal(err)
		}
	}
	text, _ = os.ReadFile(path)
	for _, want := range []string{"# who may log in", "role: admin # for now", "send: [a, b*]", "name: bob", "secret: "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := Remove(path, "carol"); !errors.Is(err, ErrNoSuchUser) {
		t.Errorf("got %v", err)
	}
	if err := Remove(path, "alice"); err != nil {
		t.Fatal(err)
	}
	if f, err := Read(path); err != nil || len(f.Users) != 1 || f.Users[0].Name != "bob" {
		t.Errorf("got %v, %v", f, err)
	}
	if err := Remove(path+".none", "bob"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(path, []byte("users: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Put(path, Edit{Name: "x"}); err == nil {
		t.Error("a file that cannot be read was changed")
	}
	if list, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(list) > 0 {
		t.Errorf("left behind: %q", list)
	}
}

func TestEditsAtTheSameTimeAllCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.yaml")
	var wait sync.WaitGroup
	const many = 20
	for i := range many {
		wait.Go(func() {
			if _, err := Put(path, Edit{Name: fmt.Sprintf("user-%d", i)}); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if f, err := Read(path); err != nil || len(f.Users) != many {
		t.Errorf("%d users of %d: %v", len(f.Users), many, err)
	}
}

func FuzzUsersFile(f *testing.F) {
	v, err := amqp.MakeVerifiers("alice", "secret", amqp.MinIterations)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("users:\n  - name: alice\n    role: admin\n    send: [a, \"topic:b\"]\n    receive: []\n    verifiers: [" + v[0].String() + "]\n")
	f.Add("secret: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==\nusers: []")
	f.Add("users: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse("u", []byte(text))
		if err != nil {
			return
		}
		if len(file.Users) > 20 {
			return
		}
		d, err := file.Directory()
		if err != nil {
			t.Fatalf("%q is read and not taken: %v", text, err)
		}
		if d.Len() != len(file.Users) {
			t.Errorf("%q: %d users, %d in the directory", text, len(file.Users), d.Len())
		}
	})
}

// What is no regular file is refused: to open a pipe would wait for whoever writes to it.
func TestReadRefusesWhatIsNoRegularFile(t *testing.T) {
	if _, err := Read(t.TempDir()); err == nil || !strings.HasSuffix(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
}
