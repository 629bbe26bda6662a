package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// fakeEntities are the entities of one type of a router.
type fakeEntities struct {
	kind string
	list *[]admin.Entity
}

func (f fakeEntities) Type() string         { return f.kind }
func (f fakeEntities) List() []admin.Entity { return append([]admin.Entity{}, *f.list...) }
func (f fakeEntities) Attributes() []string {
	all := map[string]bool{}
	for _, e := range *f.list {
		for name := range e {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
func (f fakeEntities) Delete(id string) error {
	for i, e := range *f.list {
		if e["identity"] == id {
			*f.list = append((*f.list)[:i:i], (*f.list)[i+1:]...)
			return nil
		}
	}
	return admin.Refuse(404, "gone")
}

// view runs a verb on a door.
func runView(t *testing.T, d *doorCaller, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	r := &run{env: Env{Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }}, door: d}
	status = r.run(context.Background(), args)
	return out.String(), errs.String(), status
}

func TestViews(t *testing.T) {
	d := newDoor(t, admin.RoleAdmin)
	connections := []admin.Entity{
		{"name": "1", "identity": "connection/1", "class": "client", "container": "a\tb", "remote": "1.2.3.4:5", "links": uint64(2), "received": uint64(7), "since": "2026-11-30T10:11:12Z"},
		{"name": "2", "identity": "connection/2", "class": "hop", "container": "c", "remote": "h:5672", "links": uint64(1), "sent": uint64(9)},
	}
	links := []admin.Entity{
		{"name": "l1", "connection": uint64(1), "class": "sender", "address": "A", "limited": true}, {"name": "l2", "connection": uint64(2), "class": "hop", "address": "B", "limited": false},
	}
	var many []admin.Entity
	for i := range 2*pageRows + 5 {
		many = append(many, admin.Entity{"name": fmt.Sprint("N", i), "identity": fmt.Sprint("u", i), "address": fmt.Sprint("N", i), "count": uint64(i), "reason": "no route"})
	}
	var hops []admin.Entity
	peers := []admin.Entity{{"name": "hub", "class": "rembus-router", "hop": "peer:hub", "state": "connected", "remote": "h:8338", "waiting": uint64(3)}}
	for kind, list := range map[string]*[]admin.Entity{"connection": &connections, "link": &links, "hop": &hops, "peer": &peers, "unrouted": &many} {
		d.core.Register(fakeEntities{kind, list})
	}
	for _, c := range []struct {
		args, want string
	}{
		{"connections", "ID  CLASS   CONTAINER  REMOTE     USER  ROLE  LINKS  RECEIVED  SENT  SINCE\n1   client  a\\tb       1.2.3.4:5              2      7               2026-11-30 10:11:12Z\n" +
			"2   hop     c          h:5672                 1                9\n"},
		{"links --class hop", "CONNECTION  CLASS  ADDRESS  CREDIT  IN-FLIGHT  MESSAGES  LIMITED  NAME\n2           hop    B                                              l2\n"},
		{"links --connection 1", "CONNECTION  CLASS   ADDRESS  CREDIT  IN-FLIGHT  MESSAGES  LIMITED  NAME\n1           sender  A                                     true     l1\n"},
		{"links --address nothing", "none\n"},
		{"peers", "NAME  CLASS          HOP       STATE      REMOTE  WAITING\nhub   rembus-router  peer:hub  connected  h:8338  3\n"},
		{"hops", "none\n"},
		{"hops -o json", "[]\n"},
		{"unrouted --limit 1", "COUNT  ADDRESS  REASON    LAST\n0      N0       no route\n"},
		{"connections --close 2", "connection 2 closed\n"},
	} {
		out, errs, status := runView(t, d, strings.Fields(c.args)...)
		if out != c.want || errs != "" || status != 0 {
			t.Errorf("%s: %d %s\n got %q\nwant %q", c.args, status, errs, out, c.want)
		}
	}
	out, _, _ := runView(t, d, "unrouted", "-o", "json")
	var got []map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got) != len(many) || got[len(many)-1]["address"] != fmt.Sprint("N", len(many)-1) || got[1]["count"] != 1.0 {
		t.Errorf("%v, %d entities", err, len(got))
	}
	for _, args := range []string{"connections --close 2", "connections --close x"} {
		if out, errs, status := runView(t, d, strings.Fields(args)...); status != exitNo || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: %d %q %q", args, status, out, errs)
		}
	}
	d.as.Role = admin.RoleNone
	if _, errs, status := runView(t, d, "links"); status != exitNo || !strings.Contains(errs, "viewer") {
		t.Errorf("without a role: %d %q", status, errs)
	}
}

