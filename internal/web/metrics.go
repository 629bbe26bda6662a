package web

import (
	"maps"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/events"
	"github.com/fingerpost/fingerpost/internal/relay"
	"github.com/fingerpost/fingerpost/routetable"
)

// Metrics is what /metrics tells of. What is nil is left out. A scrape costs the same whatever the number of rows.
type Metrics struct {
	Version  string
	Table    *routetable.Table
	Counters func() map[string]uint64 // of the node, by camel-case name
	Files    func() []File
	Node     func() forwarder.Stats
	Relay    func() relay.Stats
	Events   func() events.Stats
}

// File is a table file.
type File struct {
	Name    string
	Good    bool      // what it holds is in force
	Refused uint64    // contents that were refused
	Rows    int       // when it was loaded
	Loaded  time.Time // zero: before the process began
}

// maxScrapes is how many scrapes are answered at once; more are told to come again.
const maxScrapes = 4

func (m Metrics) handler() http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}

// Describe says nothing: the counters of the node are whatever it has.
func (m Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect gives the metrics as they are now.
func (m Metrics) Collect(ch chan<- prometheus.Metric) {
	put := func(d metric, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("fingerpost_"+d.name, d.help, d.labels, nil), d.kind, v, labels...)
	}
	put(buildInfo, 1, m.Version, revision(), runtime.Version())
	if m.Table != nil {
		s := m.Table.Snapshot()
		put(tableRows, float64(s.Len()))
		put(tableRevision, float64(s.Revision()))
		put(tableGeneration, float64(s.Generation()))
	}
	if m.Files != nil {
		for _, f := range m.Files() {
			good := 0.0
			if f.Good {
				good = 1
			}
			put(fileOK, good, f.Name)
			put(fileErrors, float64(f.Refused), f.Name)
			put(fileRows, float64(f.Rows), f.Name)
			if !f.Loaded.IsZero() {
				put(fileLoaded, float64(f.Loaded.UnixMilli())/1000, f.Name)
			}
		}
	}
	if m.Node != nil {
		collectNode(m.Node(), put)
	}
	if m.Relay != nil {
		collectRelay(m.Relay(), put)
	}
	if m.Events != nil {
		collectEvents(m.Events(), put)
	}
	if m.Counters != nil {
		counters := m.Counters()
		for _, name := range slices.Sorted(maps.Keys(counters)) {
			d, label := counterMetric(name)
			put(d, float64(counters[name]), label...)
		}
	}
}

// collectNode gives the series by class, route and hop. Their number is bounded: what has no series of its own is under "other".
func collectNode(s forwarder.Stats, put func(d metric, v float64, labels ...string)) {
	for class, n := range s.Connections {
		put(connectionsBy, float64(n), class)
	}
	for class, n := range s.Links {
		put(linksBy, float64(n), class)
	}
	for class, n := range s.Received {
		put(receivedBy, float64(n), class)
	}
	for class, n := range s.Copies {
		put(copiesBy, float64(n), class)
	}
	for _, r := range s.Routes {
		put(routeMessages, float64(r.Matched), r.Pattern, r.Address)
		for _, c := range []struct {
			what string
			n    uint64
		}{{"copied", r.Copied}, {"delivered", r.Delivered}, {"released", r.Released}, {"dropped", r.Dropped}} {
			put(routeCopies, float64(c.n), r.Pattern, r.Address, c.what)
		}
	}
	for _, h := range s.Hops {
		put(hopConnections, float64(h.Connected), h.Hop)
		put(hopWaiting, float64(h.Waiting), h.Hop)
		put(hopCopies, float64(h.Copies), h.Hop)
	}
}

// collectEvents gives the series of the event router.
func collectEvents(s events.Stats, put func(d metric, v float64, labels ...string)) {
	put(eventConnections, float64(s.Components), "component")
	put(eventConnections, float64(s.Links), "router")
	put(eventConnects, float64(s.Connects))
	put(eventSlow, float64(s.Slow))
	put(eventWaiting, float64(s.Waiting))
	put(eventsIn, float64(s.Events))
	put(eventsNowhere, float64(s.Unrouted))
	put(eventCopies, float64(s.Copies))
	put(eventSlowed, float64(s.Slowed))
	put(eventDisconnects, float64(s.Disconnects))
	put(eventsKept, float64(s.Kept))
	put(eventBytes, float64(s.KeptBytes))
	put(eventsForgotten, float64(s.Evicted), "window")
	put(eventsForgotten, float64(s.Dropped), "memory")
}

// collectRelay gives the series of the relay.
func collectRelay(s relay.Stats, put func(d metric, v float64, labels ...string)) {
	put(relayConnections, float64(s.Connections))
	put(relayTopics, float64(s.Topics))
	put(relayPending, float64(s.Pending))
	put(relayConnects, float64(s.Connects))
	put(relayRefused, float64(s.Refused))
	put(relayFaults, float64(s.Faults))
	put(relayBad, float64(s.BadMessages))
	for _, o := range s.Ops {
		put(relayOps, float64(o.Count), o.Op, o.Result)
	}
}

