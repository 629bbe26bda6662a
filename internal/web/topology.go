package web

import (
	"cmp"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/events"
	"github.com/fingerpost/fingerpost/internal/mesh"
	"github.com/fingerpost/fingerpost/internal/relay"
	"github.com/fingerpost/fingerpost/routetable"
)

// Topology is what the pages /topology and /health look at.
type Topology struct {
	Name, ID, Version string

	Table  *routetable.Table
	Node   *forwarder.Node
	Events *events.Router
	Relay  *relay.Broker // nil: there is none
	Mesh   *mesh.Mesh    // the same
	Hidden bool          // /topology is not served
}

// view is the answer of /topology.
type view struct {
	Router     routerView         `json:"router"`
	Components []events.Component `json:"components"`
	Connector  connector          `json:"connector"`
	Links      []events.LinkState `json:"links"`
	Unrouted   []events.Unrouted  `json:"unrouted"`
	Shared     []sharedType       `json:"shared"` // types with more than one handler
	Unread     []string           `json:"unread"` // components with subscriptions that are not well, hops of rows that are away, or where nobody is
	AMQP       []linkView         `json:"amqp"`   // links of clients
	Peers      []peerView         `json:"peers"`  // connections of the relay and of Rembus
	Hops       []hopView          `json:"hops"`   // peers that rows name
	Lost       []lostView         `json:"unroutedAddresses"`
	Routes     []routeView        `json:"routes"` // the first of them, those of components and links of clients left out
	Counters   map[string]uint64  `json:"counters"`
}

type routerView struct {
	Name    string `json:"name"`
	ID      string `json:"id"`
	Version string `json:"version"`
	Time    string `json:"time"`
	Rows    int    `json:"rows"`
	Kept    int    `json:"eventsKept"`
	Bytes   int    `json:"eventBytes"`
}

// connector is the edge to other routers: the types that cross it.
type connector struct {
	Connected bool     `json:"connected"`
	Requests  []string `json:"requests"`
	Responses []string `json:"responses"`
	Shareable []string `json:"shareable"`
}

type sharedType struct {
	Type      string   `json:"type"`
	Direction string   `json:"direction"`
	Handlers  []string `json:"handlers"`
}

type linkView struct {
	Link      string `json:"link"`
	Container string `json:"container"`
	Class     string `json:"class"`
	Address   string `json:"address"`
	Credit    uint32 `json:"credit"`
	InFlight  int    `json:"inFlight"`
	Messages  uint64 `json:"messages"`
}

type peerView struct {
	Hop       string `json:"hop"` // as rows name it
	Class     string `json:"class"`
	Name      string `json:"name"`
	Remote    string `json:"remote,omitempty"`
	Connected bool   `json:"connected"`
	Waiting   int    `json:"waiting"` // what is on its way there, and requests that it has not answered
}

type hopView struct {
	Hop     string `json:"hop"`
	State   string `json:"state"`
	Waiting int    `json:"waiting"`
	Copies  uint64 `json:"copies"`
}

type lostView struct {
	Address  string `json:"address"`
	State    string `json:"state"`
	Drops    uint64 `json:"drops"`
	LastDrop string `json:"lastDrop"`
}

type routeView struct {
	Pattern string `json:"pattern"`
	Address string `json:"address"`
	Pick    string `json:"pick"`
	Origin  string `json:"origin"`
}

// Bounds of what one answer lists.
const (
	maxShownLinks  = 500
	maxShownRoutes = 300
)

// view looks at everything.
func (t *Topology) view() *view {
	v := &view{
		Components: t.Events.Components(), Links: t.Events.Links(), Unrouted: t.Events.Unrouted(),
		Shared: []sharedType{}, Unread: []string{}, AMQP: []linkView{}, Peers: []peerView{}, Hops: []hopView{}, Lost: []lostView{}, Routes: []routeView{},
		Counters: t.Node.Counters(),
	}
	kept, bytes := t.Events.Window()
	v.Router = routerView{t.Name, t.ID, t.Version, stampOf(time.Now()), t.Table.Snapshot().Len(), kept, bytes}
	v.Connector = connector{len(v.Links) > 0, []string{}, []string{}, t.Events.Shareable()}
	for _, l := range v.Links {
		v.Connector.Requests = append(v.Connector.Requests, l.Requests...)
		v.Connector.Responses = append(v.Connector.Responses, l.Responses...)
	}
	v.Connector.Requests, v.Connector.Responses = sorted(v.Connector.Requests), sorted(v.Connector.Responses)
	if v.Connector.Shareable == nil {
		v.Connector.Shareable = []string{}
	}
	v.readNode(t.Node)
	v.readPeers(t.Relay, t.Mesh)
	v.readRoutes(t.Table.Snapshot())
	v.findShared()
	v.findUnread(t.Node)
	return v
}

