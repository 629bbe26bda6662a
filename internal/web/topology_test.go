package web

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/events"
	"github.com/fingerpost/fingerpost/internal/websocket"
	"github.com/fingerpost/fingerpost/routetable"
)

// watched is a node with events and a component, and its pages.
func watched(t *testing.T, hidden bool) (h http.Handler, component *websocket.Conn) {
	t.Helper()
	return watchedOn(t, routetable.New(), hidden)
}

func watchedOn(t *testing.T, table *routetable.Table, hidden bool) (h http.Handler, component *websocket.Conn) {
	t.Helper()
	core := admin.New(table, admin.Options{})
	node := forwarder.New(core, forwarder.Options{Name: "east"})
	router := events.New(core, events.Options{ID: node.ID()})
	router.Attach(node)
	doors := httptest.NewServer(router.Handler())
	c, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(doors.URL, "http")+"/router/manager", websocket.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.End(websocket.Normal, "")
		router.Close()
		node.Stop(context.Background())
		doors.Close()
	})
	say := func(f string, answers int) {
		c.Lock()
		c.Append(true, []byte(f))
		c.Flush()
		c.Unlock()
		for range answers {
			if _, _, err := c.Next(); err != nil {
				t.Fatal(err)
			}
		}
	}
	say(`{"op":"hello","name":"Mail"}`, 1)
	say(`{"op":"subscribe","type":"SendMail","direction":"request"}`, 1)
	say(`{"op":"event","ref":1,"id":"1","type":"Lost","data":{}}`, 1)
	say(`{"op":"health","check":"1","status":"OK","exceptions":[],"vitals":{"rss":5}}`, 0)
	say(`{"op":"event","ref":2,"id":"2","type":"Lost","data":{}}`, 1)
	if _, err := table.Add("COLOSSUS", "amqp://user:secret@5.6.7.8:1234"); err != nil {
		t.Fatal(err)
	}
	return handler(Options{Topology: &Topology{Name: "east", ID: node.ID(), Table: table, Node: node, Events: router, Hidden: hidden}}), c
}

func ask(h http.Handler, path, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestE37TheTopologyCanBeHidden(t *testing.T) {
	for _, hidden := range []bool{true, false} {
		h, _ := watched(t, hidden)
		want := map[bool]int{true: http.StatusNotFound, false: http.StatusOK}[hidden]
		for _, path := range []string{"/", "/topology", "/edri/topology"} {
			if got := ask(h, path, "").Code; got != want {
				t.Errorf("%s where hidden is %v: got %d", path, hidden, got)
			}
		}
		if got := ask(h, "/health", "").Code; got != http.StatusOK {
			t.Errorf("/health: got %d", got)
		}
	}
}

func TestE38OneURLForBrowsersAndPrograms(t *testing.T) {
	h, _ := watched(t, false)
	for _, path := range []string{"/topology", "/edri/topology", "/health", "/edri/health", "/edri/health-check-status"} {
		for _, c := range []struct {
			accept string
			html   bool
		}{
			{"text/html", true}, {"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true}, {"application/json", false}, {"", false}, {"*/*", false},
			{"application/json, text/html;q=0.5", false}, {"text/html;q=0", false},
		} {
			w := ask(h, path, c.accept)
			isHTML := strings.HasPrefix(w.Header().Get("Content-Type"), "text/html")
			if w.Code != http.StatusOK || isHTML != c.html || isHTML == json.Valid(w.Body.Bytes()) || w.Header().Get("Vary") != "Accept" {
				t.Errorf("%s with %q: %d %v", path, c.accept, w.Code, w.Header())
			}
		}
	}
	page := ask(h, "/topology", "text/html")
	if csp := page.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(page.Body.String(), "NONCE") {
		t.Errorf("policy %q", csp)
	}
}

// The console is a page of the same kind, at the root and nowhere else; passwords in rows are not in it.
func TestTheConsole(t *testing.T) {
	h, _ := watched(t, false)
	if got := ask(h, "/", "text/html").Body.String(); !strings.Contains(got, `data-page="console"`) {
		t.Error("a browser gets another page")
	}
	if got := ask(h, "/", "").Body.String(); !strings.Contains(got, `"COLOSSUS"`) || strings.Contains(got, "secret") {
		t.Errorf("a program gets %s", got)
	}
	if got := ask(h, "/nothing", "").Code; got != http.StatusNotFound {
		t.Errorf("another path: %d", got)
	}
}

func TestTheTopologyAsJSON(t *testing.T) {
	h, _ := watched(t, false)
	var v view
	text := ask(h, "/topology", "").Body
	if strings.Contains(text.String(), "secret") {
		t.Error("a password is shown")
	}
	if err := json.Unmarshal(text.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Components) != 1 || v.Components[0].Name != "Mail" || v.Components[0].Requests[0] != "SendMail" || v.Components[0].Health != "OK" || v.Components[0].Outbound.StalledSeconds != nil {
		t.Errorf("components %+v", v.Components)
	}
	if len(v.Unrouted) != 1 || v.Unrouted[0].Type != "Lost" || v.Unrouted[0].Drops != 2 || v.Unrouted[0].State != "NOT WIRED" || v.Unrouted[0].Direction != "request" {
		t.Errorf("unrouted %+v", v.Unrouted)
	}
	if v.Connector.Connected || v.Router.Name != "east" || v.Router.Kept != 2 {
		t.Errorf("%+v, %+v", v.Connector, v.Router)
	}
	var raw map[string]any
	json.Unmarshal(text.Bytes(), &raw)
	for _, list := range []string{"components", "links", "unrouted", "shared", "unread", "amqp", "peers", "hops", "unroutedAddresses", "routes"} {
		if _, isList := raw[list].([]any); !isList {
			t.Errorf("%s is %v, no list", list, raw[list])
		}
	}
}

// Rows to who is not there are told, whatever kind of hop or name it is; rows to who is there, and to nothing, are not.
func TestTheTopologyTellsOfHopsThatNobodyReads(t *testing.T) {
	table := routetable.New()
	h, _ := watchedOn(t, table, false)
	for pattern, address := range map[string]string{
		"event:req/Saved": "link:backup", "COLOSSUS": "link:backup", "HAL9000": "event-conn:Nobody", "MULTIVAC": "event-conn:Mail", "GUARDIAN": "null", "SKYNET": "event:req/Lost", "JOSHUA": "event:req/SendMail",
	} {
		if _, err := table.Add(pattern, address); err != nil {
			t.Fatal(err)
		}
	}
	var v view
	if err := json.Unmarshal(ask(h, "/topology", "").Body.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	slices.Sort(v.Unread)
	if want := []string{"event-conn:Nobody", "event:req/Lost", "link:backup"}; !slices.Equal(v.Unread, want) {
		t.Errorf("got %q, want %q", v.Unread, want)
	}
}

func TestHealthAsJSON(t *testing.T) {
	h, _ := watched(t, false)
	var v healthView
	if err := json.Unmarshal(ask(h, "/edri/health", "").Body.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	if s := v.Data.Statuses; v.Status != "OK" || len(s) != 1 || s[0].Name != "Mail" || s[0].Status != "OK" || s[0].LastReply == nil || string(s[0].Vitals) != `{"rss":5}` || s[0].Exceptions == nil {
		t.Errorf("%+v", v)
	}
}
