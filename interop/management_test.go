package interop

import (
	"encoding/json"
	"testing"
)

// A foreign client manages the table by the door: it creates, asks, changes, deletes and is told what is wrong.
func TestManagementByAForeignClient(t *testing.T) {
	r := startRouter(t, "managed", rows("HAL9000", "null"))
	manage := client(t, rhea, "manage", "--url", r.url())
	manage.expect("ready")
	hop := listenRaw(t, nil)
	next := 0
	call := func(want int, request map[string]any) event {
		t.Helper()
		next++
		request["id"] = next
		line, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := manage.stdin.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
		e := manage.expect("answer")
		if e.number("status") != want {
			t.Errorf("%s: got status %d %q, want %d", line, e.number("status"), e.text("description"), want)
		}
		return e
	}
	type m = map[string]any
	address := hop.url("")
	call(201, m{"operation": "CREATE", "type": "route", "name": "arm", "body": m{"pattern": "COLOSSUS", "address": address, "note": "an arm"}})
	call(200, m{"operation": "CREATE", "type": "route", "name": "arm", "body": m{"pattern": "COLOSSUS", "address": address, "note": "an arm"}})
	call(400, m{"operation": "CREATE", "type": "route", "body": m{"pattern": "COLOSSUS", "address": "amqp://host:notaport"}})
	read := call(200, m{"operation": "READ", "type": "route", "name": "arm"})
	if body, _ := read["body"].(map[string]any); body["pattern"] != "COLOSSUS" || body["address"] != address || body["note"] != "an arm" {
		t.Errorf("READ: got %v", read)
	}
	sameOutcomes(t, "COLOSSUS", sendBy(t, goAMQP, r.url(), batchOf{to: "COLOSSUS", id: "m", count: 1, sizes: []int{1}}), "accepted")
	hop.wait(t, 1)
	call(200, m{"operation": "UPDATE", "type": "route", "name": "arm", "body": m{"note": "another"}})
	call(400, m{"operation": "UPDATE", "type": "route", "name": "arm", "body": m{"pattern": "OTHER"}})
	query := call(200, m{"operation": "QUERY", "properties": m{"entityType": "route"}, "body": m{"attributeNames": []string{"pattern", "note"}}})
	body, _ := query["body"].(map[string]any)
	results, _ := body["results"].([]any)
	found := false
	for _, row := range results {
		if cells, _ := row.([]any); len(cells) == 2 && cells[0] == "COLOSSUS" && cells[1] == "another" {
			found = true
		}
	}
	if !found {
		t.Errorf("QUERY: got %v, want a row of COLOSSUS with the note another", query)
	}
	call(204, m{"operation": "DELETE", "type": "route", "name": "arm"})
	call(404, m{"operation": "READ", "type": "route", "name": "arm"})
	call(501, m{"operation": "DANCE", "type": "table", "name": "main"})
	call(200, m{"operation": "GET-TYPES"})
	sameOutcomes(t, "COLOSSUS, which is gone", sendBy(t, goAMQP, r.url(), batchOf{to: "COLOSSUS", id: "m", count: 1, sizes: []int{1}}), "rejected amqp:not-found")
}
