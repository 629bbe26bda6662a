package ctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/users"
)

// defaultUsers is the users file where no other is named.
const defaultUsers = "users.yaml"

// maxPassword bounds what is read as a password.
const maxPassword = 1024

// userFlags are the flags of user add.
type userFlags struct {
	role          string
	send, receive []string
	noSend        bool
	noReceive     bool
	noPassword    bool
	iterations    int
}

func userCommand(r *run) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "user add|remove|list",
		Short: "look after a router's users file",
		Long: `User edits the file that a router's users: key names. A router that runs takes the change within a few seconds. The file keeps
no password: only what tells a right one, for SCRAM-SHA-1, -256 and -512 and for PLAIN.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			return usage("user: give add NAME, remove NAME or list")
		},
	}
	c.PersistentFlags().StringVar(&file, "users", defaultUsers, "the users `FILE`")
	var f userFlags
	add := &cobra.Command{
		Use:   "add NAME",
		Short: "add a user, or change one: what is not named stays",
		Long: `Add asks for a password, or reads a line of standard input where that is no terminal. A user that is there already keeps the password with --no-password; a new
one without a password logs in by certificate only, whose common name is NAME. Without --send (--receive) a new user may send to (receive from) every plain
name; with them, only to addresses that fit one of the patterns.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, argv []string) error { return r.userAdd(c, file, argv[0], &f) },
	}
	fl := add.Flags()
	fl.StringVar(&f.role, "role", "none", "what the user may do at $management, a `ROLE`: none, viewer, operator, admin")
	fl.StringArrayVar(&f.send, "send", nil, "a `PATTERN` of addresses to send to; may be repeated")
	fl.StringArrayVar(&f.receive, "receive", nil, "a `PATTERN` of addresses to receive from; may be repeated")
	fl.BoolVar(&f.noSend, "no-send", false, "the user may send to nothing")
	fl.BoolVar(&f.noReceive, "no-receive", false, "the user may receive from nothing")
	fl.BoolVar(&f.noPassword, "no-password", false, "ask for no password")
	fl.IntVar(&f.iterations, "iterations", amqp.DefaultIterations, "how often a password is hashed, a `NUMBER`")
	c.AddCommand(add,
		&cobra.Command{
			Use: "remove NAME", Short: "take a user out of the file", Args: arguments(cobra.ExactArgs(1)),
			RunE: func(_ *cobra.Command, argv []string) error { return r.userRemove(file, argv[0]) },
		},
		&cobra.Command{
			Use: "list", Short: "list the users of the file", Args: arguments(cobra.NoArgs),
			RunE: func(*cobra.Command, []string) error { return r.userList(file) },
		},
	)
	return c
}

func (r *run) userAdd(c *cobra.Command, file, name string, f *userFlags) error {
	if err := r.noTable(); err != nil {
		return err
	}
	if err := users.CheckName(name); err != nil {
		return usage("user add: %v", err)
	}
	if len(f.send) > 0 && f.noSend || len(f.receive) > 0 && f.noReceive {
		return usage("user add: patterns, and none: give one of them")
	}
	if f.iterations < amqp.MinIterations || f.iterations > amqp.MaxIterations {
		return usage("--iterations %d: a number from %d to %d", f.iterations, amqp.MinIterations, amqp.MaxIterations)
	}
	e := users.Edit{Name: name, Send: f.send, Receive: f.receive}
	if f.noSend {
		e.Send = []string{}
	}
	if f.noReceive {
		e.Receive = []string{}
	}
	role, err := admin.ParseRole(f.role)
	if err != nil {
		return usage("--role: %v", err)
	}
	if c.Flags().Changed("role") {
		e.Role = &role
	}
	for _, list := range [][]string{f.send, f.receive} {
		if _, err := admin.NewGrants(list); err != nil {
			return usage("user add: %v", err)
		}
	}
	if !f.noPassword {
		password, err := r.password(c.Context(), "password of "+name, true)
		if err != nil {
			return err
		}
		made, err := amqp.MakeVerifiers(name, password, f.iterations)
		if err != nil {
			return usage("user add: %v", err)
		}
		for _, v := range made {
			e.Verifiers = append(e.Verifiers, v.String())
		}
	}
	added, err := users.Put(file, e)
	if err != nil {
		return no("user add: %v", err)
	}
	did := "changed"
	if added {
		did = "added"
	}
	return r.print(map[string]string{"user": name, "done": did}, func(p *printer) { p.line("user " + name + " " + did + " in " + file) })
}

