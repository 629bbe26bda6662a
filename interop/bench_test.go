package interop

import (
	"encoding/json"
	"strconv"
	"syscall"
	"testing"
)

// benchFigures is what a test looks at of a result of bench.
type benchFigures struct {
	Seconds    float64 `json:"seconds"`
	Messages   uint64  `json:"messages"`
	Copies     uint64  `json:"copies"`
	Sent       uint64  `json:"sent"`
	Accepted   uint64  `json:"accepted"`
	Lost       uint64  `json:"lost"`
	Duplicates uint64  `json:"duplicates"`
	RSS        int64   `json:"rss_bytes"`
	Latency    *struct {
		P50 float64 `json:"p50_us"`
	} `json:"latency"`
}

type benchResult struct{ Peer, Relay *benchFigures }

func readBench(t *testing.T, text string) benchResult {
	t.Helper()
	var x benchResult
	if err := json.Unmarshal([]byte(text), &x); err != nil || x.Peer == nil {
		t.Fatalf("%v: %s", err, text)
	}
	return x
}

func TestBenchThroughARouter(t *testing.T) {
	r := startRouter(t, "benched", "")
	pid := strconv.Itoa(r.cmd.Process.Pid)
	for _, args := range [][]string{
		{"--settled", "--rate", "2000"},
		{"--relay"},
		{"--receivers", "4"},
		{"--senders", "3", "--receivers", "3", "--addresses", "30", "--anonymous"},
		{"--size", "200000"},
	} {
		args = append([]string{"bench", "-o", "json", "--pid", pid, "--warmup", "50ms", "--duration", "1s"}, args...)
		f := readBench(t, r.ctl(t, args...))
		if p := f.Peer; p.Messages == 0 || p.Copies == 0 || p.Lost != 0 || p.Duplicates != 0 || p.RSS == 0 || p.Latency == nil {
			t.Errorf("%q: got %+v", args, p)
		}
		if isRelayed := args[len(args)-1] == "--relay"; isRelayed != (f.Relay != nil) || isRelayed && (f.Relay.Lost != 0 || f.Relay.Messages == 0) {
			t.Errorf("%q: relay %+v", args, f.Relay)
		}
	}
}

func TestBenchStartsARouterAndCtrlCEndsBoth(t *testing.T) {
	p := start(t, "bench", routectlProgram, "bench", "--self", "--duration", "1h", "--warmup", "1ms", "-o", "json", "--rows", "1000")
	var router string
	eventually(t, "a router is started", func() bool {
		router = childOf(p.cmd.Process.Pid)
		return router != "" && cpuOf(router) > 100 // more than its start takes
	})
	p.cmd.Process.Signal(syscall.SIGINT)
	text := ""
	for l := range p.lines {
		text += l + "\n"
	}
	if f := readBench(t, text).Peer; f.Messages == 0 || f.Lost != 0 || f.Seconds <= 0 || f.Accepted != f.Sent {
		t.Errorf("got %+v", f)
	}
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if exists(router) {
		t.Errorf("the router %s is left behind", router)
	}
}

func TestBenchMeasuresWhatIsIdle(t *testing.T) {
	r := startRouter(t, "idle", "")
	out := r.ctl(t, "bench", "-o", "json", "--pid", strconv.Itoa(r.cmd.Process.Pid), "--idle-connections", "20", "--idle-links", "200")
	var x map[string]float64
	if err := json.Unmarshal([]byte(out), &x); err != nil || x["connections"] != 20 || x["links"] != 200 || x["attach_seconds"] <= 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// Copies to many links of one connection go out with few writes, as those to one link do.
func TestLinksOfOneConnectionShareWrites(t *testing.T) {
	r := startRouter(t, "writer", "")
	pid := strconv.Itoa(r.cmd.Process.Pid)
	before := writesOf(t, pid)
	f := readBench(t, r.ctl(t, "bench", "-o", "json", "--settled", "--addresses", "3000", "--anonymous", "--warmup", "1ms", "--duration", "500ms")).Peer
	writes := writesOf(t, pid) - before
	if f.Sent < 1000 || f.Lost != 0 || writes > f.Sent/2 {
		t.Errorf("%d writes for %d messages, %d lost", writes, f.Sent, f.Lost)
	}
}
