package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fingerpost/fingerpost/internal/admin"
)

// Env is what the process gives to a command line.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	Terminal       bool // Stderr is a terminal: progress may be shown
	Screen         bool // Stdout is a terminal that can be cleared: what is shown may be shown again in its place
}

// OSEnv is the environment of this process.
func OSEnv() Env {
	return Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
		Terminal: isTerminal(os.Stderr), Screen: isTerminal(os.Stdout) && os.Getenv("TERM") != "dumb",
	}
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Run runs one command line and gives the exit status: 0 done, 1 the answer is no, 2 usage, 3 cannot reach the router.
// An error is one line on env.Stderr.
func Run(ctx context.Context, argv []string, env Env) int {
	return (&run{env: env}).run(ctx, argv)
}

func (r *run) run(ctx context.Context, argv []string) int {
	root := r.root()
	root.SetArgs(argv)
	root.SetIn(r.env.Stdin)
	root.SetOut(r.env.Stdout)
	root.SetErr(r.env.Stderr)
	err := root.ExecuteContext(ctx)
	if text := errorText(err); text != "" {
		fmt.Fprintln(r.env.Stderr, "routectl: "+text)
	}
	return statusOf(err)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	if f, ok := errors.AsType[*fault](err); ok && f.text == "" {
		return ""
	}
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	return oneLine(err.Error())
}

// run is one command line: its global flags and the process around it.
type run struct {
	env    Env
	url    string
	file   string
	output string
	tls    tlsFiles
	user   string
	secret string // the password's file

	showing bool // it may be shown to whoever listens

	open func(ctx context.Context) (editor, error) // the tests' own editor; nil is by flags
	door caller                                    // the tests' own management; nil is by flags
}