func sorted(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

func stampOf(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func (v *view) readNode(n *forwarder.Node) {
	for _, l := range n.Links() {
		if l.Class == "hop" || l.Class == "management" || strings.HasPrefix(l.Address, "$") || len(v.AMQP) == maxShownLinks {
			continue
		}
		v.AMQP = append(v.AMQP, linkView{
			strconv.FormatUint(l.Connection, 10) + "/" + l.Name, l.Container, l.Class, routetable.MaskUserinfo(l.Address), l.Credit, l.InFlight, l.Messages,
		})
	}
	for _, h := range n.Hops() {
		v.Hops = append(v.Hops, hopView{h.Hop, h.State, h.Waiting, h.Copies})
	}
	for _, x := range n.Unrouted() {
		v.Lost = append(v.Lost, lostView{routetable.MaskUserinfo(x.Address), strings.ToUpper(x.Reason), x.Count, stampOf(x.Last)})
	}
}

func (v *view) readPeers(r *relay.Broker, m *mesh.Mesh) {
	if r != nil {
		all := r.Connections()
		for _, c := range all[:min(len(all), maxShownLinks)] {
			v.Peers = append(v.Peers, peerView{"relay-conn:" + c.Name, "relay", c.Domain, c.Remote, true, c.Waiting})
		}
	}
	if m != nil {
		for _, p := range m.Peers(maxShownLinks) {
			class := "rembus"
			if p.Router {
				class = "rembus-router"
			}
			v.Peers = append(v.Peers, peerView{p.Hop, class, p.Name, p.Remote, p.Connected, p.Waiting + p.Asked})
		}
	}
}

// readRoutes lists the rows that the lists of components and links do not tell of.
func (v *view) readRoutes(s *routetable.Snapshot) {
	looked := 0
	for r := range s.Routes() {
		if looked++; looked > 10*maxShownRoutes || len(v.Routes) == maxShownRoutes {
			return
		}
		if strings.HasPrefix(r.Origin, "event:") || strings.HasPrefix(r.Origin, "link:") || strings.HasPrefix(r.Pattern, "$") {
			continue
		}
		v.Routes = append(v.Routes, routeView{r.Pattern, routetable.MaskUserinfo(r.Address), r.Pick.String(), r.Origin})
	}
}

// findShared lists the types that more than one component, or receiver of AMQP, handles.
func (v *view) findShared() {
	handlers := map[[2]string][]string{}
	for i := range v.Components {
		c := &v.Components[i]
		for _, t := range c.Requests {
			handlers[[2]string{t, "request"}] = append(handlers[[2]string{t, "request"}], c.Name)
		}
		for _, t := range c.Responses {
			handlers[[2]string{t, "response"}] = append(handlers[[2]string{t, "response"}], c.Name)
		}
	}
	for _, l := range v.AMQP {
		if l.Class != "receiver" {
			continue
		}
		k := [2]string{"", "request"}
		var is bool
		if k[0], is = strings.CutPrefix(l.Address, "event:req/"); !is {
			k[0], is = strings.CutPrefix(l.Address, "event:res/")
			k[1] = "response"
		}
		if is {
			handlers[k] = append(handlers[k], cmp.Or(l.Container, l.Link))
		}
	}
	for k, names := range handlers {
		if len(names) > 1 {
			v.Shared = append(v.Shared, sharedType{k[0], k[1], names})
		}
	}
	slices.SortFunc(v.Shared, func(a, b sharedType) int { return strings.Compare(a.Type+a.Direction, b.Type+b.Direction) })
}

// findUnread lists those that events and messages are routed to and that do not read them.
func (v *view) findUnread(n *forwarder.Node) {
	for i := range v.Components {
		c := &v.Components[i]
		if len(c.Requests)+len(c.Responses) > 0 && (c.Health == "ERROR" || c.Outbound.StalledSeconds != nil) {
			v.Unread = append(v.Unread, c.Name)
		}
	}
	for _, h := range v.Hops {
		if h.State == "away" {
			v.Unread = append(v.Unread, h.Hop)
		}
	}
	for _, r := range v.Routes {
		if n.Unread(r.Address) && !slices.Contains(v.Unread, r.Address) {
			v.Unread = append(v.Unread, r.Address)
		}
	}
}

//go:embed topology.html
var topologyPage string

// register adds the pages.
func (t *Topology) register(mux *http.ServeMux) {
	topology := func(w http.ResponseWriter, r *http.Request) {
		if t.Hidden {
			http.NotFound(w, r)
			return
		}
		answer(w, r, topologyPage, func() any { return t.view() })
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if t.Hidden {
			http.NotFound(w, r)
			return
		}
		answer(w, r, strings.Replace(topologyPage, `data-page="topology"`, `data-page="console"`, 1), func() any { return t.view() })
	})
	health := func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, strings.Replace(topologyPage, `data-page="topology"`, `data-page="health"`, 1), func() any { return t.health() })
	}
	for _, path := range []string{"/topology", "/edri/topology"} {
		mux.HandleFunc("GET "+path, topology)
	}
	for _, path := range []string{"/health", "/edri/health", "/edri/health-check-status"} {
		mux.HandleFunc("GET "+path, health)
	}
}

