//go:build !unix

package app

import (
	"log/slog"

	"github.com/fingerpost/fingerpost/forwarder"
)

func warnOfDescriptors(*slog.Logger, forwarder.Limits) {}
