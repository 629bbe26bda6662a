package leaks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines have to end. goleak gives them half a second, which a busy machine may take to run the last lines of one.
const patience = 20 * time.Second

// Main runs the tests and ends the program, with an error where goroutines are left that ignore does not name. It is for TestMain.
func Main(m *testing.M, ignore ...goleak.Option) { os.Exit(Run(m, ignore...)) }

// Run is Main for who has something to do before the program ends: it gives the program's status.
func Run(m *testing.M, ignore ...goleak.Option) int {
	status := m.Run()
	if status != 0 {
		return status
	}
	if err := find(patience, ignore...); err != nil {
		fmt.Fprintln(os.Stderr, "goroutines outlive the tests:", err)
		return 1
	}
	return 0
}

func find(patience time.Duration, ignore ...goleak.Option) error {
	for end := time.Now().Add(patience); ; {
		if err := goleak.Find(ignore...); err == nil || time.Now().After(end) {
			return err
		}
	}
}
