package app

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestEventsTakeTheEnvironmentOverTheFile(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		want Events
		bad  string
	}{
		{name: "nothing is set", want: Events{Window: Duration(7 * time.Second)}},
		{name: "names of EDRI", env: map[string]string{
			"EDRI_CACHE_TIMEOUT": "45", "EDRI_CACHE_INFO_MESSAGE": "90", "EDRI_ROUTER_OUTBOUND_QUEUE_SOFT_LIMIT": "8", "EDRI_ROUTER_OUTBOUND_QUEUE_HARD_LIMIT": "50",
			"EDRI_ROUTER_OUTBOUND_STALL_SECONDS": "2.5", "EDRI_HEALTH_CHECK_TIMEOUT": "11", "EDRI_HEALTH_CHECK_FAILURE_LIMIT": "4",
		}, want: Events{
			Window: Duration(45 * time.Second), InfoEvery: Duration(90 * time.Second), Soft: 8, Hard: 50, Stall: Duration(2500 * time.Millisecond),
			HealthEvery: Duration(11 * time.Second), HealthLimit: 4,
		}},
		{name: "ours go first", env: map[string]string{"EDRI_CACHE_TIMEOUT": "45", "FINGERPOST_EVENTS_WINDOW": "1m", "FINGERPOST_EVENTS_WINDOW_BYTES": "4MiB"}, want: Events{
			Window: Duration(time.Minute), WindowBytes: 4 << 20,
		}},
		{name: "empty is not set", env: map[string]string{"EDRI_CACHE_TIMEOUT": "", "FINGERPOST_EVENTS_SOFT": "", "EDRI_ROUTER_OUTBOUND_QUEUE_SOFT_LIMIT": "9", "EDRI_SWITCH_HOST": "", "EDRI_SWITCH_PORT": ""}, want: Events{
			Window: Duration(7 * time.Second), Soft: 9,
		}},
		{name: "a switch", env: map[string]string{"EDRI_SWITCH_PORT": "7", "EDRI_CACHE_TIMEOUT": "10"}, want: Events{
			Window: Duration(10 * time.Second), Links: []EventLink{{URL: "ws://localhost:7/router/link"}},
		}},
		{name: "a switch, and a window that is too short", env: map[string]string{"EDRI_SWITCH_PORT": "7", "EDRI_CACHE_TIMEOUT": "9.9"}, bad: "events.window: 9.9s is too short for links to other routers: at least 10s"},
		{name: "no port", env: map[string]string{"EDRI_SWITCH_PORT": "65536"}, bad: "environment EDRI_SWITCH_HOST, EDRI_SWITCH_PORT"},
		{name: "no host", env: map[string]string{"EDRI_SWITCH_HOST": "a b"}, bad: "environment EDRI_SWITCH_HOST, EDRI_SWITCH_PORT"},
		{name: "no window to speak of", env: map[string]string{"EDRI_CACHE_TIMEOUT": "1e-9"}, bad: "environment EDRI_CACHE_TIMEOUT: 1ns is out of range: at least 10ms"},
		{name: "no interval to speak of", env: map[string]string{"FINGERPOST_EVENTS_HEALTH_EVERY": "1us"}, bad: "environment FINGERPOST_EVENTS_HEALTH_EVERY: "},
		{name: "fewer than none", env: map[string]string{"EDRI_ROUTER_OUTBOUND_QUEUE_HARD_LIMIT": "-1"}, bad: "environment EDRI_ROUTER_OUTBOUND_QUEUE_HARD_LIMIT: -1 is out of range"},
		{name: "slow past the end", env: map[string]string{"EDRI_ROUTER_OUTBOUND_QUEUE_SOFT_LIMIT": "5001"}, bad: "environment EDRI_ROUTER_OUTBOUND_QUEUE_SOFT_LIMIT: 5001 is above the hard limit, 5000"},
		{name: "slow at the end", env: map[string]string{"EDRI_ROUTER_OUTBOUND_QUEUE_HARD_LIMIT": "50"}, want: Events{Window: Duration(7 * time.Second), Hard: 50}},
		{name: "no number", env: map[string]string{"EDRI_ROUTER_OUTBOUND_QUEUE_SOFT_LIMIT": "many"}, bad: "EDRI_ROUTER_OUTBOUND_QUEUE_SOFT_LIMIT"},
		{name: "no time", env: map[string]string{"EDRI_CACHE_TIMEOUT": "-1"}, bad: "EDRI_CACHE_TIMEOUT"},
	} {
		conf := Config{Events: Events{Window: Duration(7 * time.Second)}}
		err := conf.Environment(func(name string) (string, bool) { v, ok := c.env[name]; return v, ok })
		if err == nil {
			_, err = conf.validate()
		}
		switch {
		case c.bad != "":
			if err == nil || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%s: %v", c.name, err)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case !sameEvents(conf.Events, c.want):
			t.Errorf("%s: got %+v, want %+v", c.name, conf.Events, c.want)
		}
	}
}

