package ctl

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/internal/users"
)

func TestUsers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.yaml")
	for _, c := range []struct {
		args, stdin string
		status      int
		out, err    string
	}{
		{"user list", "", 2, "", "no such file"},
		{"user add alice --role operator --send orders --send topic:a/* --no-receive --iterations 4096", "secret\n", 0, "user alice added", ""},
		{"user add bob --no-password", "", 0, "user bob added", ""},
		{"user add carol", "", 2, "", "no password"},
		{"user add carol", strings.Repeat("x", 2000), 2, "", "longer than"},
		{"user add carol --role boss", "secret", 2, "", `no such role: "boss"`},
		{"user add carol --send glob:[", "secret", 2, "", "pattern"},
		{"user add carol --iterations 1", "secret", 2, "", "a number from 4096"},
		{"user add carol --send a --no-send", "secret", 2, "", "give one of them"},
		{"user add alice --role admin --no-password", "", 0, "user alice changed", ""},
		{"user list", "", 0, "alice  admin  yes       orders topic:a/*  (nothing)\nbob    none   no        (plain names)     (plain names)", ""},
		{"user remove bob", "", 0, "removed", ""},
		{"user remove bob", "", 0, "was not there", ""},
		{"user list -o json", "", 0, `"password": true`, ""},
		{"user", "", 2, "", "give add NAME"},
		{"user list --file t.yaml", "", 2, "", "--users"},
	} {
		var out, errs bytes.Buffer
		env := Env{Stdin: strings.NewReader(c.stdin), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }}
		args := append(strings.Fields(c.args), "--users", file)
		if status := Run(t.Context(), args, env); status != c.status || !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.err) {
			t.Errorf("%s: exit %d\n%s%s", c.args, status, &out, &errs)
		}
	}
	f, err := users.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Directory()
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Users[0].Verifiers) != 3 || !d.Logins().Check("alice", "secret") {
		t.Errorf("alice cannot log in: %v", f.Users[0])
	}
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "c2VjcmV0") || bytes.Count(text, []byte("secret")) != 1 {
		t.Errorf("the password is in the file: %s", text) // the key "secret" is
	}
}

func TestCredentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("from the file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ url, user, secret, wantUser, wantPassword, err string }{
		{"amqp://h", "", "", "", "", ""},
		{"amqp://u:p@h", "", "", "u", "p", ""},
		{"amqps://u@h", "", file, "u", "from the file", ""},
		{"amqps://h", "u", file, "u", "from the file", ""},
		{"amqps://u:p@h", "u", file, "u", "from the file", ""},
		{"amqps://h", "u", "-", "u", "from the input", ""},
		{"amqps://u:p@h", "v", "", "", "", "another user"},
		{"amqps://u@h", "", "", "", "", "--password-file"},
		{"amqps://h", "", file, "", "", "whose password"},
		{"amqps://h", "u", file + ".none", "", "", "no such file"},
	} {
		r := &run{url: c.url, user: c.user, secret: c.secret, env: Env{Stdin: strings.NewReader("from the input")}}
		e, err := r.endpoint()
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s %s %s: got %v, want %s", c.url, c.user, c.secret, err, c.err)
		case c.err == "" && (err != nil || e.user != c.wantUser || e.password != c.wantPassword):
			t.Errorf("%s %s %s: got %q %q, %v", c.url, c.user, c.secret, e.user, e.password, err)
		}
	}
}
