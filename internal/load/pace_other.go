//go:build !linux

package load

import "time"

type pacer struct{}

func newPacer() pacer               { return pacer{} }
func (pacer) sleep(d time.Duration) { time.Sleep(d) }
func (pacer) done()                 {}
