package interop

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A table file is edited under a running router; routectl shows what is in force, and what is wrong with the file.
func TestTableFileIsFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config, table := filepath.Join(dir, "router.yaml"), filepath.Join(dir, "live.yaml")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(table, "routes: [{pattern: A, address: amqp://one}]")
	write(config, "tables: [live.yaml]")
	p := start(t, "router", routerProgram, "--config", config, "--listen", "amqp://127.0.0.1:0")
	r := &router{process: p, addr: strings.TrimPrefix(p.line(), "ready amqp://")}
	listed := func(row, warning string) func() bool {
		return func() bool {
			out, errs, status := r.tryCtl(t, "list", "--origin", "file:live.yaml")
			return status == 0 && strings.Contains(out, row) && (warning == "" && errs == "" || warning != "" && strings.Contains(errs, warning))
		}
	}
	eventually(t, "the row of the start", listed("amqp://one", ""))
	write(table, "routes: [{pattern: A, address: amqp://two}]")
	eventually(t, "the row of the edited file", listed("amqp://two", ""))
	write(table, "routes:\n  - {pattern: A, address: amqp://three, wrong: 1}\n")
	eventually(t, "a warning, and the row of before", listed("amqp://two", "warning: "+table+": line 2, column 41: "))
	write(config, "tables: [live.yaml, more.yaml]")
	write(filepath.Join(dir, "more.yaml"), "routes: [{pattern: B, address: amqp://four}]")
	p.cmd.Process.Signal(syscall.SIGHUP)
	eventually(t, "a refused reload", func() bool { return strings.Contains(p.log.String(), "reload refused, nothing was changed") })
	if out := r.ctl(t, "list"); strings.Contains(out, "amqp://four") {
		t.Errorf("a refused reload has loaded rows:\n%s", out)
	}
	write(table, "routes: [{pattern: A, address: amqp://five}]")
	eventually(t, "the row of the mended file", listed("amqp://five", ""))
	p.cmd.Process.Signal(syscall.SIGHUP)
	eventually(t, "the file that the configuration now names", func() bool { return strings.Contains(r.ctl(t, "list"), "amqp://four") })
}
