package web

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/events"
	"github.com/fingerpost/fingerpost/internal/house/leaks"
	"github.com/fingerpost/fingerpost/internal/mesh"
	"github.com/fingerpost/fingerpost/routetable"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func get(t *testing.T, h http.Handler, path string) (status int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, w.Body.String()
}

func TestMetrics(t *testing.T) {
	table := routetable.New()
	if _, err := table.Add("COLOSSUS", "amqp://5.6.7.8:1234"); err != nil {
		t.Fatal(err)
	}
	h := handler(Options{Metrics: Metrics{
		Version: "1.2", Table: table,
		Counters: func() map[string]uint64 {
			return map[string]uint64{
				"connections": 3, "received": 10, "accepted": 7, "rejected": 1, "droppedBusy": 4, "droppedTooLate": 5, "someNewThing": 6,
			}
		},
		Files: func() []File {
			return []File{
				{Name: "a.yaml", Good: true, Rows: 2, Loaded: time.Unix(1_700_000_000, 500e6)},
				{Name: `b "odd".yaml`, Refused: 2},
			}
		},
	}})
	status, page := get(t, h, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("got %d\n%s", status, page)
	}
	for _, want := range []string{
		`fingerpost_build_info{goversion="go`,
		"fingerpost_table_rows 1", "fingerpost_table_revision 1", "fingerpost_table_generation 1",
		`fingerpost_table_file_ok{file="a.yaml"} 1`, `fingerpost_table_file_ok{file="b \"odd\".yaml"} 0`,
		`fingerpost_table_file_errors_total{file="a.yaml"} 0`, `fingerpost_table_file_errors_total{file="b \"odd\".yaml"} 2`,
		`fingerpost_table_file_rows{file="a.yaml"} 2`, `fingerpost_table_file_loaded_timestamp_seconds{file="a.yaml"} 1.7000000005e+09`,
		"fingerpost_connections 3", "fingerpost_messages_received_total 10",
		`fingerpost_outcomes_total{outcome="accepted"} 7`, `fingerpost_outcomes_total{outcome="rejected"} 1`,
		`fingerpost_dropped_total{reason="busy"} 4`, `fingerpost_dropped_total{reason="too_late"} 5`,
		"fingerpost_some_new_thing_total 6",
		"# TYPE fingerpost_connections gauge", "# TYPE fingerpost_outcomes_total counter",
		"go_goroutines ", "process_start_time_seconds ",
	} {
		if !strings.Contains(page, "\n"+want) {
			t.Errorf("no %s", want)
		}
	}
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, "# HELP fingerpost_"); ok && len(strings.Fields(rest)) < 3 {
			t.Errorf("no help: %s", line)
		}
	}
}

func TestMetricsOfEvents(t *testing.T) {
	s := events.Stats{Components: 1, Links: 2, Slow: 3, Waiting: 4, Kept: 5, KeptBytes: 6, Events: 7, Copies: 8, Slowed: 9, Disconnects: 10, Connects: 11, Evicted: 12, Dropped: 13}
	counters := func() map[string]uint64 { return map[string]uint64{"behind": 14, "replayed": 15} }
	_, page := get(t, handler(Options{Metrics: Metrics{Events: func() events.Stats { return s }, Counters: counters}}), "/metrics")
	for _, want := range []string{
		`event_connections{class="component"} 1`, `event_connections{class="router"} 2`, `event_slow_connections 3`, `event_waiting 4`, `events_kept 5`, `events_kept_bytes 6`,
		`events_total 7`, `event_copies_total 8`, `event_slowed_total 9`, `event_disconnects_total 10`, `event_connects_total 11`,
		`events_forgotten_total{reason="window"} 12`, `events_forgotten_total{reason="memory"} 13`, `receivers_behind_total 14`, `messages_replayed_total 15`,
	} {
		if !strings.Contains(page, "\nfingerpost_"+want) {
			t.Errorf("no %s", want)
		}
	}
}