// metric is one name on the page.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
}

var (
	buildInfo       = metric{"build_info", "The program that runs; always 1.", prometheus.GaugeValue, []string{"version", "revision", "goversion"}}
	tableRows       = metric{"table_rows", "Rows in the table, configured and learned.", prometheus.GaugeValue, nil}
	tableRevision   = metric{"table_revision", "Revision of the table: changes of configured rows.", prometheus.GaugeValue, nil}
	tableGeneration = metric{"table_generation", "Generation of the table: all changes.", prometheus.GaugeValue, nil}
	fileOK          = metric{"table_file_ok", "1 where what the table file holds is in force, 0 where it was refused or is gone.", prometheus.GaugeValue, []string{"file"}}
	fileErrors      = metric{"table_file_errors_total", "Contents of the table file that were refused.", prometheus.CounterValue, []string{"file"}}
	fileRows        = metric{"table_file_rows", "Rows of the table file when it was last loaded.", prometheus.GaugeValue, []string{"file"}}
	fileLoaded      = metric{"table_file_loaded_timestamp_seconds", "When the table file was last loaded.", prometheus.GaugeValue, []string{"file"}}

	connectionsBy  = metric{"open_connections", "Connections that are open, by class: client, websocket, router (another of our kind, which dialled), hop (we dialled).", prometheus.GaugeValue, []string{"class"}}
	linksBy        = metric{"open_links", "Links of clients that are attached, by class: sender, anonymous, management, receiver.", prometheus.GaugeValue, []string{"class"}}
	receivedBy     = metric{"link_messages_received_total", "Messages that came in, by class of link.", prometheus.CounterValue, []string{"class"}}
	copiesBy       = metric{"link_copies_total", "Copies handed to a link, by class: receiver, hop.", prometheus.CounterValue, []string{"class"}}
	routeMessages  = metric{"route_messages_total", "Messages that used the row. The first 100 configured rows that are used have series of their own; all others share one.", prometheus.CounterValue, []string{"pattern", "address"}}
	routeCopies    = metric{"route_copies_total", "Copies made for the row, by what became of them; copied counts all.", prometheus.CounterValue, []string{"pattern", "address", "fate"}}
	hopConnections = metric{"hop_connections", "Connections to the hop that are open. The first 100 hops have series of their own; all others share one.", prometheus.GaugeValue, []string{"hop"}}
	hopWaiting     = metric{"hop_waiting", "Copies for the hop that are queued, or sent without an outcome.", prometheus.GaugeValue, []string{"hop"}}
	hopCopies      = metric{"hop_copies_total", "Copies handed to the hop.", prometheus.CounterValue, []string{"hop"}}

	relayConnections = metric{"relay_connections", "Connections of the relay that are open.", prometheus.GaugeValue, nil}
	relayTopics      = metric{"relay_served_topics", "Topics that connections of the relay serve, active or standing by; two that serve one topic are two.", prometheus.GaugeValue, nil}
	relayPending     = metric{"relay_pending_ops", "Ops on their way to a connection, for which their sender has no answer yet.", prometheus.GaugeValue, nil}
	relayConnects    = metric{"relay_connects_total", "Connections of the relay that were taken.", prometheus.CounterValue, nil}
	relayRefused     = metric{"relay_refused_connections_total", "Connections of the relay that were refused, by token, domain, claim, origin or for want of room.", prometheus.CounterValue, nil}
	relayFaults      = metric{"relay_faults_total", "Connections of the relay that were closed for a fault of ours.", prometheus.CounterValue, nil}
	relayBad         = metric{"relay_bad_messages_total", "Messages of which no op was done: invalid JSON, binary, too many ops.", prometheus.CounterValue, nil}
	relayOps         = metric{"relay_ops_total", "Ops of connections of the relay, by kind and result; ok is taken.", prometheus.CounterValue, []string{"op", "result"}}

	eventConnections = metric{"event_connections", "Components that are connected, and routers that are linked for events, by class: component, router.", prometheus.GaugeValue, []string{"class"}}
	eventConnects    = metric{"event_connects_total", "Times that a component, or a router that is linked for events, connected.", prometheus.CounterValue, nil}
	eventSlow        = metric{"event_slow_connections", "Components and routers linked for events past the soft limit.", prometheus.GaugeValue, nil}
	eventWaiting     = metric{"event_waiting", "Events that wait for components and routers linked for events.", prometheus.GaugeValue, nil}
	eventsIn         = metric{"events_total", "Events that were taken: of components, of other routers and of AMQP.", prometheus.CounterValue, nil}
	eventsNowhere    = metric{"events_unrouted_total", "Events that were taken and that nobody had subscribed to.", prometheus.CounterValue, nil}
	eventCopies      = metric{"event_copies_total", "Copies of events queued for components and routers. Those for AMQP are in fingerpost_link_copies_total.", prometheus.CounterValue, nil}
	eventSlowed      = metric{"event_slowed_total", "Times that a component or router came to the soft limit of events that wait.", prometheus.CounterValue, nil}
	eventDisconnects = metric{"event_disconnects_total", "Times that a component or router was disconnected at the hard limit of events that wait.", prometheus.CounterValue, nil}
	eventsKept       = metric{"events_kept", "Events that are kept for replay.", prometheus.GaugeValue, nil}
	eventBytes       = metric{"events_kept_bytes", "Memory that the events take which are kept for replay.", prometheus.GaugeValue, nil}
	eventsForgotten  = metric{"events_forgotten_total", "Events that are kept no more, by reason: window (it was over), memory (there was too little).", prometheus.CounterValue, []string{"reason"}}

	connections = metric{"connections", "Connections of clients that are open.", prometheus.GaugeValue, nil}
	outcomes    = metric{"outcomes_total", "Outcomes of messages told to senders, by outcome.", prometheus.CounterValue, []string{"outcome"}}
	dropped     = metric{"dropped_total", "Pre-settled copies that went nowhere, by reason.", prometheus.CounterValue, []string{"reason"}}
	failed      = metric{"component_failures_total", "Requests, of HTTP and of components, that were answered with a failure, by reason.", prometheus.CounterValue, []string{"reason"}}
	plain       = map[string]metric{
		"received":             {"messages_received_total", "Messages that came in.", prometheus.CounterValue, nil},
		"copies":               {"copies_total", "Copies handed to a hop.", prometheus.CounterValue, nil},
		"discarded":            {"messages_discarded_total", "Messages whose route is null.", prometheus.CounterValue, nil},
		"unrouted":             {"messages_unrouted_total", "Messages without a route.", prometheus.CounterValue, nil},
		"loops":                {"messages_looped_total", "Messages that had been here before.", prometheus.CounterValue, nil},
		"repeats":              {"messages_repeated_total", "Messages that another router brought by a second way, which went no further.", prometheus.CounterValue, nil},
		"handlerGone":          {"messages_handler_gone_total", "Messages refused without a route, whose address had one before.", prometheus.CounterValue, nil},
		"notWired":             {"messages_not_wired_total", "Messages refused without a route, whose address never had one, as far as is remembered.", prometheus.CounterValue, nil},
		"management":           {"management_requests_total", "Requests to $management, which are in no other counter.", prometheus.CounterValue, nil},
		"managementAnswers":    {"management_answers_total", "Answers to requests to $management, and what watchers were told.", prometheus.CounterValue, nil},
		"meshKept":             {"mesh_kept_total", "Publishes of Rembus that were kept for components that come later.", prometheus.CounterValue, nil},
		"meshKeptBytes":        {"mesh_kept_bytes", "Bytes of publishes of Rembus that are kept now.", prometheus.GaugeValue, nil},
		"meshForgotten":        {"mesh_forgotten_parts_total", "Parts of the kept publishes of Rembus, a sixteenth of all each, that were too old or too much.", prometheus.CounterValue, nil},
		"meshNotKept":          {"mesh_not_kept_total", "Writes of publishes of Rembus that are to be kept that failed.", prometheus.CounterValue, nil},
		"meshTooLargeToKeep":   {"mesh_too_large_to_keep_total", "Publishes of Rembus that were not kept, since they would take a quarter of the room.", prometheus.CounterValue, nil},
		"meshReplayed":         {"mesh_replayed_total", "Publishes of Rembus that were sent to a component later.", prometheus.CounterValue, nil},
		"meshBehind":           {"mesh_behind_total", "Times that a component of Rembus took less than it was sent, and was to get the rest later.", prometheus.CounterValue, nil},
		"meshPublished":        {"mesh_published_total", "Publishes of Rembus that components and routers sent.", prometheus.CounterValue, nil},
		"meshRequests":         {"mesh_requests_total", "Requests of Rembus that components and routers sent.", prometheus.CounterValue, nil},
		"meshRefused":          {"mesh_refused_total", "Requests, publishes and commands of Rembus that were refused.", prometheus.CounterValue, nil},
		"meshBadFrames":        {"mesh_bad_frames_total", "Frames of Rembus that could not be read.", prometheus.CounterValue, nil},
		"meshGaveUp":           {"mesh_gave_up_total", "Publishes of Rembus that were sent again and again, and never acknowledged.", prometheus.CounterValue, nil},
		"meshDropped":          {"mesh_dropped_total", "Times that so much waited for a component of Rembus that it could take no other publish.", prometheus.CounterValue, nil},
		"meshFlooded":          {"mesh_flooded_total", "Commands and news of Rembus that were passed on to other routers.", prometheus.CounterValue, nil},
		"meshFloodedTwice":     {"mesh_flooded_twice_total", "Commands and news of Rembus that came by a second way and were not passed on.", prometheus.CounterValue, nil},
		"relayKeysRefused":     {"relay_keys_refused_total", "Times that the file of the relay's keys had changed and was refused; what was before is in force.", prometheus.CounterValue, nil},
		"usersRefused":         {"users_refused_total", "Times that the users file had changed and was refused; what was before is in force.", prometheus.CounterValue, nil},
		"certificatesRefused":  {"certificates_refused_total", "Times that the certificate of a listener had changed and was refused; what was before is in force.", prometheus.CounterValue, nil},
		"hopsRefused":          {"hops_refused_total", "Times that a file of hops had changed and was refused; what was before is in force.", prometheus.CounterValue, nil},
		"managementUnanswered": {"management_unanswered_total", "Answers of $management whose receiver was gone.", prometheus.CounterValue, nil},
		"componentStreams":     {"component_streams", "Streams of components that are open.", prometheus.GaugeValue, nil},
		"componentConnects":    {"component_connects_total", "Streams of components that were taken.", prometheus.CounterValue, nil},
		"componentsRefused":    {"component_refused_total", "Streams that were refused: who it is could not be proven, or there was no registration.", prometheus.CounterValue, nil},
		"componentRequests":    {"component_requests_total", "HTTP requests that came for components.", prometheus.CounterValue, nil},
		"componentEvents":      {"component_events_total", "Events that were taken: of HTTP requests, of components and of other brokers.", prometheus.CounterValue, nil},
		"streamed":             {"messages_streamed_total", "Messages of more than 1 MiB, which are sent on while they come in.", prometheus.CounterValue, nil},
		"aborted":              {"streams_aborted_total", "Messages of more than 1 MiB that their sender took back, or did not send to the end.", prometheus.CounterValue, nil},
		"stalled":              {"streams_stalled_total", "Copies of messages of more than 1 MiB that were ended because their receiver took nothing.", prometheus.CounterValue, nil},
		"behind":               {"receivers_behind_total", "Receivers that were detached because too many events waited.", prometheus.CounterValue, nil},
		"eventsMissed":         {"events_missed_total", "Copies of events that did not reach a hop that a row leads them to, because it takes too few or is away.", prometheus.CounterValue, nil},
		"replayed":             {"messages_replayed_total", "Events that receivers got again.", prometheus.CounterValue, nil},
		"connectionsRefused":   {"connections_refused_total", "Connections of clients that were refused because there were too many, of all or of one host.", prometheus.CounterValue, nil},
		"handshakesFailed":     {"handshakes_failed_total", "Connections that ended in the TLS handshake.", prometheus.CounterValue, nil},
		"loginsFailed":         {"logins_failed_total", "Logins that were refused: a wrong password, an unknown user, or too many of these.", prometheus.CounterValue, nil},
		"unauthorized":         {"unauthorized_total", "Messages and links to addresses that the client may not name.", prometheus.CounterValue, nil},
		"linksRefused":         {"links_refused_total", "Links that were refused because the connection had too many.", prometheus.CounterValue, nil},
		"tooLarge":             {"too_large_total", "Links that ended by a message larger than is taken.", prometheus.CounterValue, nil},
		"expired":              {"expired_total", "Messages and copies whose time to live was over before they were sent.", prometheus.CounterValue, nil},
		"overdue":              {"overdue_total", "Copies of a fan-out whose receiver had them for too long without an outcome.", prometheus.CounterValue, nil},
		"problems":             {"row_problems_total", "Rows found for a message whose address cannot be reached.", prometheus.CounterValue, nil},
	}
)

// counterMetric gives the metric of a counter of the node. One that is not known here is on the page by its own name.
func counterMetric(name string) (metric, []string) {
	switch name {
	case "connections":
		return connections, nil
	case "accepted", "rejected", "released", "modified":
		return outcomes, []string{name}
	}
	if d, ok := plain[name]; ok {
		return d, nil
	}
	if reason, ok := strings.CutPrefix(name, "dropped"); ok && reason != "" {
		return dropped, []string{snake(reason)}
	}
	if reason, ok := strings.CutPrefix(name, "componentFailed"); ok && reason != "" {
		return failed, []string{snake(reason)}
	}
	return metric{snake(name) + "_total", "The counter " + name + " of the router.", prometheus.CounterValue, nil}, nil
}

// snake makes droppedBusy dropped_busy.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) {
			if i > 0 {
				b.WriteByte('_')
			}
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}

func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}
