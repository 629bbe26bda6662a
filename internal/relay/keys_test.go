package relay

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestKeys(t *testing.T) {
	const good = `{"domain":"acme","keys":{"a":{"token":"t1","domain":"acme","relay":true,"P":["*"],"S":["alpha"]},"b":{"token":"t2","domain":"other"}}}`
	k, err := ParseKeys([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	a, b := k.find("t1"), k.find("t2")
	if a == nil || !a.Relay || !a.ask.has("x") || !a.serve.has("alpha") || a.serve.has("beta") || b == nil || b.Relay || b.ask.has("x") {
		t.Errorf("read as %+v and %+v", a, b)
	}
	if k.find("") != nil || k.find("T1") != nil || !k.domains["other"] {
		t.Error("an unknown token has a key, or a domain has none")
	}
	for text, want := range map[string]string{
		``: "invalid JSON", `{"keys":{}}`: "no key", good + `{}`: "more than one", `{"kees":{}}`: `unknown field "kees"`, `{"keys":7}`: "cannot be number",
		`{"keys":{"a":{"token":"secret-x","domain":"acme"},"b":{"token":"secret-x","domain":"acme"}}}`: `key "b": its token is that of "a"`,
		`{"keys":{"a":{"domain":"acme"}}}`: "token: missing", `{"keys":{"a":{"token":"secret-x"}}}`: "domain:", `{"keys":{"a":{"token":"secret-x","domain":"a/b"}}}`: "domain:",
		`{"keys":{"a":{"token":"secret-x","domain":"a","P":[""]}}}`: "never empty", `{"keys":{"a":{"token":"secret-x`: "ends too early", `{"keys":{"a":{"token":["secret-x"]}}}`: "cannot be",
	} {
		if _, err := ParseKeys([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestAFileOfKeysIsARegularOne(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "keys.json")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKeys(pipe); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
	large := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(large, []byte(strings.Repeat(" ", maxKeys+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKeys(large); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Error(err)
	}
}

func FuzzKeys(f *testing.F) {
	f.Add([]byte(`{"domain":"acme","keys":{"a":{"token":"t1","domain":"acme","relay":true,"P":["*"],"S":["alpha"]}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if k, err := ParseKeys(text); err == nil && len(k.by) == 0 {
			t.Error("no key, and no error")
		}
	})
}
