// Routectl edits the route table of a running router, or a table file.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fingerpost/fingerpost/internal/ctl"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait
	status := ctl.Run(ctx, os.Args[1:], ctl.OSEnv())
	stop()
	os.Exit(status)
}
