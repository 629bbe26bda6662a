package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// print writes one value in the form of -o: table calls draw, the others encode value.
func (r *run) print(value any, draw func(p *printer)) (err error) {
	switch r.output {
	case "json":
		err = writeJSON(r.env.Stdout, value, "  ")
	case "yaml":
		err = writeYAML(r.env.Stdout, value)
	default:
		p := &printer{wide: r.output == "wide"}
		draw(p)
		_, err = r.env.Stdout.Write(p.bytes())
	}
	return printFailed(err)
}

// printFailed says that there was nowhere to print to: that is no mistake of the command line.
func printFailed(err error) error {
	if err != nil {
		return no("print: %v", err)
	}
	return nil
}

// printer collects what a table form prints: free lines, and columns that are aligned up to the next free line.
type printer struct {
	wide bool
	out  bytes.Buffer
	rows [][]string // whose columns are to be aligned
}

func (p *printer) line(s string) {
	p.flush()
	p.out.WriteString(strings.TrimRight(s, " "))
	p.out.WriteByte('\n')
}

func (p *printer) columns(cells ...string) {
	for i, c := range cells {
		cells[i] = cell(c)
	}
	p.rows = append(p.rows, cells)
}

// maxColumn is how wide a column gets: a longer cell pushes what is after it aside in its own row, and not in all others.
const maxColumn = 80

// cell keeps what would break a line or a column visible and harmless: controls, and bytes that are no UTF-8.
func cell(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strings.Trim(fmt.Sprintf("%q", s), `"`)
	}
	return s
}

func (p *printer) flush() {
	var width []int
	for _, cells := range p.rows {
		for i, c := range cells {
			if i == len(width) {
				width = append(width, 0)
			}
			if n := utf8.RuneCountInString(c); n <= maxColumn {
				width[i] = max(width[i], n)
			}
		}
	}
	for _, cells := range p.rows {
		for i, c := range cells {
			p.out.WriteString(c)
			if i < len(cells)-1 {
				p.out.WriteString(strings.Repeat(" ", 2+max(0, width[i]-utf8.RuneCountInString(c))))
			}
		}
		p.out.WriteByte('\n')
	}
	p.rows = nil
}

func (p *printer) bytes() []byte {
	p.flush()
	lines := bytes.SplitAfter(p.out.Bytes(), []byte("\n"))
	var out []byte
	for _, l := range lines {
		body, hadNewline := bytes.CutSuffix(l, []byte("\n"))
		out = append(out, bytes.TrimRight(body, " ")...)
		if hadNewline {
			out = append(out, '\n')
		}
	}
	return out
}

// stream writes items as they come: a line each, a JSON object a line, or a YAML document each.
func (r *run) stream() *stream { return &stream{form: r.output, w: r.env.Stdout} }

type stream struct {
	form string
	w    io.Writer
}

func (s *stream) item(value any, text string) (err error) {
	switch s.form {
	case "json":
		err = writeJSON(s.w, value, "")
	case "yaml":
		if _, err = io.WriteString(s.w, "---\n"); err == nil {
			err = writeYAML(s.w, value)
		}
	default:
		_, err = fmt.Fprintln(s.w, text)
	}
	return printFailed(err)
}

func writeJSON(w io.Writer, value any, indent string) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e.Encode(value)
}

// writeYAML writes what writeJSON would, as YAML: the same names in the same order.
func writeYAML(w io.Writer, value any) error {
	var text bytes.Buffer
	if err := writeJSON(&text, value, ""); err != nil {
		return err
	}
	var n yaml.Node
	if err := yaml.Unmarshal(text.Bytes(), &n); err != nil { // JSON is YAML
		return err
	}
	blockStyle(&n)
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(&n); err != nil {
		return err
	}
	return e.Close()
}

// blockStyle takes JSON's brackets and quotes away where YAML does not need them.
func blockStyle(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode || len(n.Content) > 0 {
		n.Style = 0
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