func TestMetricsByClassRouteAndHop(t *testing.T) {
	stats := forwarder.Stats{
		Connections: map[string]int64{"client": 2}, Links: map[string]int64{"receiver": 3}, Received: map[string]uint64{"anonymous": 4},
		Copies: map[string]uint64{"hop": 5},
		Routes: []forwarder.RouteStats{
			{Pattern: "A", Address: "amqp://b", Matched: 6, Copied: 7, Delivered: 8, Released: 9, Dropped: 10}, {Pattern: "other", Address: "other"},
		},
		Hops: []forwarder.HopStats{{Hop: "amqp://b", Copies: 11, Connected: 1, Waiting: 12}},
	}
	status, page := get(t, handler(Options{Metrics: Metrics{Node: func() forwarder.Stats { return stats }}}), "/metrics")
	if status != http.StatusOK {
		t.Fatalf("got %d\n%s", status, page)
	}
	for _, want := range []string{
		`fingerpost_open_connections{class="client"} 2`, `fingerpost_open_links{class="receiver"} 3`,
		`fingerpost_link_messages_received_total{class="anonymous"} 4`, `fingerpost_link_copies_total{class="hop"} 5`,
		`fingerpost_route_messages_total{address="amqp://b",pattern="A"} 6`, `fingerpost_route_messages_total{address="other",pattern="other"} 0`,
		`fingerpost_route_copies_total{address="amqp://b",fate="copied",pattern="A"} 7`, `fingerpost_route_copies_total{address="amqp://b",fate="dropped",pattern="A"} 10`,
		`fingerpost_hop_copies_total{hop="amqp://b"} 11`, `fingerpost_hop_connections{hop="amqp://b"} 1`, `fingerpost_hop_waiting{hop="amqp://b"} 12`,
	} {
		if !strings.Contains(page, "\n"+want) {
			t.Errorf("no %s", want)
		}
	}
}

func TestMetricsOfAnEmptyRouter(t *testing.T) {
	if status, page := get(t, handler(Options{}), "/metrics"); status != http.StatusOK || !strings.Contains(page, "fingerpost_build_info") {
		t.Errorf("got %d\n%s", status, page)
	}
}

func TestAliveAndReady(t *testing.T) {
	ready := false
	h := handler(Options{Ready: func() bool { return ready }})
	for _, c := range []struct {
		path   string
		ready  bool
		status int
		body   string
	}{
		{"/healthz", false, http.StatusOK, "alive\n"},
		{"/readyz", false, http.StatusServiceUnavailable, "not ready\n"},
		{"/readyz", true, http.StatusOK, "ready\n"},
		{"/nothing", true, http.StatusNotFound, "404 page not found\n"},
	} {
		ready = c.ready
		if status, body := get(t, h, c.path); status != c.status || body != c.body {
			t.Errorf("%s: got %d %q", c.path, status, body)
		}
	}
}

// A scrape looks at no row.
func BenchmarkScrape(b *testing.B) {
	for _, rows := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("rows-%d", rows), func(b *testing.B) {
			table := routetable.New()
			op := routetable.Op{Verb: routetable.VerbLoad}
			for i := range rows {
				op.Routes = append(op.Routes, routetable.NewRoute(fmt.Sprintf("NAME-%d", i), "amqp://5.6.7.8:1234"))
			}
			if _, err := table.Apply(op); err != nil {
				b.Fatal(err)
			}
			h := handler(Options{Metrics: Metrics{Table: table}})
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil))
			}
		})
	}
}

// What a counter counts is told in words of its own: a help text stands alone where it is shown.
func TestEveryCounterOfTheNodeHasHelp(t *testing.T) {
	core := admin.New(routetable.New(), admin.Options{})
	node := forwarder.New(core, forwarder.Options{})
	defer node.Stop(context.Background())
	rembus := mesh.New(node, core, mesh.Options{})
	defer rembus.Stop(context.Background())
	all := node.Counters()
	maps.Copy(all, rembus.Counters())
	for name := range all {
		if m, _ := counterMetric(name); strings.Contains(m.help, "The counter "+name) {
			t.Errorf("%s: %q", name, m.help)
		}
	}
	h := handler(Options{Metrics: Metrics{Counters: node.Counters, Node: node.Stats, Events: func() events.Stats { return events.Stats{} }}})
	_, page := get(t, h, "/metrics")
	elsewhere := regexp.MustCompile(`(?m)^# HELP fingerpost_\w+ (Of these|.* (of|for) them( |\.|,|$)|.* that one\b|.* one of these\b|.*that they\b).*$`)
	for _, line := range elsewhere.FindAllString(page, -1) {
		t.Errorf("it tells of another metric: %s", line)
	}
}
