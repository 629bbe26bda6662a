//go:build soak

package interop

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// The crash loop, 300 times, and no longer than SOAK says. Without the race detector the router takes several times as many edits.
func TestSoakCrash(t *testing.T) {
	span, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil {
		t.Fatalf("SOAK: %v: make soak SOAK=10m", err)
	}
	program := filepath.Join(t.TempDir(), "router")
	build := exec.Command("go", "build", "-o", program, "./cmd/router")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the router: %v\n%s", err, out)
	}
	c := newCrash(t, rand.Uint64(), program)
	for began := time.Now(); c.rounds < 300 && time.Since(began) < span; {
		c.round()
	}
	c.finish()
}
