package interop

import (
	"encoding/json"
	"fmt"
	"testing"
)

// What a router tells of itself while foreign clients use it.
func TestViewsOfARouter(t *testing.T) {
	hop := listenRaw(t, nil)
	r := startRouter(t, "seen", rows("FAR", hop.url("")))
	recv := client(t, rhea, "recv", "--url", r.url(), "--address", "NEAR", "--count", "100")
	waitReady(recv)
	sameOutcomes(t, "NEAR", sendBy(t, goAMQP, r.url(), batchOf{address: "NEAR", to: "NEAR", id: "m", count: 3, sizes: []int{10}}), "accepted")
	sameOutcomes(t, "FAR", sendBy(t, goAMQP, r.url(), batchOf{to: "FAR", id: "m", count: 1, sizes: []int{10}}), "accepted")
	hop.wait(t, 1)
	sameOutcomes(t, "GONE", sendBy(t, goAMQP, r.url(), batchOf{to: "GONE", id: "m", count: 2, sizes: []int{10}}), "rejected amqp:not-found")
	list := func(verb string, args ...string) []map[string]any {
		t.Helper()
		var all []map[string]any
		if err := json.Unmarshal([]byte(r.ctl(t, append([]string{verb, "-o", "json"}, args...)...)), &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	links := list("links", "--address", "NEAR", "--class", "receiver")
	if len(links) != 1 || links[0]["messages"] != 3.0 {
		t.Fatalf("links %v", links)
	}
	id := fmt.Sprint(links[0]["connection"])
	connections := list("connections", "--class", "client")
	found := false
	for _, c := range connections {
		found = found || c["name"] == id && c["sent"] == 3.0 && c["links"] == 1.0
	}
	if !found {
		t.Errorf("connections %v", connections)
	}
	if hops := list("hops"); len(hops) != 1 || hops[0]["state"] != "connected" || hops[0]["copies"] != 1.0 {
		t.Errorf("hops %v", hops)
	}
	if lost := list("unrouted"); len(lost) != 1 || lost[0]["address"] != "GONE" || lost[0]["count"] != 2.0 || lost[0]["reason"] != "not wired" {
		t.Errorf("unrouted %v", lost)
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(r.ctl(t, "top", "--count", "1", "--interval", "100ms", "-o", "json")), &v); err != nil || v["router"] != "seen" {
		t.Errorf("top %v, %v", v, err)
	}
	for range 3 {
		recv.expect("message")
	}
	r.ctl(t, "connections", "--close", id)
	if e := recv.expect("error"); e.text("condition") != "amqp:connection:forced" {
		t.Errorf("the receiver is told %v", e)
	}
}
