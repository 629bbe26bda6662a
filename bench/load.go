package main

import (
	"runtime"
	"strings"

	"github.com/fingerpost/fingerpost/internal/house/mix"
	"github.com/fingerpost/fingerpost/routetable"
)

// loadGoal is for each row: a million in six seconds.
const loadGoal = 6e3

// measureLoad reads a table file of the arrow form and loads it into an empty table.
func measureLoad(s settings) []line {
	text := arrowText(s.rows)
	var parse, load, both []float64
	for range s.count {
		runtime.GC()
		var f *routetable.File
		var err error
		p := timed(func() { f, err = routetable.ParseFile("bench", text) })
		check(err)
		l := timed(func() { _, err = routetable.New().LoadFile(f, routetable.LoadReplace) })
		check(err)
		parse, load, both = append(parse, p), append(load, l), append(both, p+l)
	}
	what := "load of " + thousands(s.rows) + " rows in the arrow form"
	return []line{
		newLine(what, ns, both).atMost(loadGoal * float64(s.rows)),
		newLine(what+": parse and check", ns, parse),
		newLine(what+": load", ns, load),
	}
}

const (
	rowGoal = 150  // bytes a row, beyond its texts
	gcGoal  = 50e6 // ns of all CPUs together
)

// measureMemory loads the table from a file, as a node does, and looks at what is left when the file is gone.
func measureMemory(s settings) []line {
	before := heap()
	t, err := routetable.Load(strings.NewReader(string(arrowText(s.rows))))
	check(err)
	grown := heap() - before
	cycles := make([][]float64, 2)
	for range s.count {
		wall, cpu := gcCycle()
		cycles[0], cycles[1] = append(cycles[0], wall), append(cycles[1], cpu)
	}
	runtime.KeepAlive(t)
	text, rows := textBytes(s.rows, mix.All)
	of := " at " + thousands(s.rows) + " rows"
	return []line{
		newLine("memory of a row beyond its texts"+of, memory, []float64{(grown - text) / rows}).atMost(rowGoal),
		newLine("memory of a row and its texts"+of, memory, []float64{grown / rows}),
		newLine("one cycle of the garbage collector"+of+": CPU", ns, cycles[1]).atMost(gcGoal),
		newLine("one cycle of the garbage collector"+of+": clock", ns, cycles[0]).atMost(gcGoal),
	}
}
