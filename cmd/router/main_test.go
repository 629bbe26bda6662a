package main

import (
	"testing"

	"github.com/spf13/cobra"
)

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
