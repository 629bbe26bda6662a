package app

import (
	"strings"
	"testing"
)

// The example names every key, and is good.
func TestExampleConfiguration(t *testing.T) {
	c, err := ReadConfig("../../router.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(c); err != nil {
		t.Fatal(err)
	}
	if c.Name != "east-1" || len(c.Listeners) != 1 || c.Limits.MaxFrame != 64<<10 || c.Limits.HardQueueBytes != 64<<20 {
		t.Errorf("got %+v", c)
	}
}

func TestBadConfigurations(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"nme: x", `line 1: column 1: unknown key "nme" in the configuration`},
		{"limits: {maxFrame: 1x}", "line 1: column 20"},
		{"limits:\n  linkCredits: 3", `line 2: column 3: unknown key "linkCredits" in limits`},
		{"listeners: [amqp://x]", "line 1: column 13: listeners: a map of keys is wanted here (url)"},
		{"name: a\nname: b", `line 2: column 1: key "name" occurs twice`},
		{"name: &a x\nanonymousRole: *a", "aliases are not read"},
		{"name: [", "line 1"},
		{"name: a\n---\nname: b", "more than one document"},
		{"limits: {deliveryTimeout: 1x}", "line 1: column 27"},
	} {
		_, err := parseConfig([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: got %v, want %s", c.text, err, c.want)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"listeners: [{url: http://x}]", `scheme "http" is not offered`},
		{"listeners: [{url: amqp://x:99999}]", "out of range"},
		{"anonymousRole: king", "no such role"},
		{"http: {listen: nonsense}", "write HOST:PORT"},
		{"limits: {maxFrame: 100}", "512 to 16MiB"},
		{"tables: [nowhere.yaml]", "nowhere.yaml"},
	} {
		got, err := parseConfig([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(got); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %s", c.text, err, c.want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add("name: x\nlisteners: [{url: amqp://127.0.0.1:1}]\nlimits: {maxFrame: 64KiB, deliveryTimeout: 3s}")
	f.Fuzz(func(t *testing.T, text string) { parseConfig([]byte(text)) })
}
