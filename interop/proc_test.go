package interop

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// childOf gives the process id of a child, "" for none.
func childOf(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	first, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if first != "" {
		return first
	}
	// A child belongs to the thread that started it.
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range tasks {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		if f := strings.Fields(string(text)); len(f) > 0 {
			return f[0]
		}
	}
	return ""
}

// cpuOf is how much a process has worked, in hundredths of a second.
func cpuOf(pid string) int {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0
	}
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(string(f[11]))
	system, _ := strconv.Atoi(string(f[12]))
	return user + system
}

func exists(pid string) bool {
	_, err := os.Stat("/proc/" + pid)
	return err == nil
}

// writesOf is how many writes a process has made, to sockets and files.
func writesOf(t *testing.T, pid string) uint64 {
	t.Helper()
	text, err := os.ReadFile("/proc/" + pid + "/io")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "syscw: ")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseUint(line, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// residentKiB is how much memory a process has.
func residentKiB(t testing.TB, pid int) (kib int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	fmt.Sscan(rest, &kib)
	return kib
}
