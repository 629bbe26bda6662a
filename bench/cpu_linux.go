package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the CPU time of the thread that calls it: what others do on the machine meanwhile does not count.
func threadTime() time.Duration {
	var ts unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts))
	return time.Duration(ts.Nano())
}

// processTime is the CPU time of a process, of all that have been its threads, in ns.
func processTime(pid int) (total int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	check(err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var user, system int64
	_, err = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	check(err)
	return (user + system) * 1e7 // a tick is a hundredth of a second
}
