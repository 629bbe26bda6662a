//go:build unix

package app

import (
	"log/slog"
	"syscall"

	"github.com/fingerpost/fingerpost/forwarder"
)

// spareDescriptors are for what is not a client: hops, files, HTTP.
const spareDescriptors = 200

// maxFiles is how many files the process may have open; the runtime has raised the soft limit to the hard one.
func maxFiles() (n uint64, ok bool) {
	var have syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &have)
	return uint64(have.Cur), err == nil
}

// withinDescriptors lowers the limit of connections to what the process may have open: a client too many is told so, and the state directory,
// tables, hops and /healthz go on. Without it clients take every descriptor there is.
func withinDescriptors(l forwarder.Limits, files uint64) forwarder.Limits {
	room := files / 2
	if files > 2*spareDescriptors {
		room = files - spareDescriptors
	}
	if uint64(l.WithDefaults().Connections) > room {
		l.Connections = max(int(room), 1)
	}
	return l
}

// boundByDescriptors gives the limits that can be kept, and says where they are lower than the configuration has them.
func boundByDescriptors(log *slog.Logger, l forwarder.Limits) forwarder.Limits {
	files, ok := maxFiles()
	if !ok {
		return l
	}
	bound := withinDescriptors(l, files)
	if want := l.WithDefaults().Connections; bound.Connections != l.Connections {
		log.Warn("fewer files may be open than limits.connections needs: fewer clients are taken",
			"files", files, "wanted", want+spareDescriptors, "connections", bound.Connections, "do", "ulimit -n")
	}
	return bound
}
