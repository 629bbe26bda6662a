package ctl

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// maxScriptLine bounds one line of an apply file; maxInput bounds any file that is read whole.
const (
	maxScriptLine = 1 << 20
	maxInput      = 64 << 20
)

func applyCommand(r *run) *cobra.Command {
	var ifRevision uint64
	var o applyOptions
	c := &cobra.Command{
		Use:   "apply FILE",
		Short: "run the writing verbs of a file, a line each, as one change",
		Long: `Apply reads a file of writing verbs, one with its arguments a line ("-" is standard input), and makes them one
change: all of them, or none. "#" starts a comment; an argument with blanks is quoted.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, argv []string) error {
			script, err := r.readInput(argv[0])
			if err != nil {
				return err
			}
			edits, lines, err := parseScript(inputName(argv[0]), script)
			if err != nil {
				return err
			}
			ed, err := r.editor(c.Context(), false)
			if err != nil {
				return err
			}
			defer ed.close()
			if c.Flags().Changed("if-revision") {
				o.ifRevision = &ifRevision
			}
			x, err := ed.apply(c.Context(), edits, o)
			if err != nil {
				return atScriptLine(err, inputName(argv[0]), lines)
			}
			return r.printResult(x)
		},
	}
	c.Flags().Uint64Var(&ifRevision, "if-revision", 0, "refuse where the table is not at this `REVISION`")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "say what would change, and change nothing")
	return c
}

// readInput reads a file, or standard input for "-", without the mark that some editors begin UTF-8 with.
func (r *run) readInput(name string) ([]byte, error) {
	in := r.env.Stdin
	if name != "-" {
		if err := checkRegular(name); err != nil {
			return nil, usage("%v", err)
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, usage("%v", err)
		}
		defer f.Close()
		in = f
	}
	b, err := readAll(in, maxInput)
	if err != nil {
		return nil, usage("read %s: %v", inputName(name), err)
	}
	return bytes.TrimPrefix(b, []byte("\ufeff")), nil
}

// readAll reads what there is, up to a limit.
func readAll(in io.Reader, most int) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(in, int64(most)+1))
	if err == nil && len(b) > most {
		err = fmt.Errorf("more than %d MiB", most>>20)
	}
	return b, err
}

// checkRegular refuses a name that leads to something else than a file: a pipe would be waited for, and a write would take its place.
func checkRegular(name string) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file: use - for standard input or output", name)
	}
	return nil
}

// opNumber is how a refused batch says which of its ops it was.
var opNumber = regexp.MustCompile(`^op (\d+)(?:, [a-z-]+)?: `)

// otherRevision is how --if-revision is refused, which is about no line of the file.
var otherRevision = regexp.MustCompile(`^the table is at revision \d+, not \d+`)

// atScriptLine puts the line of the file in the place of the number of an op. Where there is one edit, there may be no number.
func atScriptLine(err error, name string, lines []int) error {
	f, ok := errors.AsType[*fault](err)
	if !ok {
		return err
	}
	n := 1
	m := opNumber.FindStringSubmatch(f.text)
	if m != nil {
		n, _ = strconv.Atoi(m[1])
	}
	if n > len(lines) || m == nil && (len(lines) != 1 || otherRevision.MatchString(f.text)) {
		return err
	}
	text := f.text
	if m != nil {
		text = text[len(m[0]):]
	}
	return &fault{status: f.status, text: fmt.Sprintf("%s: line %d: %s", name, lines[n-1], text), err: err}
}

// parseScript turns an apply file into edits, each with its line. An error names file and line.
func parseScript(name string, script []byte) (edits []edit, at []int, err error) {
	lines := bufio.NewScanner(bytes.NewReader(script))
	lines.Buffer(nil, maxScriptLine)
	parser := newEditParser()
	n := 1
	for ; lines.Scan(); n++ {
		words, err := splitWords(lines.Text())
		if !utf8.Valid(lines.Bytes()) {
			err = errors.New(`not UTF-8 (other bytes are written as in "\xff")`)
		}
		if err != nil {
			return nil, nil, usage("%s: line %d: %v", name, n, err)
		}
		if len(words) == 0 {
			continue
		}
		e, err := parser.parse(words)
		if err == nil && e.dryRun {
			err = usage("--dry-run is for the whole file: routectl apply --dry-run")
		}
		if err != nil {
			return nil, nil, usage("%s: line %d: %v", name, n, err)
		}
		edits, at = append(edits, e), append(at, n)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, nil, usage("%s: line %d: longer than %d kB", name, n, maxScriptLine>>10)
	} else if err != nil {
		return nil, nil, usage("%s: %v", name, err)
	}
	return edits, at, nil
}

// editParser reads writing verbs by the commands of the command line themselves, which it makes once.
type editParser struct {
	commands []*cobra.Command
	got      edit
}

func newEditParser() *editParser {
	p := &editParser{}
	p.commands = editCommands(func(_ context.Context, e edit) error {
		p.got = e
		return nil
	})
	for _, c := range p.commands {
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
	}
	return p
}

// parse reads the words of one line.
func (p *editParser) parse(words []string) (edit, error) {
	i := slices.IndexFunc(p.commands, func(c *cobra.Command) bool { return c.Name() == words[0] })
	if i < 0 {
		return edit{}, usage("%q is no writing verb (add, insert, set, replace, replace-all, delete, delete-pattern, clear)", words[0])
	}
	c := p.commands[i]
	p.got = edit{}
	c.Flags().Visit(func(f *pflag.Flag) { // as it was before the line before
		f.Value.Set(f.DefValue)
		f.Changed = false
	})
	c.SetArgs(words[1:])
	if err := c.Execute(); err != nil {
		return edit{}, err
	}
	if p.got.operation == "" { // --help
		return edit{}, usage("%s: no such thing in a file", strings.Join(words, " "))
	}
	return p.got, nil
}
