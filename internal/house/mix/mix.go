package mix

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Kind is the kind of a row's pattern.
type Kind uint8

// The kinds, and how many of 20 rows are of it.
const (
	Literal Kind = iota // 16: the address itself
	Topic               // 3: whole segments are wildcards, half of them in the topic: space, half in the Messenger dialect
	Glob                // 1: a glob: pattern; 2 in 5 of them begin with a wildcard
)

// ExactAndTopic leaves out the globs, which other matchers of topics do not have.
func ExactAndTopic(k Kind) bool { return k != Glob }

// All takes every row.
func All(Kind) bool { return true }

// Row is a row as it is written, 30 to 70 bytes each text.
type Row struct {
	Kind    Kind
	Pattern string
	Address string // literal, and another one for every row
	Hit     string // an address that the pattern fits
}

// Mix is a plant's table of a number of rows: a tenth as many devices as rows, ten devices on a line, five lines in a site.
// An address is area/site/line/device/measure, and one in four is in the topic: space.
type Mix struct {
	Rows int
}

// The words of addresses. No word holds a ".", so that every address is a subject for NATS too.
var (
	areas    = [...]string{"eu-west", "eu-north", "eu-south", "us-east", "us-west", "us-south", "ap-east", "ap-south", "ap-north", "sa-east", "af-south", "af-north", "me-west", "me-south", "ca-west", "ca-east"}
	cities   = [...]string{"berlin", "lyon", "turin", "porto", "oslo", "krakow", "austin", "boston", "lima", "quito", "osaka", "busan", "pune", "accra", "tunis", "perth"}
	devices  = [...]string{"pump", "valve", "motor", "sensor", "meter", "press", "robot", "mixer"}
	measures = [...]string{"temperature", "pressure", "flow", "speed", "torque", "voltage", "current", "power", "humidity", "level", "vibration", "position", "alarm", "state", "mode", "heartbeat", "energy", "weight", "density", "noise", "setpoint", "command", "reply", "config", "firmware", "log", "fault", "cycle", "batch", "count", "runtime", "service"}
)

// hash spreads i over 64 bits (the finish of splitmix64).
func hash(i uint64) uint64 {
	i += 0x9e3779b97f4a7c15
	i = (i ^ i>>30) * 0xbf58476d1ce4e5b9
	i = (i ^ i>>27) * 0x94d049bb133111eb
	return i ^ i>>31
}

func (m Mix) devices() uint64 { return uint64(max(10, m.Rows/10)) }

// segments are the parts of a device's address.
func segments(device uint64, measure string) (area, site, line, dev, meas string) {
	s := device / 50
	return areas[s%16], fmt.Sprintf("%s-%04d", cities[s/16%16], s), fmt.Sprintf("line-%d", device/10%5),
		fmt.Sprintf("%s-%07d", devices[device%8], device), measure
}

// KindOf returns the kind of row i.
func KindOf(i int) Kind {
	switch {
	case i%20 < 16:
		return Literal
	case i%20 < 19:
		return Topic
	}
	return Glob
}

// Row returns row i. From Rows on it is a row that the table does not have.
func (m Mix) Row(i int) Row {
	h := hash(uint64(i))
	area, site, line, dev, meas := segments(h%m.devices(), measures[h>>32%32])
	r := Row{
		Kind:    KindOf(i),
		Address: fmt.Sprintf("amqp://broker-%03d.%s.example/inbox-%08d", h>>48%200, area, i),
		Hit:     strings.Join([]string{area, site, line, dev, meas}, "/"),
	}
	switch r.Kind {
	case Literal:
		if h>>40%4 == 0 {
			r.Hit = "topic:" + r.Hit
		}
		r.Pattern = r.Hit
	case Topic:
		one, rest, space := "%", "*", ""
		if h>>40%2 == 0 {
			one, rest, space = "*", "**", "topic:"
		}
		r.Hit = space + r.Hit
		switch h >> 41 % 10 {
		case 0, 1, 2:
			dev = one
		case 3, 4:
			line = one
		case 5:
			site = one
		case 6, 7, 8:
			meas = rest
		default:
			dev, meas = rest, ""
		}
		r.Pattern = strings.TrimSuffix(space+strings.Join([]string{area, site, line, dev, meas}, "/"), "/")
	case Glob:
		shape := "glob:"
		switch i / 20 % 5 {
		case 0:
			shape += "**/" + dev + "/" + meas
		case 1:
			shape += "*/" + site + "/line-?/" + dev + "/*"
		case 2:
			shape += area + "/" + site + "/line-[0-4]/" + dev + "/{" + meas + ",audit,trace}"
		case 3:
			shape += area + "/" + site + "/**/" + dev + "/*"
		default:
			_, number, _ := strings.Cut(dev, "-")
			shape += area + "/" + site + "/" + line + "/*-" + number + "/" + meas
		}
		r.Pattern = shape
	}
	return r
}

// miss is an address that no row fits: half of them of a site that is not there, half of a device that is not on a line.
func (m Mix) miss(r uint64) string {
	d := m.devices()
	area, site, line, _, meas := segments(r>>1%d, measures[r>>32%32])
	_, _, _, dev, _ := segments(d+r>>1%d, "")
	if r&1 == 0 {
		site = fmt.Sprintf("%s-%04d", cities[r>>40%16], 10_000_000+r>>8%d)
	} else {
		line = "line-9"
	}
	return strings.Join([]string{area, site, line, dev, meas}, "/")
}

// Addresses returns n addresses: 9 in 10 fit some row of the kinds, each row as often as another, and 1 in 10 fits none.
func (m Mix) Addresses(n int, seed uint64, kinds func(Kind) bool) []string {
	rnd := rand.New(rand.NewPCG(seed, uint64(m.Rows)))
	addrs := make([]string, 0, n)
	for len(addrs) < n {
		if rnd.IntN(10) == 0 {
			addrs = append(addrs, m.miss(rnd.Uint64()))
		} else if i := rnd.IntN(m.Rows); kinds(KindOf(i)) {
			addrs = append(addrs, m.Row(i).Hit)
		}
	}
	return addrs
}
