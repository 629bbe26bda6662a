package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the CPU time of the thread that calls it: what others do on the machine meanwhile does not count.
func threadTime() time.Duration {
	var ts unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts))
	return time.Duration(ts.Nano())
}
