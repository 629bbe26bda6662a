// Command bench measures the routing table, alone and against two other matchers of topics, and prints one table of what it
// found and what was asked for. Read README.md for what the lines mean.
//
//	go run . -quick
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"
)

// settings are the flags.
type settings struct {
	rows  int           // of the large table
	count int           // repetitions; the median of them is the value
	turn  time.Duration // about how long one repetition of a lookup takes
	dir   string        // where tables on disk are put; empty is the system's
}

// measurement is a part of the run that can be chosen by its name.
type measurement struct {
	name string
	run  func(settings) []line
}

// measurements in the order of the table. The first ones need a heap without anything else in it.
var measurements = []measurement{
	{"load", measureLoad},
	{"memory", measureMemory},
	{"hot", measureHot},
	{"uniform", measureUniform},
	{"edit", measureEdits},
	{"peers", measurePeers},
	{"durable", measureDurable},
	{"components", measureComponents},
}

func main() {
	if len(os.Args) == 3 && parts[os.Args[1]] != nil {
		parts[os.Args[1]](os.Args[2])
		return
	}
	s := settings{turn: 300 * time.Millisecond}
	flag.IntVar(&s.rows, "rows", 1_000_000, "rows of the large table")
	flag.IntVar(&s.count, "count", 5, "repetitions; the median of them is the value")
	flag.StringVar(&s.dir, "dir", "", "where the tables on disk are put; it tells the speed of this disk (default the system's temporary directory)")
	quick := flag.Bool("quick", false, "10,000 rows and short turns")
	only := flag.String("only", "", "only the measurements whose name matches this regular expression: load, memory, hot, uniform, edit, peers, durable, components")
	asJSON := flag.Bool("json", false, "JSON instead of a markdown table")
	flag.Parse()
	chosen, err := regexp.Compile(*only)
	if err != nil || s.rows < 100 || s.count < 1 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "bench: -only is a regular expression, -rows at least 100, -count at least 1, and there are no arguments")
		os.Exit(2)
	}
	if *quick {
		s.rows, s.turn = 10_000, 50*time.Millisecond
	}
	if !*asJSON {
		check(writeHead(os.Stdout))
	}
	var lines []line
	for _, m := range measurements {
		if !chosen.MatchString(m.name) {
			continue
		}
		start := time.Now()
		found := m.run(s)
		fmt.Fprintf(os.Stderr, "%s: %.1f s\n", m.name, time.Since(start).Seconds())
		lines = append(lines, found...)
		for _, l := range found {
			if !*asJSON {
				check(writeLine(os.Stdout, l))
			}
		}
	}
	if *asJSON {
		check(writeJSON(os.Stdout, lines))
	}
}

// check ends the run: a measurement of what failed means nothing.
func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