// healthView is the answer of /health, in the form of EDRI.
type healthView struct {
	Data struct {
		Statuses []healthStatus `json:"statuses"`
	} `json:"data"`
	Status string `json:"status"` // of the answer
}

type healthStatus struct {
	Name           string            `json:"name"`
	Status         string            `json:"status"`
	Connected      bool              `json:"connected"`
	LastReply      *string           `json:"lastReply"`
	ExceptionCount uint64            `json:"exceptionCount"`
	Exceptions     []json.RawMessage `json:"exceptions"`
	Vitals         json.RawMessage   `json:"vitals"`
	Outbound       events.Outbound   `json:"outbound"`
}

func (t *Topology) health() *healthView {
	v := &healthView{Status: "OK"}
	v.Data.Statuses = []healthStatus{}
	for _, c := range t.Events.Statuses() {
		s := healthStatus{c.Name, c.Health, c.Connected, nil, c.Raised, c.Exceptions, c.Vitals, c.Outbound}
		if c.LastReply != "" {
			s.LastReply = &c.LastReply
		}
		v.Data.Statuses = append(v.Data.Statuses, s)
	}
	return v
}

// answer gives HTML to a browser, and JSON to everybody else.
func answer(w http.ResponseWriter, r *http.Request, page string, data func() any) {
	h := w.Header()
	h.Set("Vary", "Accept")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if !wantsHTML(r.Header.Get("Accept")) {
		h.Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(data())
		return
	}
	var b [16]byte
	rand.Read(b[:])
	nonce := hex.EncodeToString(b[:])
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; img-src data:; style-src 'nonce-"+nonce+"'; script-src 'nonce-"+nonce+"'")
	w.Write([]byte(strings.ReplaceAll(page, "NONCE", nonce)))
}

// wantsHTML tells whether an Accept prefers text/html, which browsers name and others do not.
func wantsHTML(accept string) bool {
	var html, other float64
	for part := range strings.SplitSeq(accept, ",") {
		kind, parameters, _ := strings.Cut(strings.TrimSpace(part), ";")
		q := 1.0
		for p := range strings.SplitSeq(parameters, ";") {
			if v, ok := strings.CutPrefix(strings.TrimSpace(p), "q="); ok {
				q, _ = strconv.ParseFloat(v, 64)
			}
		}
		switch strings.ToLower(strings.TrimSpace(kind)) {
		case "text/html", "application/xhtml+xml":
			html = max(html, q)
		case "application/json":
			other = max(other, q)
		}
	}
	return html > other
}