func (r *run) userRemove(file, name string) error {
	if err := r.noTable(); err != nil {
		return err
	}
	done := "removed"
	switch err := users.Remove(file, name); {
	case errors.Is(err, users.ErrNoSuchUser):
		done = "was not there"
	case err != nil:
		return no("user remove: %v", err)
	}
	return r.print(map[string]string{"user": name, "done": done}, func(p *printer) { p.line("user " + name + " " + done) })
}

// userView is a user as it is printed.
type userView struct {
	Name     string   `json:"name"`
	Role     string   `json:"role"`
	Send     []string `json:"send"` // null: every plain name
	Receive  []string `json:"receive"`
	Password bool     `json:"password"`
}

func (r *run) userList(file string) error {
	if err := r.noTable(); err != nil {
		return err
	}
	f, err := users.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return usage("%s: no such file: routectl user add makes it (--users FILE)", file)
	}
	if err != nil {
		return no("%v", err)
	}
	views := []userView{}
	for _, u := range f.Users {
		views = append(views, userView{u.Name, u.Role.String(), u.Send, u.Receive, len(u.Verifiers) > 0})
	}
	return r.print(views, func(p *printer) {
		p.columns("NAME", "ROLE", "PASSWORD", "SEND", "RECEIVE")
		for _, v := range views {
			password := "no"
			if v.Password {
				password = "yes"
			}
			p.columns(v.Name, v.Role, password, patternList(v.Send), patternList(v.Receive))
		}
	})
}

func patternList(list []string) string {
	switch {
	case list == nil:
		return "(plain names)"
	case len(list) == 0:
		return "(nothing)"
	}
	return strings.Join(list, " ")
}

func (r *run) noTable() error {
	if r.file != "" {
		return usage("user: --file is a table file; the users file is --users")
	}
	return nil
}

// password asks for a password on a terminal without showing it, or reads a line of standard input.
func (r *run) password(ctx context.Context, what string, twice bool) (string, error) {
	f, ok := r.env.Stdin.(*os.File)
	if !ok {
		return readPassword(r.env.Stdin)
	}
	in := bufio.NewReader(f)
	ask := func(prompt string) (string, error) {
		restore, err := hideInput(f)
		if err != nil { // no terminal
			return readPassword(in)
		}
		defer restore()
		defer context.AfterFunc(ctx, restore)()
		fmt.Fprint(r.env.Stderr, prompt)
		defer fmt.Fprintln(r.env.Stderr)
		return readPassword(in)
	}
	password, err := ask(what + ": ")
	if err != nil || !twice || !isTerminal(f) {
		return password, err
	}
	again, err := ask("again: ")
	if err == nil && again != password {
		err = usage("the passwords differ")
	}
	return password, err
}

// readPassword reads one line.
func readPassword(from io.Reader) (string, error) {
	in, ok := from.(*bufio.Reader)
	if !ok {
		in = bufio.NewReader(io.LimitReader(from, maxPassword+2))
	}
	line, err := in.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", no("password: %v", err)
	}
	line = strings.TrimRight(line, "\r\n")
	switch {
	case line == "":
		return "", usage("no password: give it on standard input")
	case len(line) > maxPassword:
		return "", usage("the password is longer than %d bytes", maxPassword)
	}
	return line, nil
}
