package routetable

import (
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// vectors is testdata/messenger/vectors.yaml.
type vectors struct {
	Translate []struct {
		ID         string
		Routes     [][]*string
		Input      string
		Rule       *int
		Translated string
	}
	Parse []struct {
		Address, Host, Service string
		TLS                    bool
		User, Pass, Target     *string
		SASL                   string
		Fails                  bool `yaml:"lookup_fails"`
		Listens                bool
	}
}

func loadVectors(t *testing.T) *vectors {
	t.Helper()
	data, err := os.ReadFile("../testdata/messenger/vectors.yaml")
	if err != nil {
		t.Fatal(err)
	}
	v := &vectors{}
	if err := yaml.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
	return v
}

func unhex(s string) string {
	if h, ok := strings.CutPrefix(s, "hex:"); ok {
		b, err := hex.DecodeString(h)
		if err != nil {
			panic(err)
		}
		return string(b)
	}
	return s
}

// TestMessengerTranslate runs what Messenger was seen to do. Rows whose literal address a table refuses are compared by the engine that
// Explain uses.
func TestMessengerTranslate(t *testing.T) {
	for _, v := range loadVectors(t).Translate {
		t.Run(v.ID, func(t *testing.T) {
			table := New(DynamicHosts())
			if _, err := table.SetMatch(MatchFirst); err != nil {
				t.Fatal(err)
			}
			for _, r := range v.Routes {
				address := NullAddress
				if r[1] != nil {
					address = *r[1]
				}
				if _, err := table.Add(unhex(*r[0]), unhex(address)); err != nil {
					t.Fatalf("add %q %q: %v", *r[0], address, err)
				}
			}
			x := table.Snapshot().Explain(unhex(v.Input), "", nil)
			var used []Explained
			for _, m := range x.Matches {
				if m.Used {
					used = append(used, m)
				}
			}
			if v.Rule == nil {
				if len(used) != 0 {
					t.Fatalf("got a match of %q, want none", used[0].Pattern)
				}
				return
			}
			if len(used) != 1 {
				t.Fatalf("got %d rows, want 1", len(used))
			}
			row := v.Routes[*v.Rule]
			if used[0].Pattern != unhex(*row[0]) {
				t.Errorf("got the row of %q, want %q", used[0].Pattern, *row[0])
			}
			if row[1] != nil && used[0].Result != unhex(v.Translated) {
				t.Errorf("got %q, want %q", used[0].Result, unhex(v.Translated))
			}
		})
	}
}

// refusedHere are addresses of the vectors that Messenger could use and a table refuses: see the package comment.
var refusedHere = map[string]string{
	"user@[::1]:amqp":                                 "a port is a number",
	"user:1243^&^:pw@[::1]:amqp":                      "a port is a number",
	"user:1243^&^:pw@::1]:amqp/Foo.bar:90087":         "a port is a number",
	"amqp://user:1243^&^:pw@[::1]:amqp/Foo.bar:90087": "a port is a number",
	"amqp:/host/q":                                    "the port is empty",
	"::1":                                             "IPv6 without brackets",
	"u@v@host/q":                                      "an @ in the host",
	"u:p@v:q@host:5/q":                                "an @ in the host",
	"host: 5672/q":                                    "a port is a number",
}

func TestMessengerParse(t *testing.T) {
	for _, v := range loadVectors(t).Parse {
		t.Run(v.Address, func(t *testing.T) {
			p, err := parseHop(v.Address)
			if _, ok := refusedHere[v.Address]; ok || v.Fails {
				if err == nil {
					t.Fatalf("got host %q, want a refusal", p.Host)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if v.Listens {
				if p.problem == "" {
					t.Error("a listening address has no problem")
				}
				return
			}
			text := func(s *string) string {
				if s == nil {
					return "none"
				}
				return strconv.Quote(unhex(*s))
			}
			have := func(s string, is bool) string {
				if !is {
					return "none"
				}
				return strconv.Quote(s)
			}
			port, _ := strconv.Atoi(v.Service)
			if p.Host != strings.ToLower(v.Host) || int(p.Port) != port {
				// AMQPS is TLS here, with its port.
				if v.Address != "AMQPS://host/q" || p.Port != 5671 {
					t.Errorf("got host %q port %d, want %q %s", p.Host, p.Port, v.Host, v.Service)
				}
			}
			if tls := p.Scheme == "amqps"; tls != v.TLS && v.Address != "AMQPS://host/q" {
				t.Errorf("got TLS %v, want %v", tls, v.TLS)
			}
			// The vectors tell what went over the wire: of a user without a password nothing did, and an empty one is as none.
			if got := have(p.User, p.HasUser); got != text(v.User) && v.SASL != "ANONYMOUS" {
				t.Errorf("got user %s, want %s", got, text(v.User))
			}
			if got := have(p.Password, p.HasPass); got != text(v.Pass) && !(v.Pass == nil && got == `""`) {
				t.Errorf("got password %s, want %s", got, text(v.Pass))
			}
			// The name "#" asks a Messenger for a dynamic terminus, so its link has no target.
			if got := have(p.Name, p.HasName); got != text(v.Target) && got != `"#"` {
				t.Errorf("got name %s, want %s", got, text(v.Target))
			}
		})
	}
}
