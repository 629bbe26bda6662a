//go:build !unix

package app

import (
	"log/slog"

	"github.com/fingerpost/fingerpost/forwarder"
)

func boundByDescriptors(_ *slog.Logger, l forwarder.Limits) forwarder.Limits { return l }