func sameEvents(a, b Events) bool {
	return a.Window == b.Window && a.WindowBytes == b.WindowBytes && a.Soft == b.Soft && a.Hard == b.Hard && a.Stall == b.Stall &&
		a.HealthEvery == b.HealthEvery && a.HealthLimit == b.HealthLimit && a.InfoEvery == b.InfoEvery && slices.Equal(a.Links, b.Links)
}

// The topology is shown but in production, and there where it is asked for; a False is false.
func TestWhenTheTopologyIsShown(t *testing.T) {
	for _, c := range []struct {
		environment, edri string
		want              bool
	}{{"", "", true}, {"development", "", true}, {"Production", "", false}, {"production", "true", true}, {"production", "True", true}, {"", "False", false}} {
		var conf Config
		err := conf.Environment(func(name string) (string, bool) {
			v := map[string]string{"ENVIRONMENT": c.environment, "EDRI_API_ENABLE_TOPOLOGY": c.edri}[name]
			return v, v != ""
		})
		if got := conf.Events.Topology == nil || *conf.Events.Topology; err != nil || got != c.want {
			t.Errorf("%+v: got %v, %v", c, got, err)
		}
	}
}

func TestTokensOfComponents(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]string{`[{token: short}]`: "8 bytes", `[{token: longenough, nmes: []}]`: "nmes", `[{token: longenough, send: ["glob:{"]}]`: "glob"} {
		write(text)
		if _, err := readTokens(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	write(`[{token: first-secret, name: mail, names: [Mail], subscribe: ["event:req/Mail*"]}, {token: second-secret, name: all, link: true}]`)
	tokens, err := readTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	who := authorizer(tokens)
	ask := func(header, query, from string) string {
		r := httptest.NewRequest(http.MethodGet, "/router/manager"+query, nil)
		r.RemoteAddr = from
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		a, err := who(r)
		if err != nil {
			return "nobody"
		}
		return a.Name
	}
	for _, c := range []struct{ header, query, want string }{
		{"Bearer first-secret", "", "mail"}, {"", "?token=second-secret", "all"}, {"Bearer wrong-secret", "", "nobody"}, {"", "", "nobody"}, {"Bearer ", "?token=second-secret", "nobody"},
	} {
		if got := ask(c.header, c.query, "127.0.0.1:5"); got != c.want {
			t.Errorf("%q %q: got %s", c.header, c.query, got)
		}
	}
	a := tokens[0].account
	if a.Names.Allow("Other") || !a.Names.Allow("Mail") || !a.Subscribe.Allow("event:req/MailSent") || a.Subscribe.Allow("event:res/MailSent") || a.Send != nil {
		t.Errorf("%+v", a)
	}
	who = authorizer(nil)
	if ask("", "", "[::1]:5") == "nobody" || ask("", "", "192.0.2.1:5") != "nobody" {
		t.Error("without tokens this machine may, and nobody else")
	}
}
