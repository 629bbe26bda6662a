package leaks

import (
	"testing"
	"time"
)

func TestWhatOutlivesTheTestsIsWaitedForAndThenNamed(t *testing.T) {
	end := make(chan struct{})
	go func() { <-end }()
	if err := find(time.Millisecond); err == nil {
		t.Error("a goroutine that does not end is not found")
	}
	time.AfterFunc(time.Second, func() { close(end) }) // longer than goleak waits
	if err := find(patience); err != nil {
		t.Error(err)
	}
}
