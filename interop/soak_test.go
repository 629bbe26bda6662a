//go:build soak

package interop

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// One router lives through round after round of messages, changes of the table, cut connections and clients that come and
// go, for the time that SOAK says. It loses nothing, and does not grow.
func TestSoak(t *testing.T) {
	span, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil {
		t.Fatalf("SOAK: %v: make soak SOAK=10m", err)
	}
	r := startRouter(t, "soaked", "")
	began := time.Now()
	early := 0
	for round := 0; time.Since(began) < span && !t.Failed(); round++ {
		t.Run(fmt.Sprintf("round %d", round), func(t *testing.T) {
			name := fmt.Sprintf("COLOSSUS-%d", round)
			changeUnderLoad(t, r, name, 100, 20_000)
			r.ctl(t, "delete-pattern", name)
			cutUnderLoad(t, r, name, 10)
			for _, kind := range allClients {
				b := batchOf{address: name + "/" + kind, to: name + "/" + kind, id: "m", count: 10, sizes: []int{100, 1 << 20}}
				received := receiveBy(t, kind, r.url(), b.address, b.count)
				sameOutcomes(t, kind, sendBy(t, kind, r.url(), b), "accepted")
				sameMessages(t, kind, received(), b.want())
			}
			r.ctl(t, "delete-pattern", name)
		})
		kib := residentKiB(t, r.cmd.Process.Pid)
		t.Logf("round %d, %v: %d KiB", round, time.Since(began).Round(time.Second), kib)
		if round == 2 {
			early = kib
		}
		if early > 0 && kib > 2*early+100<<10 {
			t.Errorf("the router grew from %d to %d KiB", early, kib)
		}
	}
}
