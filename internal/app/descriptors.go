//go:build unix

package app

import (
	"log/slog"
	"syscall"

	"github.com/fingerpost/fingerpost/forwarder"
)

// spareDescriptors are for what is not a client: hops, files, HTTP.
const spareDescriptors = 200

// warnOfDescriptors says when the process may not have as many connections as it is configured for. The soft limit is raised to the hard
// one by the runtime.
func warnOfDescriptors(log *slog.Logger, l forwarder.Limits) {
	var have syscall.Rlimit
	want := uint64(l.WithDefaults().Connections) + spareDescriptors
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &have); err == nil && uint64(have.Cur) < want {
		log.Warn("fewer files may be open than limits.connections needs: clients will have to wait", "files", have.Cur, "wanted", want, "do", "ulimit -n")
	}
}
