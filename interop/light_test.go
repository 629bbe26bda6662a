//go:build !heavy

package interop

import (
	"math/rand/v2"
	"time"
)

// How much is done where the tests are part of the whole suite.
const (
	messagesUnderLoad = 5_000
	requesters        = 1_000
	largeBody         = 200 << 20
	hostility         = 250 * time.Millisecond // of each hostile client
)

var perMillisecond = 2 // messages; 0: as many as go

// faultCases: of each side and stage two cases, and a few deaths.
func faultCases(random *rand.Rand) []fault {
	cases := someFaults(random, func(h harm) bool { return h == isCut || h == isReset })
	cases = append(cases, someFaults(random, func(h harm) bool { return h == isStalled || h == isSwallowed })...)
	kills := someFaults(random, func(h harm) bool { return h == routerDies || h == nextDies })
	random.Shuffle(len(kills), func(i, j int) { kills[i], kills[j] = kills[j], kills[i] })
	return append(cases, kills[:8]...)
}

// someFaults chooses for each side and stage one case of each kind of harm in keep.
func someFaults(random *rand.Rand, keep func(harm) bool) (some []fault) {
	groups := map[string][]fault{}
	for _, f := range allFaults() {
		if keep(f.harm) {
			key := string(f.side) + f.stage.name
			groups[key] = append(groups[key], f)
		}
	}
	for _, key := range sortedKeys(groups) {
		some = append(some, groups[key][random.IntN(len(groups[key]))])
	}
	return some
}
