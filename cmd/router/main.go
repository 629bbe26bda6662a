// Command router routes messages by a live table of names.
package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fingerpost/fingerpost/internal/app"
)

// Exit statuses.
const (
	exitFailure = 1
	exitUsage   = 2
)

// flags as given on the command line; the environment stands in for those that are not.
type flags struct {
	config, name, http  string
	state, relayKeys    string
	listen, tables      []string
	logLevel, logFormat string
	check               bool
}

func main() {
	var f flags
	status := 0
	cmd := &cobra.Command{
		Use: "router", Short: "Route messages by a live table of names",
		Long: `Router takes AMQP 1.0 messages and sends a copy of each to every place that the route table has for its address.

Without flags it listens on amqp://127.0.0.1:5672 and http://127.0.0.1:8080 and loads tables/default.yaml if that is there. With --listen or
--config there is no HTTP listener but where --http, or the file, says so. Flags win over the environment (FINGERPOST_LISTEN, FINGERPOST_TABLE, ...; lists with commas), which wins over the file of --config.

Exit status: 0; 1 a failure while running; 2 bad usage, configuration or tables.`,
		Version: app.Version,
		Args:    noArguments, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := noneEmpty(cmd.Flags()); err != nil {
				return err
			}
			f.environment(cmd)
			var err error
			status, err = run(&f)
			return err
		},
	}
	cmd.SetFlagErrorFunc(badFlag)
	fl := cmd.Flags()
	fl.StringVar(&f.config, "config", "", "configuration `FILE`; none is read by default")
	fl.StringVar(&f.name, "name", "", "`NAME` of this router")
	fl.StringArrayVar(&f.listen, "listen", nil, "`URL` where clients connect, amqp://127.0.0.1:5672 or ws://127.0.0.1:5673 (WebSocket); may be repeated; port 0 takes a free one")
	fl.StringVar(&f.http, "http", "", "`HOST:PORT` of the HTTP listener (console, /metrics, WebSockets), or off; by default 127.0.0.1:8080 where neither --listen nor --config is given, else off")
	fl.StringArrayVar(&f.tables, "table", nil, "table `FILE`; may be repeated")
	fl.StringVar(&f.state, "state", "", "`DIR` that keeps the table, its history and the node's id over a restart; nothing is kept by default")
	fl.StringVar(&f.relayKeys, "relay-keys", "", "`FILE` of the keys of the relay, which is at /api/DOMAIN/relay/connect of the HTTP listener; without one there is no relay")
	fl.StringVar(&f.logLevel, "log-level", "info", "`LEVEL`: debug, info, warn or error")
	fl.StringVar(&f.logFormat, "log-format", "text", "`FORMAT`: text or json")
	fl.BoolVar(&f.check, "check", false, "check configuration and tables, and end")
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "router: "+err.Error())
		if status == 0 {
			status = exitUsage
		}
	}
	os.Exit(status)
}

// noArguments refuses what is no flag, and says which flags files are given by.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%q is no flag: a table is given as --table FILE, a configuration as --config FILE; router --help lists the flags", args[0])
}

// badFlag says where to look.
func badFlag(_ *cobra.Command, err error) error {
	return fmt.Errorf("%w: router --help lists the flags", err)
}

// noneEmpty refuses a flag whose value is empty: that is a variable of a script that is not set, and to keep no state, say, would tell nobody.
func noneEmpty(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if slices.Contains(values, "") && err == nil {
			err = fmt.Errorf("--%s is empty: give a value, or leave it out", f.Name)
		}
	})
	return err
}

