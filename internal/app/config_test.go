package app

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
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
	if c.State != filepath.Join("..", "..", "state") {
		t.Errorf("state: got %q, want a path beside the file", c.State)
	}
	text, err := os.ReadFile("../../router.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for _, key := range missingKeys(doc.Content[0], reflect.TypeOf(c), "") {
		t.Errorf("the example does not show %s", key)
	}
}

// missingKeys gives the keys of a struct that a document leaves out.
func missingKeys(n *yaml.Node, t reflect.Type, path string) (missing []string) {
	if t.Kind() == reflect.Slice && len(n.Content) > 0 {
		return missingKeys(n.Content[0], t.Elem(), path)
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for f, key := range keysOf(t) {
		at := slices.IndexFunc(n.Content, func(k *yaml.Node) bool { return k.Value == key })
		if at < 0 {
			missing = append(missing, path+key)
			continue
		}
		missing = append(missing, missingKeys(n.Content[at+1], t.Field(f).Type, path+key+".")...)
	}
	return missing
}

func TestBadConfigurations(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"nme: x", `line 1: column 1: unknown key "nme" in the configuration`},
		{"limits: {maxFrame: 1x}", "line 1: column 20"},
		{"limits:\n  linkCredits: 3", `line 2: column 3: unknown key "linkCredits" in limits`},
		{"listeners: [amqp://x]", "line 1: column 13: listeners[0]: a map of keys is wanted here (url, tls, "},
		{"name: a\nname: b", `line 2: column 1: key "name" occurs twice`},
		{"name: &a x\nanonymousRole: *a", "aliases are not read"},
		{"name: [", "line 1"},
		{"events: {restart: {Mail: [mail]}}", "line 1: column 19: events.restart: a list is wanted here, not a map"},
		{"name: [a]", "line 1: column 7: name: one value is wanted here, not a list"},
		{"listeners: amqp://127.0.0.1:5672", "line 1: column 12: listeners: a list is wanted here, not one value"},
		{"mesh: {tenants: [a]}", "line 1: column 17: mesh.tenants: a map, {name: value}, is wanted here, not a list"},
		{"mesh: {tenants: {a: [b]}}", "line 1: column 21: mesh.tenants.a: one value is wanted here"},
		{"mesh: {server: maybe}", `line 1: column 16: mesh.server: write true or false`},
		{"events: {topology: [true]}", "line 1: column 20: events.topology: one value is wanted here"},
		{"limits: {softQueue: 1.5}", `line 1: column 21: limits.softQueue: "1.5": a whole number is wanted here`},
		{"limits: {softQueue: many}", `limits.softQueue: "many": a whole number`},
		{"shutdownGrace: {a: 1}", "line 1: column 16: shutdownGrace: one value is wanted here, not a map"},
		{"nats: [a]", "line 1: column 7: nats: a map of keys is wanted here"},
		{"hops: [{sasl: [[a]]}]", "line 1: column 16: hops[0].sasl[0]: one value is wanted here, not a list"},
		{"name: a\n---\nname: b", "more than one document"},
		{"limits: {deliveryTimeout: 1x}", "line 1: column 27"},
		{"limits: {maxMessage: 17179869184GiB}", "line 1: column 22"}, // 2⁶⁴, which is not 0
		{"limits: {maxMessage: 1025GiB}", "up to 1024GiB"},
	} {
		_, err := parseConfig([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: got %v, want %s", c.text, err, c.want)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"listeners: [{url: http://x}]", `scheme "http" is not offered`},
		{"listeners: [{url: ws://127.0.0.1}]", "write ws://HOST:PORT"},
		{"http: {origins: [app.example]}", `line 1: column 18: http.origins[0]: "app.example"`},
		{"listeners: [{url: amqp://x:99999}]", "out of range"},
		{"anonymousRole: king", "no such role"},
		{"http: {listen: nonsense}", "write HOST:PORT"},
		{"http: {listen: '127.0.0.1:65536'}", `http.listen: "127.0.0.1:65536": port "65536" is out of range`},
		{"http: {listen: '127.0.0.1:-1'}", `port "-1" is out of range`},
		{"listeners: [{url: 'amqp://127.0.0.1:-1'}]", "not a URL"},
		{"http: {listen: '127.0.0.1:0', tls: {cert: a}}", "line 1: column 36: http.tls: write tls: {cert: FILE, key: FILE}"},
		{"http: {listen: '127.0.0.1:0', tls: {cert: nowhere.crt, key: nowhere.key}}", "http.tls.cert: open nowhere.crt"},
		{"listeners: [{url: 'amqp://127.0.0.1'}, {url: 'amqp://127.0.0.1:5672'}]", "line 1: column 46: listeners[1].url: amqp://127.0.0.1:5672 is there already, at listeners[0].url"},
		{"listeners: [{url: 'amqp://127.0.0.1:1'}]\nhttp: {listen: '127.0.0.1:1'}", "line 2: column 16: http.listen: 127.0.0.1:1 is there already, at listeners[0].url"},
		{"components: {file: x, grpc: '127.0.0.1:1', genesis: '127.0.0.1:1'}", "components.genesis: 127.0.0.1:1 is there already, at components.grpc"},
		{"components: {tls: {clientCA: x}}", "line 1: column 19: components.tls: write tls: {cert: FILE, key: FILE}"},
		{"components: {genesisTLS: {cert: x}}", "components.genesisTLS: write genesisTLS: {cert: FILE, key: FILE}"},
		{"components: {file: x, genesis: '127.0.0.1:1', genesisTLS: {cert: nowhere, key: y}}", "line 1: column 66: components.genesisTLS.cert: open nowhere"},
		{"components: {file: nowhere}", "components.file: open nowhere"},
		{"nats: {tokenEnv: FINGERPOST_NO_SUCH}\ncomponents: {file: ../../testdata/components/components.yaml}", "line 1: column 18: nats.tokenEnv: the environment has no FINGERPOST_NO_SUCH"},
		{"events: {links: [{url: 'ws://h', tokenFile: nowhere}]}", "line 1: column 45: events.links[0].tokenFile: open nowhere"},
		{"tables: [nowhere.yaml]", "line 1: column 10: tables[0]: nowhere.yaml: no such file"},
		{"tables: ['']", "line 1: column 10: tables[0]: "},
		{"limits: {hardQueue: 799}", "line 1: column 21: limits.hardQueue: softQueue is 800, and hardQueue 799"},
		{"limits: {softQueue: 5001}", "line 1: column 21: limits.softQueue: softQueue is 5001, and hardQueue 5000"},
		{"limits: {softQueue: 9, hardQueue: 8}", "line 1: column 35: limits.hardQueue"},
		{"limits: {softQueueBytes: 65MiB}", "limits.softQueueBytes"},
		{"limits: {maxFrame: 100}", "512 to 16MiB"},
		{"tables: [nowhere.yaml]", "nowhere.yaml"},
		{"http: {tls: {cert: x}}", "line 1: column 13: http.tls: write tls: {cert: FILE, key: FILE}"},
		{"relay: {keys: nowhere.json}", "line 1: column 15: relay.keys: open nowhere.json"},
		{"relay: {busy: -1s}", "relay.busy: it cannot be negative"},
		{"relay: {maxMessage: 1GiB}", "relay.maxMessage: 1073741824 is out of range"},
		{"relay: {maxMessage: 1MiB, maxData: 2MiB}", "relay.maxData: no message can hold that much"},
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

// What a flag says is told by the flag's name, and not by a key of a file that there may not be.
func TestBadFlagsAreNamed(t *testing.T) {
	for _, c := range []struct {
		name, want string
		set        func(*Config)
	}{
		{"a scheme", `--listen: "foo": scheme "" is not offered`, func(c *Config) { c.Listen([]string{"amqp://127.0.0.1:0", "foo"}) }},
		{"twice", "--listen: amqp://127.0.0.1:1 is there already", func(c *Config) { c.Listen([]string{"amqp://127.0.0.1:1", "amqp://127.0.0.1:1"}) }},
		{"TLS", "--listen: amqps://127.0.0.1:0 needs tls: {cert: FILE, key: FILE}, in a configuration file", func(c *Config) { c.Listen([]string{"amqps://127.0.0.1:0"}) }},
		{"HTTP", `--http: "foo": write HOST:PORT, or off`, func(c *Config) { c.ListenHTTP("foo") }},
		{"another key of HTTP", `line 3: column 18: http.origins[0]: "app"`, func(c *Config) { c.ListenHTTP("127.0.0.1:0") }},
		{"another key", "line 2: column 16: anonymousRole: ", func(c *Config) { c.Listen([]string{"amqp://127.0.0.1:0"}) }},
	} {
		text := "listeners: [{url: 'amqp://127.0.0.1:0'}]\n"
		switch c.name {
		case "another key":
			text += "anonymousRole: king"
		case "another key of HTTP":
			text += "name: a\nhttp: {origins: [app]}"
		}
		got, err := parseConfig([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		c.set(&got)
		if err := Check(got); err == nil || !strings.Contains(err.Error(), c.want) || strings.HasPrefix(c.want, "--") && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add("name: x\nlisteners: [{url: amqp://127.0.0.1:1}]\nlimits: {maxFrame: 64KiB, deliveryTimeout: 3s}")
	f.Fuzz(func(t *testing.T, text string) { parseConfig([]byte(text)) })
}
