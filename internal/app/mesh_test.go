package app

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/mesh"
	"github.com/fingerpost/fingerpost/internal/websocket"
)

// Listeners of Rembus are ready like the others; a port that has to be chosen is told.
func TestListenersOfRembus(t *testing.T) {
	var ready bytes.Buffer
	load := func() (Config, error) {
		c, err := parseConfig([]byte("listeners: [{url: 'amqp://127.0.0.1:0'}, {url: 'rembus+ws://127.0.0.1:0'}, {url: 'rembus+tcp://127.0.0.1:0'}]\nstate: " + t.TempDir()))
		return c, err
	}
	a, err := Start(load, slog.New(slog.DiscardHandler), &ready)
	if err != nil {
		t.Fatal(err)
	}
	a.Stop()
	lines := strings.Split(strings.TrimSpace(ready.String()), "\n")
	for i, scheme := range []string{"amqp", "rembus+ws", "rembus+tcp"} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], "ready "+scheme+"://127.0.0.1:") || strings.HasSuffix(lines[i], ":0") {
			t.Errorf("got %q", lines)
		}
	}
}

func TestMeshConfiguration(t *testing.T) {
	for text, want := range map[string]string{
		"mesh: {eid: 7}":                                                  "mesh.eid: eid \"7\"",
		"mesh: {eid: auto}":                                               "",
		"mesh: {eid: 0x8000000000000001}":                                 "",
		"mesh: {policy: best}":                                            `mesh.policy: no policy "best"`,
		"mesh: {ackTimeout: -1s}":                                         "mesh.ackTimeout: it cannot be negative",
		"mesh: {sendRetries: -2}":                                         "mesh.sendRetries: -2 is out of range",
		"mesh: {retentionBytes: 1MiB}":                                    "mesh.retentionBytes: 1048576 is out of range",
		"mesh: {maxMessage: 17MiB}":                                       "mesh.maxMessage: 17825792 is out of range",
		"mesh: {retention: -1s, retentionBytes: 4MiB}":                    "",
		"mesh: {requestTimeout: -1s}":                                     "mesh.requestTimeout: it cannot be negative",
		"listeners: [{url: 'rembus+ws://h:1', sasl: [ANONYMOUS]}]":        "are for AMQP",
		"listeners: [{url: 'rembus+wss://h:1'}]":                          "needs tls",
		"listeners: [{url: 'rembus+zmq://h:1'}]":                          "is not offered",
		"listeners: [{url: 'rembus+tcp://h:1/x'}]":                        "nothing more",
		"listeners: [{url: 'rembus+ws://h'}, {url: 'rembus+tcp://h'}]":    "",
		"mesh: {peers: [{url: 'http://h'}]}":                              "mesh.peers[0].url",
		"mesh: {peers: [{url: 'ws://h', failovers: ['x']}]}":              "mesh.peers[0].failovers[0]",
		"mesh: {peers: [{url: 'ws://h', failovers: ['ws://h:8338/']}]}":   "mesh.peers[0].failovers[0]: ws://h:8338/ is there already",
		"mesh: {peers: [{url: 'ws://h/east'}]}":                           "mesh.peers[0].url: peer \"ws://h/east\": nothing more",
		"mesh: {peers: [{url: 'ws://h:0'}]}":                              "the port is 1 to 65535",
		"mesh: {peers: [{url: 'ws://h:70000'}]}":                          "the port is 1 to 65535",
		"mesh: {peers: [{url: ''}]}":                                      "mesh.peers[0].url",
		"mesh: {peers: [{}]}":                                             "mesh.peers[0].url",
		"mesh: {peers: [{url: 'ws://h', as: '123'}]}":                     "mesh.peers[0].as",
		"mesh: {peers: [{url: 'ws://h', as: \"a\\tb\"}]}":                 "mesh.peers[0].as",
		"mesh: {peers: [{url: 'ws://h', ca: x}]}":                         "mesh.peers[0].ca: it is for wss and tls",
		"mesh: {peers: [{url: 'ws://h'}, {url: 'ws://h:8338'}]}":          "mesh.peers[1].url: ws://h:8338 is there already",
		"mesh: {peers: [{url: 'ws://h', as: a}, {url: 'ws://h', as: b}]}": "",
		"mesh: {peers: [{url: 'ws://h', as: a}, {url: 'ws://g', as: a}]}": "",
		"mesh: {ackTimeout: 0s}":                                          "mesh.ackTimeout: it cannot be 0",
		"mesh: {requestTimeout: 0s}":                                      "mesh.requestTimeout: it cannot be 0",
		"mesh: {sendRetries: 0}":                                          "mesh.sendRetries: it cannot be 0: -1 is never",
		"mesh: {maxMessage: 0}":                                           "mesh.maxMessage: it cannot be 0",
		"mesh: {retention: 0s}":                                           "mesh.retention: it cannot be 0: -1s is not at all",
		"mesh: {retentionBytes: 0}":                                       "mesh.retentionBytes: it cannot be 0",
		"mesh: {eid: 0}":                                                  "mesh.eid",
		"mesh: {eid: -1}":                                                 "mesh.eid",
		"mesh: {admins: []}":                                              "",
		"mesh: {admins: ['']}":                                            "mesh.admins[0]",
		"mesh: {admins: [a, a]}":                                          "mesh.admins[1]: \"a\" is there already",
		"mesh: {admins: [12]}":                                            "mesh.admins[0]",
		"mesh: {tenants: {'.': ''}}":                                      "mesh.tenants..: the pin is empty",
		"mesh: {tenants: {org: }}":                                        "mesh.tenants.org: the pin is empty",
		"mesh: {tenants: {'2024': '1'}}":                                  "",
		"mesh: {httpSubscribe: true}":                                     "mesh.httpSubscribe: it needs",
		"http: {listen: '127.0.0.1:80'}\nlisteners: [{url: 'rembus+ws://127.0.0.1:1'}]\nmesh: {httpSubscribe: true}": "",
		"listeners: [{url: 'rembus+ws://127.0.0.1:8338'}]\nmesh: {peers: [{url: 'ws://127.0.0.1'}]}":                 "mesh.peers[0].url: ws://127.0.0.1 is this router",
		"mesh: {tenants: {'': '1'}}":                                       "mesh.tenants: \"\" is no tenant",
		"mesh: {tenants: {'.org': '1'}}":                                   "mesh.tenants: \".org\" is no tenant",
		"mesh: {peers: [{url: 'ws://h', keyFile: a, secretFile: b}]}":      "one of them",
		"mesh: {policy: less_busy, tenants: {'.': '11'}, sendRetries: -1}": "",
	} {
		c, err := parseConfig([]byte(text))
		if err == nil {
			_, err = c.validate()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// Who may give privileged commands changes with a reload, and with load_config.
func TestReloadChangesTheAdminsOfTheMesh(t *testing.T) {
	var ready bytes.Buffer
	admins := "boss"
	load := func() (Config, error) {
		return parseConfig([]byte("listeners: [{url: 'rembus+ws://127.0.0.1:0'}]\nmesh: {overwrite: true, admins: [" + admins + "]}"))
	}
	a, err := Start(load, slog.New(slog.DiscardHandler), &ready)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	may := func(name, command string) bool {
		t.Helper()
		url, _ := strings.CutPrefix(strings.TrimSpace(ready.String()), "ready rembus+")
		ws, err := websocket.Dial(context.Background(), url+"/", websocket.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer ws.End(0, "")
		cmd := append([]byte("\xa1\x63cmd"), byte(0x60+len(command)))
		var f mesh.Frame
		for _, say := range []mesh.Frame{{Type: mesh.Identity, Name: []byte(name)}, {Type: mesh.Admin, Name: []byte("x"), Data: append(cmd, command...)}} {
			ws.Lock()
			ws.Append(false, mesh.AppendFrame(nil, &say))
			ws.Flush()
			ws.Unlock()
			for f = (mesh.Frame{}); f.Type != mesh.Response; {
				m, _, err := ws.Next()
				if err != nil || mesh.ParseFrame(m.Data, &f) != nil {
					t.Fatal(err)
				}
			}
		}
		return f.Status == mesh.StatusOK
	}
	if !may("boss", "broker_config") || may("carol", "broker_config") {
		t.Error("the admins are not as configured")
	}
	admins = "carol"
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	if may("boss", "broker_config") || !may("carol", "broker_config") {
		t.Error("after a reload the admins are not as configured")
	}
	admins = "dan"
	if !may("carol", "load_config") || may("carol", "broker_config") || !may("dan", "broker_config") {
		t.Error("after load_config the admins are not as configured")
	}
}

// A router that connects to another and loses it says that once, and of no component that bears its own name.
func TestALostPeerIsNoComponent(t *testing.T) {
	var ready bytes.Buffer
	start := func(text string, log *slog.Logger) *App {
		t.Helper()
		a, err := Start(func() (Config, error) { return parseConfig([]byte(text)) }, log, &ready)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.Stop)
		return a
	}
	lines := make(logLines, 100)
	next := func(wanted string) {
		t.Helper()
		for {
			select {
			case line := <-lines:
				if strings.Contains(line, "a component has gone") {
					t.Errorf("the log says %s", line)
				}
				if strings.Contains(line, wanted) {
					return
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("the log does not say %q", wanted)
			}
		}
	}
	hub := start("name: hub\nlisteners: [{url: 'rembus+ws://127.0.0.1:0'}]", slog.New(slog.DiscardHandler))
	url, _ := strings.CutPrefix(strings.TrimSpace(ready.String()), "ready rembus+")
	start("name: leaf\nlisteners: [{url: 'rembus+ws://127.0.0.1:0'}]\nmesh: {peers: [{url: '"+url+"'}]}", slog.New(slog.NewTextHandler(lines, nil)))
	next("connected to a router")
	hub.Stop()
	next("a router is away")
}

// logLines gives each line of a log.
type logLines chan string

func (l logLines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// A router lists its neighbours of the mesh once each, by their own names: those that connect, and those that it connects to.
func TestPeersAreListed(t *testing.T) {
	start := func(text string) (*App, string) {
		t.Helper()
		var ready bytes.Buffer
		a, err := Start(func() (Config, error) { return parseConfig([]byte(text)) }, slog.New(slog.DiscardHandler), &ready)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.Stop)
		url, _ := strings.CutPrefix(strings.TrimSpace(ready.String()), "ready rembus+")
		return a, url
	}
	hub, url := start("name: hub\nlisteners: [{url: 'rembus+ws://127.0.0.1:0'}]")
	leaf, _ := start("name: leaf\nlisteners: [{url: 'rembus+ws://127.0.0.1:0'}]\nmesh: {peers: [{url: '" + url + "'}]}")
	for at, name := range map[*App]string{hub: "leaf", leaf: "hub"} {
		list := func() []admin.Entity { return listPeers(at.mesh, at.node, at.events) }
		is := func(e admin.Entity) bool { // the hop is the link's name, at both ends
			return e["class"] == "rembus-router" && e["name"] == name && e["state"] == "connected" && e["hop"] == "peer:leaf" && e["nodeId"] != ""
		}
		for until := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			got := list()
			if len(got) == 1 && is(got[0]) {
				break
			}
			if time.Now().After(until) {
				t.Fatalf("%s has these peers: %v", at.config.Name, got)
			}
		}
	}
}