// environment fills flags that were not given from FINGERPOST_ variables. An empty one is as good as none.
func (f *flags) environment(cmd *cobra.Command) {
	for _, name := range []string{"config", "name", "http", "state", "relay-keys", "log-level", "log-format", "listen", "table"} {
		v, ok := os.LookupEnv("FINGERPOST_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
		if !ok || v == "" || cmd.Flags().Changed(name) {
			continue
		}
		for _, part := range split(name, v) {
			cmd.Flags().Set(name, part)
		}
	}
}

// split gives the values of one variable: lists are separated by commas.
func split(name, v string) []string {
	if name == "listen" || name == "table" {
		return strings.Split(v, ",")
	}
	return []string{v}
}

// load reads the configuration file and puts the flags over it.
func (f *flags) load() (app.Config, error) {
	var c app.Config
	if f.config != "" {
		var err error
		if c, err = app.ReadConfig(f.config); err != nil {
			return c, err
		}
	}
	if f.name != "" {
		c.Name = f.name
	}
	if len(f.listen) > 0 {
		c.Listen(f.listen)
	}
	if len(f.tables) > 0 {
		c.Tables = f.tables
	}
	if f.state != "" {
		c.State = f.state
	}
	if f.http != "" {
		c.ListenHTTP(f.http)
	}
	if f.relayKeys != "" {
		c.Relay.Keys = f.relayKeys
	}
	f.defaults(&c)
	return c, c.Environment(os.LookupEnv)
}

// defaultTable is loaded where nothing else is asked for.
const defaultTable = "tables/default.yaml"

func (f *flags) defaults(c *app.Config) {
	if f.config == "" && len(f.listen) == 0 {
		if c.HTTP.Listen == "" {
			c.ListenHTTP("127.0.0.1:8080")
		}
	}
	if len(c.Listeners) == 0 {
		c.Listen([]string{"amqp://127.0.0.1:5672"})
	}
	if f.config == "" && len(f.tables) == 0 {
		if _, err := os.Stat(defaultTable); err == nil {
			c.Tables = []string{defaultTable}
		}
	}
}

func run(f *flags) (int, error) {
	h, err := f.logHandler()
	if err != nil {
		return exitUsage, err
	}
	folded := app.Fold(h)
	defer folded.Flush()
	log := slog.New(folded)
	if f.check {
		c, err := f.load()
		if err == nil {
			err = app.Check(c)
		}
		if err != nil {
			return exitUsage, err
		}
		fmt.Println("good: " + f.read(c))
		return 0, nil
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	a, err := app.Start(f.load, log, os.Stdout)
	if err != nil {
		var ce *app.ConfigError
		if errors.As(err, &ce) {
			return exitUsage, err
		}
		return exitFailure, err
	}
	untilEnd(signals, a, log)
	signal.Ignore(syscall.SIGHUP) // there is nothing to reload any more
	signal.Stop(signals)          // a second one of the others ends the program at once
	a.Stop()
	return 0, nil
}

// untilEnd reloads the configuration on each SIGHUP, until a signal ends the program. Reloads are numbered in the log, so that each is answered at
// once: a line like the one before is held back.
func untilEnd(signals <-chan os.Signal, a *app.App, log *slog.Logger) {
	for reload := 1; ; reload++ {
		if s := <-signals; s != syscall.SIGHUP {
			log.Info("the end has begun: what is in flight may settle", "signal", s.String(), "grace", a.Grace())
			return
		}
		if err := a.Reload(); err != nil {
			log.Error("reload refused, nothing was changed", "reload", reload, "error", err)
		} else {
			log.Info("configuration reloaded", "reload", reload)
		}
	}
}

// read tells which files a configuration is made of.
func (f *flags) read(c app.Config) string {
	files := c.Tables
	if f.config != "" {
		files = append([]string{f.config}, files...)
	}
	if len(files) == 0 {
		return "no configuration file and no table"
	}
	return strings.Join(files, ", ")
}

func (f *flags) logHandler() (slog.Handler, error) {
	var level slog.Level
	switch f.logLevel {
	case "debug", "info", "warn", "error":
		level.UnmarshalText([]byte(f.logLevel))
	default:
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", f.logLevel)
	}
	o := &slog.HandlerOptions{Level: level}
	switch f.logFormat {
	case "text":
		return slog.NewTextHandler(os.Stderr, o), nil
	case "json":
		return slog.NewJSONHandler(os.Stderr, o), nil
	}
	return nil, fmt.Errorf("--log-format %q: use text or json", f.logFormat)
}
