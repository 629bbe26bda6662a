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

// The crash loop, 300 kills, and no longer than SOAK says. Connections have many edits under way, few of them long, and the programs are without
// the race detector: so the router takes several times as many.
func TestSoakCrash(t *testing.T) {
	span, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil {
		t.Fatalf("SOAK: %v: make soak SOAK=10m", err)
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/", "./cmd/router", "./cmd/routectl")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	c := newCrash(t, rand.Uint64(), filepath.Join(dir, "router"), filepath.Join(dir, "routectl"))
	c.ahead, c.long = 64, 24
	for began := time.Now(); c.kills < 300 && time.Since(began) < span; {
		c.round()
	}
	c.finish()
}
