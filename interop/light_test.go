//go:build !heavy

package interop

import (
	"math/rand/v2"
	"time"
)

// How much is done where the tests are part of the whole suite.
const (
	messagesUnderLoad = 5_000
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
