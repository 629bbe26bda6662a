package main

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/internal/app"
	"github.com/fingerpost/fingerpost/internal/house/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestAnEmptyFlagIsRefused(t *testing.T) {
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"nothing given", "", nil},
		{"values", "", []string{"--state", "s", "--table", "a", "--table", "b,c"}},
		{"an empty state", "--state is empty: give a value, or leave it out", []string{"--state="}},
		{"an empty table", "--table is empty: give a value, or leave it out", []string{"--table", ""}},
		{"one of two tables", "--table is empty: give a value, or leave it out", []string{"--table", "a", "--table", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := &cobra.Command{}
			cmd.Flags().String("state", "", "")
			cmd.Flags().StringArray("table", nil, "")
			if err := cmd.Flags().Parse(c.args); err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := noneEmpty(cmd.Flags()); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestArgumentsAreRefused(t *testing.T) {
	if err := noArguments(nil, nil); err != nil {
		t.Error(err)
	}
	const want = `"tables/router.yaml" is no flag: a table is given as --table FILE, a configuration as --config FILE; router --help lists the flags`
	if err := noArguments(nil, []string{"tables/router.yaml"}); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestABadFlagSaysWhereToLook(t *testing.T) {
	cmd := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
	cmd.SetFlagErrorFunc(badFlag)
	cmd.SetArgs([]string{"--lisen", "amqp://127.0.0.1:1"})
	const want = "unknown flag: --lisen: router --help lists the flags"
	if err := cmd.Execute(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestAnEmptyVariableIsNone(t *testing.T) {
	t.Setenv("FINGERPOST_STATE", "")
	t.Setenv("FINGERPOST_TABLE", "")
	t.Setenv("FINGERPOST_LISTEN", "amqp://a:1,amqp://b:2")
	cmd, f := &cobra.Command{}, flags{}
	cmd.Flags().StringVar(&f.state, "state", "", "")
	cmd.Flags().StringArrayVar(&f.tables, "table", nil, "")
	cmd.Flags().StringArrayVar(&f.listen, "listen", nil, "")
	f.environment(cmd)
	if f.state != "" || len(f.tables) != 0 || len(f.listen) != 2 {
		t.Errorf("got %+v", f)
	}
}

// Each reload is answered in the log at once, also where several follow one another, and the end is told.
func TestEachSignalIsAnsweredInTheLog(t *testing.T) {
	var log bytes.Buffer
	folded := app.Fold(slog.NewTextHandler(&log, nil))
	defer folded.Flush()
	logger := slog.New(folded)
	var bad error
	a, err := app.Start(func() (app.Config, error) { return app.Config{}, bad }, logger, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	signals := make(chan os.Signal, 4)
	signals <- syscall.SIGHUP
	signals <- syscall.SIGHUP
	signals <- syscall.SIGTERM
	untilEnd(signals, a, logger)
	bad = errors.New("line 1: unknown key")
	signals <- syscall.SIGHUP
	signals <- syscall.SIGHUP
	signals <- syscall.SIGTERM
	untilEnd(signals, a, logger)
	for _, want := range []string{
		"msg=ready name=", `msg="configuration reloaded" reload=1`, `msg="configuration reloaded" reload=2`, "signal=terminated grace=10s",
		`nothing was changed" reload=1 error="line 1: unknown key"`, `nothing was changed" reload=2 error=`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("got %s, want %s", log.String(), want)
		}
	}
}