func (r *run) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "routectl",
		Short: "edit the route table of a running router, or a table file",
		Long: `Routectl edits the route table of a running router (--url), or a table file with no router (--file), by the same
commands. Exit status: 0 done, also where there was nothing to do; 1 the answer is no; 2 usage; 3 cannot reach the router.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, argv []string) error {
			if len(argv) > 0 {
				return usage("%q is no command: routectl --help lists them", argv[0])
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			return usage("no command given: routectl --help lists them")
		},
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return r.checkFlags(c) },
	}
	f := root.PersistentFlags()
	f.StringVar(&r.url, "url", DefaultURL, "the router's `URL`, amqp://[user:password@]host:port, amqps://…, or ws://host:port[/path] (WebSocket) and wss://… (environment: ROUTECTL_URL; so for --user, --password-file, --ca, --cert and --key)")
	f.StringVar(&r.file, "file", "", "work on this table `FILE` instead of a router")
	f.StringVarP(&r.output, "output", "o", "table", "`FORM` of what is printed: table, wide, json, yaml")
	root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputForms, cobra.ShellCompDirectiveNoFileComp))
	f.StringVar(&r.tls.ca, "ca", "", "certificates to trust for amqps, a PEM `FILE` (default: the system's)")
	f.StringVar(&r.tls.cert, "cert", "", "client certificate for amqps, a PEM `FILE`; without a user it is the login")
	f.StringVar(&r.tls.key, "key", "", "key of --cert, a PEM `FILE`")
	f.StringVar(&r.user, "user", "", "log in as this user, a `NAME`, where the URL has none")
	f.StringVar(&r.secret, "password-file", "", "a `FILE` whose first line is the password; - is standard input")
	f.BoolVar(&r.showing, "allow-insecure-plain", false, "show the password to a router beyond this machine that has neither TLS nor SCRAM")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("%s: %s --help lists the flags", flagText(err), c.CommandPath())
	})
	root.SetUsageTemplate(withoutGlobalFlags(root.UsageTemplate()))
	edits := editCommands(r.edit)
	for _, c := range edits {
		completeColumns(c)
	}
	root.AddCommand(edits...)
	root.AddCommand(
		listCommand(r), explainCommand(r),
		loadCommand(r), storeCommand(r), applyCommand(r),
		diffCommand(r), historyCommand(r), rollbackCommand(r), watchCommand(r),
		testCommand(r), lintCommand(r), ruleCommand(r), componentCommand(r),
		sendCommand(r), recvCommand(r), statusCommand(r), stateCommand(r), userCommand(r),
		connectionsCommand(r), linksCommand(r), peersCommand(r), hopsCommand(r), unroutedCommand(r), topCommand(r), benchCommand(r), benchRelayCommand(r), relayVerbs(r),
		versionCommand(r),
	)
	root.SetHelpCommand(helpCommand(root))
	root.InitDefaultCompletionCmd("completion")
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Short = "print what has a shell complete routectl's command lines"
			c.Args = nil
			c.RunE = func(*cobra.Command, []string) error { return usage("completion: give bash, zsh or fish") }
		}
	}
	return root
}

// withoutGlobalFlags makes the help of a verb tell where the flags of all verbs are explained, instead of explaining them.
func withoutGlobalFlags(template string) string {
	head, rest, _ := strings.Cut(template, "Global Flags:\n")
	_, tail, _ := strings.Cut(rest, "{{end}}")
	return head + "--url, --file, --output and the flags of logins are those of all commands: routectl --help tells of them.{{end}}" + tail
}

// helpCommand is "help COMMAND"; a command that is not there is a mistake, and not a wish to read everything.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "tell how a command is used",
		ValidArgsFunction: func(_ *cobra.Command, argv []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			of, _, err := root.Find(argv)
			for _, c := range of.Commands() {
				if err == nil && c.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, argv []string) error {
			of, rest, err := root.Find(argv)
			if err != nil || len(rest) > 0 {
				return usage("help: %q is no command: routectl --help lists them", strings.Join(argv, " "))
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}

// outputForms are the values of -o.
var outputForms = []string{"table", "wide", "json", "yaml"}

func (r *run) checkFlags(c *cobra.Command) error {
	if !slices.Contains(outputForms, r.output) {
		return usage("-o %q: one of %s", r.output, strings.Join(outputForms, ", "))
	}
	urlGiven := c.Flags().Changed("url")
	if r.file != "" && urlGiven {
		return usage("--url and --file: give one of them")
	}
	if fromEnv := r.env.Getenv("ROUTECTL_URL"); fromEnv != "" && !urlGiven {
		r.url = fromEnv
	}
	for name, v := range map[string]*string{"user": &r.user, "password-file": &r.secret, "ca": &r.tls.ca, "cert": &r.tls.cert, "key": &r.tls.key} {
		variable := "ROUTECTL_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if fromEnv := r.env.Getenv(variable); fromEnv != "" && !c.Flags().Changed(name) {
			*v = fromEnv
		}
	}
	return nil
}

// endpoint is the router to talk to; a verb that needs one refuses --file.
func (r *run) endpoint() (endpoint, error) {
	if r.file != "" {
		return endpoint{}, usage("--file: this verb needs a router: use --url")
	}
	at, err := parseEndpoint(r.url, r.tls)
	if err != nil {
		return at, err
	}
	at.showing = r.showing
	return at, r.credentials(&at)
}

// editor opens the table that the flags name. Where mustExist, a table file that is not there is an error; else the
// first change makes it.
func (r *run) editor(ctx context.Context, mustExist bool) (editor, error) {
	if r.open != nil {
		return r.open(ctx)
	}
	if r.file != "" {
		return openLocal(r.file, mustExist)
	}
	m, err := r.manager(ctx)
	if err != nil {
		return nil, err
	}
	return &remote{caller: m}, nil
}

func versionCommand(r *run) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Args:  arguments(cobra.ExactArgs(0)),
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			return r.print(v, func(p *printer) { p.line("routectl " + v.Version + " " + v.Go + " " + v.Revision) })
		},
	}
}

type versionView struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
}

func buildVersion() versionView {
	v := versionView{Version: admin.Version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = info.GoVersion
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	return v
}

// arguments makes a wrong number of arguments say what is right.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, argv []string) error {
		if err := check(c, argv); err != nil {
			if c.HasSubCommands() {
				return usage("%s: %q is no command: %s --help lists them", c.Name(), argv[0], c.CommandPath())
			}
			return usage("%s: %s: %s%s", c.Name(), countText(len(argv)), giveText(c), strayValue(c, argv))
		}
		return nil
	}
}

// giveText says what arguments a command has, by the words that lead to it.
func giveText(c *cobra.Command) string {
	path := strings.TrimPrefix(c.CommandPath(), "routectl ")
	_, arguments, any := strings.Cut(c.Use, " ")
	if !any {
		return path + " takes none"
	}
	return "give " + path + " " + arguments
}

func countText(n int) string {
	switch n {
	case 0:
		return "got no argument"
	case 1:
		return "got 1 argument"
	}
	return fmt.Sprintf("got %d arguments", n)
}

// strayValue tells who wrote "--fallback yes" how a value of a flag that needs none is given.
func strayValue(c *cobra.Command, argv []string) (hint string) {
	if !slices.ContainsFunc(argv, func(a string) bool {
		return slices.Contains([]string{"yes", "no", "true", "false", "on", "off"}, strings.ToLower(a))
	}) {
		return ""
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		if f.NoOptDefVal == "true" {
			hint = fmt.Sprintf(" (--%s needs no value; to take it back: --%s=false)", f.Name, f.Name)
		}
	})
	return hint
}

// flagText is what the reader of the flags found wrong, in a person's words.
func flagText(err error) string {
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err.Error()
	}
	want := ""
	switch bad.GetFlag().Value.Type() {
	case "int":
		want = "give a number"
	case "uint64":
		want = "give a number from 0 on"
	case "bool":
		want = "give true or false"
	case "duration":
		want = "give a time with its unit, such as 500ms, 30s or 2m"
	default:
		return err.Error()
	}
	return fmt.Sprintf("--%s %q: %s", bad.GetFlag().Name, bad.GetValue(), want)
}

// caller opens the management of the router.
func (r *run) caller(ctx context.Context) (caller, error) {
	if r.door != nil {
		return r.door, nil
	}
	m, err := r.manager(ctx)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// manager opens the management of the router.
func (r *run) manager(ctx context.Context) (*manager, error) {
	at, err := r.endpoint()
	if err != nil {
		return nil, err
	}
	return openManager(ctx, at)
}
