package load

import (
	"runtime"
	"syscall"
	"time"
)

// pacer sleeps to the microsecond: the runtime's own timers wait for whole milliseconds where a process has nothing else to do.
type pacer struct{}

func newPacer() pacer {
	runtime.LockOSThread()
	const prSetTimerSlack = 29
	syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerSlack, 1, 0) // or the kernel adds 50 µs; where it refuses, it adds them
	return pacer{}
}

func (pacer) sleep(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	syscall.Nanosleep(&t, nil)
}

func (pacer) done() { runtime.UnlockOSThread() }
