package forwarder

import (
	"math"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// Any timestamp is a time that can be read again.
func TestFromTimeOfAnyTimestamp(t *testing.T) {
	for v, want := range map[wire.Timestamp]string{
		0: "1970-01-01T00:00:00Z", 1_500: "1970-01-01T00:00:01.5Z", -1: "1969-12-31T23:59:59.999Z",
		math.MaxInt64: "9999-12-31T23:59:59.999Z", lastMilli + 1: "9999-12-31T23:59:59.999Z",
		math.MinInt64: "0000-01-01T00:00:00Z", firstMilli - 1: "0000-01-01T00:00:00Z",
	} {
		got, err := timeText(v)
		if err != nil || got != want {
			t.Errorf("%d: got %s and %v, want %s", v, got, err, want)
		}
		if _, err := time.Parse(time.RFC3339Nano, got); err != nil {
			t.Error(err)
		}
	}
}
