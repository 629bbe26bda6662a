package main

import (
	"fmt"
	"io"
	"net"
	"time"
)

// measured is how much CPU of the router and time passes while f runs, after it ran for a moment.
func measured(r *router, duration time.Duration, f func() (bool, error), count *int) (cpu, took time.Duration, n int, err error) {
	warm := time.Now().Add(duration / 5)
	for time.Now().Before(warm) {
		if _, err := f(); err != nil {
			return 0, 0, 0, err
		}
	}
	began, before, first := time.Now(), r.cpu(), *count
	for time.Since(began) < duration {
		if _, err := f(); err != nil {
			return 0, 0, 0, err
		}
	}
	return r.cpu() - before, time.Since(began), *count - first, nil
}

// echo sends back what it reads, on every connection.
func echo() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return
	}
	fmt.Println("ready http://" + ln.Addr().String())
	for {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			b := make([]byte, 64<<10)
			for {
				n, err := nc.Read(b)
				if err != nil {
					return
				}
				nc.Write(b[:n])
			}
		}()
	}
}

// echoThere is the CPU time, in µs, of copying a message of 104 bytes from socket to socket in bursts of 500 where the goals were set.
const echoThere = 0.069

// measureEcho says what a read and a write cost on this machine now (a request one at a time is two reads and four writes), and gives how much
// slower than that other machine it is.
func measureEcho(duration time.Duration) (slower float64, err error) {
	r, err := startEcho()
	if err != nil {
		return 0, err
	}
	defer r.stop()
	nc, err := net.Dial("tcp", r.addr)
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	each := func(size int) (us, perSecond float64, err error) {
		b, count := make([]byte, size), 0
		cpu, took, n, err := measured(r, duration, func() (bool, error) {
			if _, err := nc.Write(b); err != nil {
				return false, err
			}
			_, err := io.ReadFull(nc, b)
			count++
			return true, err
		}, &count)
		return float64(cpu.Microseconds()) / float64(n), float64(n) / took.Seconds(), err
	}
	one, rate, err := each(200)
	if err != nil {
		return 0, err
	}
	burst, _, err := each(500 * 104)
	slower = max(1, burst/500/echoThere)
	fmt.Printf("        for comparison: a bare echo of 200 bytes, one at a time: %.2f µs of CPU (%.0f a second); 104 bytes of a burst: %.3f µs, %.1f × what it took where the goals were set\n",
		one, rate, burst/500, slower)
	return slower, err
}
