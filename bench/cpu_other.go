//go:build !linux

package main

import "time"

var began = time.Now()

// threadTime is the time on the clock, where there is no other.
func threadTime() time.Duration { return time.Since(began) }

// processTime is not known here.
func processTime(int) int64 { return 0 }
