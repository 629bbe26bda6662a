package interop

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const changesUnderLoad = 200

// version is a state of the table that was asked for: in force at the earliest when it was begun, and surely when it was done.
type version struct {
	what        string
	hops        uint32 // a bit for each hop that the name leads to
	begun, done time.Time
}

// flight is one message under way.
type flight struct {
	sent, ended time.Time
	outcome     string
}

// While messages flow, the table changes under them. Every message is accepted, and has reached exactly the places of one
// table that was in force while it passed: none lost, none twice, none to half a table, none out of order.
func TestTheTableChangesUnderLoad(t *testing.T) {
	changeUnderLoad(t, startRouter(t, "busy", ""), "COLOSSUS", changesUnderLoad, messagesUnderLoad)
}

// changeUnderLoad makes changes to the rows of a name while messages flow to it.
func changeUnderLoad(t *testing.T, r *router, name string, changes, messages int) {
	t.Helper()
	const hops = 5
	var places [hops]*rawServer
	for i := range places {
		places[i] = listenRaw(t, nil)
	}
	for _, p := range places[:2] {
		r.ctl(t, "add", name, p.url(""))
	}
	flow := startFlow(newRawSender(t, r.addr, []byte(name)), name, messages)
	versions := changeTable(t, r, name, places[:], changes)
	flights, err := flow.finish()
	if err != nil {
		t.Fatal(err)
	}

	reached := make([]uint32, len(flights))
	for i, p := range places {
		last := -1
		for _, d := range p.all() {
			n := numberOf(d)
			if n >= len(reached) {
				t.Fatalf("place %d got message %d, which was never sent", i, n)
			}
			if n < last {
				t.Errorf("place %d got message %d after %d", i, n, last)
			}
			last = n
			if reached[n]&(1<<i) != 0 {
				t.Errorf("place %d got message %d twice", i, n)
			}
			reached[n] |= 1 << i
		}
	}
	wrong := 0
	used := map[int]int{}
	for n, f := range flights {
		v := versionOf(versions, f, reached[n])
		if f.outcome == "accepted" && v >= 0 {
			used[v]++
			continue
		}
		if wrong++; wrong <= 10 {
			t.Errorf("message %d: %s, reached %05b; tables in force between its send and its outcome:%s", n, f.outcome, reached[n], inForce(versions, f))
		}
	}
	if wrong > 10 {
		t.Errorf("and %d more of %d", wrong-10, len(flights))
	}
	if len(used) < changes/4 {
		t.Errorf("messages met only %d tables of %d: the load did not overlap the changes", len(used), len(versions))
	}
	t.Logf("%d messages, %d tables met", len(flights), len(used))
}

// numberOf is the number of a message of a flow.
func numberOf(d *rawDelivery) int { return int(binary.BigEndian.Uint64(d.payload[len(d.payload)-8:])) }

// inForce lists the versions that may have been in force while a message passed.
func inForce(versions []version, f flight) string {
	var b strings.Builder
	for i := range versions {
		if mayHold(versions, i, f) {
			fmt.Fprintf(&b, "\n  %d: %05b (%s)", i, versions[i].hops, versions[i].what)
		}
	}
	return b.String()
}

// mayHold tells whether version i can have been in force between the send and the outcome.
func mayHold(versions []version, i int, f flight) bool {
	return !versions[i].begun.After(f.ended) && (i+1 == len(versions) || !versions[i+1].done.Before(f.sent))
}

func versionOf(versions []version, f flight, reached uint32) int {
	for i := range versions {
		if versions[i].hops == reached && mayHold(versions, i, f) {
			return i
		}
	}
	return -1
}

