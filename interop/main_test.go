package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fingerpost/fingerpost/internal/house/leaks"
)

// What the tests run, made or found by TestMain.
var (
	routerProgram, routectlProgram string
	nodeProgram, pythonProgram     string
	clients                        string // testdata/interop
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "interop")
		if err == nil {
			defer os.RemoveAll(dir)
			err = prepare(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "interop:", err)
			return 1
		}
		return leaks.Run(m)
	}())
}

// prepare builds the programs, with the race detector, and finds the foreign clients. A part that is missing is an error.
func prepare(dir string) (err error) {
	if clients, err = filepath.Abs(filepath.Join("..", "testdata", "interop")); err != nil {
		return err
	}
	if nodeProgram, err = exec.LookPath("node"); err != nil {
		return fmt.Errorf("%w: make parts installs it", err)
	}
	if _, err := os.Stat(filepath.Join(clients, "node_modules", "rhea")); err != nil {
		return fmt.Errorf("%w: make parts installs it", err)
	}
	if pythonProgram = os.Getenv("PYTHON"); pythonProgram == "" {
		pythonProgram = "/usr/bin/python3"
	}
	if out, err := exec.Command(pythonProgram, "-c", "import proton, cbor2, websockets, cryptography").CombinedOutput(); err != nil {
		return fmt.Errorf("%s: a module is missing: %w: %s: make parts installs it", pythonProgram, err, out)
	}
	os.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	os.Setenv("GORACE", "halt_on_error=1 exitcode=66 atexit_sleep_ms=0") // a race ends the program that has it
	build := exec.Command("go", "build", "-race", "-o", dir+"/", "./cmd/router", "./cmd/routectl")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	routerProgram, routectlProgram = filepath.Join(dir, "router"), filepath.Join(dir, "routectl")
	return nil
}
