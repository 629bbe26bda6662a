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
	"github.com/fingerpost/fingerpost/internal/components"
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
	Broker *components.Broker
	Hidden bool // /topology is not served
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
	Peers      []peerView         `json:"peers"`  // connections of the relay, of Rembus, and of components over gRPC
	Hops       []hopView          `json:"hops"`   // peers that rows name
	Missed     []missedView       `json:"missed"` // hops that did not get all events
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

	Outbound *events.Outbound `json:"outbound,omitempty"` // of a receiver
}

type peerView struct {
	Hop       string `json:"hop"` // as rows name it
	Class     string `json:"class"`
	Name      string `json:"name"`
	Remote    string `json:"remote,omitempty"`
	Connected bool   `json:"connected"`
	Waiting   int    `json:"waiting"` // what is on its way there, and requests that it has not answered
	Slow      bool   `json:"slow"`
}

type hopView struct {
	Hop     string `json:"hop"`
	State   string `json:"state"`
	Waiting int    `json:"waiting"`
	Copies  uint64 `json:"copies"`

	Outbound events.Outbound `json:"outbound"`
}

type missedView struct {
	Hop   string `json:"hop"`
	Count uint64 `json:"count"`
	Last  string `json:"last"`
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
	Hop     string `json:"hop,omitempty"` // that is dialled for it, as hops name it
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
		Shared: []sharedType{}, Unread: []string{}, AMQP: []linkView{}, Peers: []peerView{}, Hops: []hopView{}, Missed: t.missed(), Lost: []lostView{}, Routes: []routeView{},
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
	v.readNode(t)
	v.readPeers(t)
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

func linkName(l *forwarder.Link) string { return strconv.FormatUint(l.Connection, 10) + "/" + l.Name }

// outbound is what waits for a hop, as that of a component is told.
func (t *Topology) outbound(b forwarder.Backlog, sent uint64) events.Outbound {
	o := events.Outbound{Depth: b.Depth, Bytes: b.Bytes, Slow: b.Slow, Sent: sent}
	if b.Stalled >= t.Events.Stall() {
		seconds := b.Stalled.Seconds()
		o.StalledSeconds = &seconds
	}
	return o
}

func (t *Topology) missed() []missedView {
	all := []missedView{}
	for _, x := range t.Node.Missed() {
		all = append(all, missedView{x.Hop, x.Count, stampOf(x.Last)})
	}
	return all
}

func (v *view) readNode(t *Topology) {
	n := t.Node
	for _, l := range n.Links() {
		if l.Class == "hop" || l.Class == "management" || strings.HasPrefix(l.Address, "$") || len(v.AMQP) == maxShownLinks {
			continue
		}
		x := linkView{linkName(&l), l.Container, l.Class, routetable.MaskUserinfo(l.Address), l.Credit, l.InFlight, l.Messages, nil}
		if l.Class == "receiver" {
			o := t.outbound(l.Backlog, l.Messages)
			x.Outbound = &o
		}
		v.AMQP = append(v.AMQP, x)
	}
	for _, h := range n.Hops() {
		o := t.outbound(h.Backlog, h.Copies)
		o.Failed = h.State == "away"
		v.Hops = append(v.Hops, hopView{h.Hop, h.State, h.Waiting, h.Copies, o})
	}
	for _, x := range n.Unrouted() {
		v.Lost = append(v.Lost, lostView{routetable.MaskUserinfo(x.Address), strings.ToUpper(x.Reason), x.Count, stampOf(x.Last)})
	}
}

func (v *view) readPeers(t *Topology) {
	add := func(hop, class, name, remote string, connected bool, waiting int) {
		v.Peers = append(v.Peers, peerView{hop, class, name, remote, connected, waiting, waiting >= forwarder.DefaultSoftQueue})
	}
	if t.Relay != nil {
		all := t.Relay.Connections()
		for _, c := range all[:min(len(all), maxShownLinks)] {
			add("relay-conn:"+c.Name, "relay", c.Domain, c.Remote, true, c.Waiting)
		}
	}
	if t.Mesh != nil {
		for _, p := range t.Mesh.Peers(maxShownLinks) {
			class := "rembus"
			if p.Router {
				class = "rembus-router"
			}
			add(p.Hop, class, p.Name, p.Remote, p.Connected, p.Waiting+p.Asked)
		}
	}
	if t.Broker != nil {
		for _, s := range t.Broker.Streams(maxShownLinks) {
			add(s.Hop, "grpc", s.Name, s.Remote, true, s.Waiting)
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
		v.Routes = append(v.Routes, routeView{r.Pattern, routetable.MaskUserinfo(r.Address), r.Pick.String(), r.Origin, forwarder.HopName(r.Address)})
	}
}

// findShared lists the types that more than one component, receiver of AMQP, or row of an operator's handles.
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
	add := func(address, handler string) {
		if k, ok := kindOf(address); ok {
			handlers[k] = append(handlers[k], handler)
		}
	}
	for _, l := range v.AMQP {
		if l.Class == "receiver" {
			add(l.Address, cmp.Or(l.Container, l.Link))
		}
	}
	for _, r := range v.Routes {
		if name, ok := routetable.LiteralOf(r.Pattern); ok && r.Address != routetable.NullAddress {
			add(name, r.Address)
		}
	}
	for k, names := range handlers {
		if len(names) > 1 {
			v.Shared = append(v.Shared, sharedType{k[0], k[1], names})
		}
	}
	slices.SortFunc(v.Shared, func(a, b sharedType) int { return strings.Compare(a.Type+a.Direction, b.Type+b.Direction) })
}

// kindOf takes the address of an event apart: its type, and its direction.
func kindOf(address string) (kind [2]string, ok bool) {
	if t, ok := strings.CutPrefix(address, "event:req/"); ok {
		return [2]string{t, "request"}, true
	}
	t, ok := strings.CutPrefix(address, "event:res/")
	return [2]string{t, "response"}, ok
}

// findUnread lists those that events and messages are routed to and that do not read them.
func (v *view) findUnread(n *forwarder.Node) {
	for i := range v.Components {
		c := &v.Components[i]
		if len(c.Requests)+len(c.Responses) > 0 && (c.Health == "ERROR" || c.Outbound.StalledSeconds != nil) {
			v.Unread = append(v.Unread, c.Name)
		}
	}
	for i := range v.AMQP {
		if l := &v.AMQP[i]; l.Outbound != nil && l.Outbound.StalledSeconds != nil {
			v.Unread = append(v.Unread, l.Link)
		}
	}
	for _, h := range v.Hops {
		if h.State == "away" || h.Outbound.StalledSeconds != nil {
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
		Missed   []missedView   `json:"missed"`
	} `json:"data"`
	Status string `json:"status"` // of the answer
}

type healthStatus struct {
	Name           string            `json:"name"`
	Class          string            `json:"class"` // component; receiver of events over AMQP, grpc: these are not asked how they are
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
		s := healthStatus{c.Name, "component", c.Health, c.Connected, nil, c.Raised, c.Exceptions, c.Vitals, c.Outbound}
		if c.LastReply != "" {
			s.LastReply = &c.LastReply
		}
		v.Data.Statuses = append(v.Data.Statuses, s)
	}
	t.addOthers(v)
	v.Data.Missed = t.missed()
	return v
}

// addOthers adds those who are not asked how they are: they are well while they take what there is for them.
func (t *Topology) addOthers(v *healthView) {
	add := func(name, class string, o events.Outbound) {
		s := healthStatus{Name: name, Class: class, Status: "OK", Connected: true, Exceptions: []json.RawMessage{}, Outbound: o}
		switch {
		case o.StalledSeconds != nil:
			s.Status = "ERROR"
		case o.Slow:
			s.Status = "WARNING"
		}
		v.Data.Statuses = append(v.Data.Statuses, s)
	}
	n := 0
	for _, l := range t.Node.Links() {
		if _, ok := kindOf(l.Address); ok && l.Class == "receiver" && n < maxShownLinks {
			n++
			add(l.Container+" "+linkName(&l), "receiver", t.outbound(l.Backlog, l.Messages))
		}
	}
	if t.Broker == nil {
		return
	}
	for _, s := range t.Broker.Streams(maxShownLinks) {
		add(s.Name, "grpc", events.Outbound{Depth: s.Waiting, Slow: s.Full || s.Waiting >= forwarder.DefaultSoftQueue})
	}
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