// changeTable makes the changes, by the rhea management client and routectl in turn.
func changeTable(t *testing.T, r *router, name string, places []*rawServer, changes int) []version {
	t.Helper()
	manage := client(t, rhea, "manage", "--url", r.url())
	manage.expect("ready")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	table := []int{0, 1} // places in table order
	versions := []version{{what: "at first", hops: bits(table)}}
	for n := range changes {
		verb, place := nextChange(random, table, len(places))
		switch at := slices.Index(table, place); verb {
		case "add":
			table = append(table, place)
		case "delete":
			table = slices.Delete(table, at, at+1)
		case "replace": // the first in place; a later row that is equal goes
			if at > 0 {
				table = slices.Delete(table, at, at+1)
			}
			table[0] = place
		}
		v := version{what: fmt.Sprintf("change %d: %s %d", n, verb, place), hops: bits(table), begun: time.Now()}
		if n%2 == 0 {
			operation := map[string]string{"add": "ADD", "delete": "DELETE-ROUTE", "replace": "REPLACE"}[verb]
			ask(t, manage, n, operation, map[string]any{"pattern": name, "address": places[place].url("")})
		} else {
			r.ctl(t, verb, name, places[place].url(""))
		}
		v.done = time.Now()
		versions = append(versions, v)
	}
	return versions
}

// nextChange chooses a change that changes something and leaves a place.
func nextChange(random *rand.Rand, table []int, places int) (verb string, place int) {
	for {
		place = random.IntN(places)
		in := slices.Contains(table, place)
		switch random.IntN(3) {
		case 0:
			if !in {
				return "add", place
			}
		case 1:
			if in && len(table) > 1 {
				return "delete", place
			}
		case 2:
			if table[0] != place {
				return "replace", place
			}
		}
	}
}

func bits(table []int) (b uint32) {
	for _, place := range table {
		b |= 1 << place
	}
	return b
}

// ask makes a management request by the rhea client; it must be done.
func ask(t testing.TB, manage *process, id int, operation string, body map[string]any) event {
	t.Helper()
	line, _ := json.Marshal(map[string]any{"id": id, "operation": operation, "type": "table", "name": "main", "body": body})
	if _, err := manage.stdin.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	e := manage.expect("answer")
	if e.number("status") >= 300 || e.text("id") != fmt.Sprint(id) {
		t.Fatalf("%s %v: got %v, want an answer to %d below 300", operation, body, e, id)
	}
	return e
}

// flowing sends messages without a pause, few at a time, from a goroutine of its own. It ends early where sending fails.
type flowing struct {
	s    *rawSender
	stop chan struct{} // closed: stop when there were enough
	done sync.WaitGroup

	// Owned by the goroutine until it is done.
	flights []flight
	err     error
}

const flowWindow = 16

func startFlow(s *rawSender, to string, atLeast int) *flowing {
	f := &flowing{s: s, stop: make(chan struct{})}
	ended := 0
	s.onOutcome = func(id uint32, o outcome) {
		f.flights[id].ended = time.Now()
		f.flights[id].outcome = o.String()
		ended++
	}
	f.done.Go(func() {
		pace := time.NewTicker(time.Millisecond)
		defer pace.Stop()
		properties := composite(propertiesSection, null, null, str(to))
		for f.err == nil && !(len(f.flights) >= atLeast && isDone(f.stop)) {
			n := uint64(len(f.flights))
			if perMillisecond > 0 && n%uint64(perMillisecond) == 0 {
				<-pace.C // leaves the machine to those who change the table
			}
			if f.err = s.pumpUntil("outcomes", func() bool { return len(f.flights)-ended < flowWindow }); f.err != nil {
				return
			}
			f.flights = append(f.flights, flight{sent: time.Now()})
			_, f.err = s.send(join(properties, described(dataSection, binaryv(binary.BigEndian.AppendUint64(nil, n)))), false)
		}
		if f.err == nil {
			f.err = s.pumpUntil("the last outcomes", func() bool { return ended == len(f.flights) })
		}
	})
	return f
}

func isDone(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// finish lets the flow end and gives every message.
func (f *flowing) finish() ([]flight, error) {
	close(f.stop)
	f.done.Wait()
	return f.flights, f.err
}