func TestTopIsWhatHappenedBetweenTwoLooks(t *testing.T) {
	d := newDoor(t, admin.RoleViewer)
	n := uint64(0)
	connection := []admin.Entity{{}}
	hop, lost := []admin.Entity{{}}, []admin.Entity{{}}
	router := []admin.Entity{{}}
	grow := func() {
		n += 1000
		router[0] = admin.Entity{"name": "r", "received": n, "copies": 2 * n, "droppedBusy": n, "rows": uint64(3), "revision": uint64(4), "connections": uint64(1)}
		connection[0] = admin.Entity{"name": "5", "class": "client", "container": "c", "received": n, "sent": uint64(0)}
		hop[0] = admin.Entity{"name": "amqp://h", "state": "away", "copies": n, "waiting": uint64(6)}
		lost[0] = admin.Entity{"name": "L", "address": "L", "count": n, "reason": "no route"}
	}
	for kind, list := range map[string]*[]admin.Entity{"router": &router, "connection": &connection, "hop": &hop, "unrouted": &lost} {
		grow()
		d.core.Register(fakeEntities{kind, list})
	}
	a, err := lookAt(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	grow()
	b, err := lookAt(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	b.at = a.at.Add(2e9)
	v := between(a, b)
	if v.Rates["received"] != 500 || v.Rates["copies"] != 1000 || v.Rates["droppedBusy"] != 500 || len(v.Busiest) != 1 || v.Busiest[0].Received != 500 ||
		len(v.Hops) != 1 || v.Hops[0].Copies != 500 || v.Hops[0].Waiting != 6 || len(v.NewUnrouted) != 1 || v.NewUnrouted[0]["count"] != uint64(1000) {
		t.Errorf("got %+v", v)
	}
	r := &run{env: Env{Screen: true}}
	text := r.drawTop(v)
	for _, want := range []string{"\x1b[H\x1b[2J", "r  1 connections, 3 rows, revision 4", "CONNECTION", "amqp://h", "NOWHERE", "no route"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	if back := between(b, a); back.Rates["received"] != 0 || back.Busiest[0].Received != 0 {
		t.Errorf("a router that began anew: %+v", back)
	}
	out, errs, status := runView(t, d, "top", "--count", "2", "--interval", "100ms", "-o", "json")
	if status != 0 || strings.Count(out, "\n") != 2 || errs != "" {
		t.Errorf("%d %q %q", status, out, errs)
	}
	if _, _, status := runView(t, d, "top", "--interval", "1ms"); status != exitUsage {
		t.Errorf("a tiny interval: %d", status)
	}
}

func TestViewsNeedARouter(t *testing.T) {
	for _, verb := range []string{"connections", "links", "hops", "unrouted", "top"} {
		for _, c := range []struct {
			args   []string
			status int
		}{{[]string{"--url", "amqp://127.0.0.1:1", verb}, exitUnreachable}, {[]string{"--file", "x.yaml", verb}, exitUsage}} {
			if out, errs, status := routectl(t, c.args...); status != c.status || out != "" || strings.Count(errs, "\n") != 1 {
				t.Errorf("%q: %d %q %q", c.args, status, out, errs)
			}
		}
	}
}

// A status shows what there is to see; the counters at 0 are in the other forms.
func TestStatusLeavesOutZeros(t *testing.T) {
	d := newDoor(t, admin.RoleAdmin)
	d.core = admin.New(routetable.New(), admin.Options{Name: "r", Counters: func() map[string]uint64 {
		return map[string]uint64{"accepted": 7, "looped": 0, "expired": 0}
	}})
	shown := func(out, name string) bool {
		return slices.ContainsFunc(strings.Split(out, "\n"), func(l string) bool { return strings.HasPrefix(l, name+" ") })
	}
	narrow, errs, status := runView(t, d, "status")
	if status != 0 || !shown(narrow, "accepted") || !shown(narrow, "rows") || shown(narrow, "looped") || !strings.HasSuffix(narrow, "and 2 counters at 0, which -o wide shows\n") {
		t.Errorf("got exit %d, %s%s", status, narrow, errs)
	}
	wide, _, _ := runView(t, d, "status", "-o", "wide")
	if !shown(wide, "looped") || strings.Contains(wide, "which -o wide shows") {
		t.Errorf("wide: got %s", wide)
	}
}
