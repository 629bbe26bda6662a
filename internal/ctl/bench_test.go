package ctl

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/internal/load"
)

func TestBenchOnARouter(t *testing.T) {
	_, host := startRouter(t)
	out, errs, status := routectl(t, "--url", "amqp://"+host, "bench", "--duration", "50ms", "--warmup", "1ms", "--window", "10", "-o", "json")
	var x load.Result
	if err := json.Unmarshal([]byte(out), &x); err != nil || status != exitDone || x.Peer.Messages == 0 || x.Peer.Lost != 0 {
		t.Errorf("status %d: %v: %s%s", status, err, out, errs)
	}
	out, errs, status = routectl(t, "--url", "amqp://operator:secret@"+host, "bench", "--settled", "--duration", "50ms", "--warmup", "1ms", "--rate", "1000")
	if status != exitDone || !strings.HasPrefix(out, "1 → 1, 1 address, 100 bytes, pre-settled, 1000 messages/s\nBY ") || !strings.Contains(out, "\nsent ") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
}

func TestBenchRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   []string
		status int
		want   string
	}{
		{"no router", []string{"--url", "amqp://127.0.0.1:1", "bench"}, exitUnreachable, "connection refused"},
		{"a file", []string{"--file", "x.yaml", "bench"}, exitUsage, "needs a router"},
		{"--self with a url", []string{"--url", "amqp://127.0.0.1:1", "bench", "--self"}, exitUsage, "--self"},
		{"idle without a process", []string{"bench", "--idle-links", "10"}, exitUsage, "--pid or --self"},
		{"a size out of range", []string{"bench", "--size", "-1"}, exitUsage, "out of range"},
		{"no senders", []string{"bench", "--senders", "0", "--duration", "1ms"}, exitUsage, "senders: more than 0"},
		{"no time", []string{"bench", "--duration", "0"}, exitUsage, "duration: more than 0"},
		{"a process that is not there", []string{"bench", "--pid", "999999999"}, exitNo, "999999999"},
	} {
		_, host := startRouter(t)
		args := c.args
		if c.args[0] == "bench" && c.args[1] != "--self" {
			args = append([]string{"--url", "amqp://" + host}, args...)
		}
		_, errs, status := routectl(t, args...)
		if status != c.status || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: got %d %q", c.name, status, errs)
		}
	}
}

func routectl(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	status = Run(t.Context(), args, Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }})
	return out.String(), errs.String(), status
}
