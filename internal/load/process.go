package load

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// userHz is the unit of times in /proc/PID/stat: 100 on every Linux that programs can run on (it is part of the interface).
const userHz = 100

// usage is what a process has used.
type usage struct {
	cpu time.Duration // user and system
	rss int64         // bytes
}

// usageOf reads what a process has used; of pid 0 it is nothing. It works where there is a /proc of Linux's kind.
func usageOf(pid int) (usage, error) {
	if pid == 0 {
		return usage{}, nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return parseStat(text)
}

// parseStat reads the times and the resident pages of a /proc/PID/stat. The command in it, in brackets, may hold anything.
func parseStat(text []byte) (usage, error) {
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(f) < 22 {
		return usage{}, fmt.Errorf("%d fields behind the command of a process, want 22", len(f))
	}
	var n [3]int64
	for i, at := range [...]int{11, 12, 21} { // utime, stime, rss: fields 14, 15 and 24 of proc(5)
		v, err := strconv.ParseInt(string(f[at]), 10, 64)
		if err != nil {
			return usage{}, fmt.Errorf("field %d of a process: %w", at+3, err)
		}
		n[i] = v
	}
	return usage{cpu: time.Duration(n[0]+n[1]) * time.Second / userHz, rss: n[2] * int64(os.Getpagesize())}, nil
}
