package routetable

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

const yamlTooLong = "a YAML table is at most 16 MiB (use the arrow form)"

// parseYAML reads the YAML form. Scalars are read as text; aliases and unknown keys are errors.
func (f *File) parseYAML(data []byte) (err error) {
	if len(data) > MaxYAMLBytes {
		return place{1, 1}.errorf(yamlTooLong)
	}
	// The parser is not ours; what it does to a hostile file must not end the process.
	defer func() {
		if p := recover(); p != nil {
			err = place{1, 1}.errorf("not YAML: %v", p)
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			f.comments.head = commentLines(string(data))
			return nil
		}
		return yamlError(err, data)
	}
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		return placeOf(&second).errorf("a table is one YAML document")
	} else if !errors.Is(err, io.EOF) {
		return yamlError(err, data)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return place{1, 1}.errorf("a table is one YAML document")
	}
	root := doc.Content[0]
	f.doc = &doc
	f.comments.head = append(commentLines(doc.HeadComment), commentLines(root.HeadComment)...)
	f.comments.tail = append(commentLines(root.FootComment), commentLines(doc.FootComment)...)
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil
	}
	return f.yamlRoot(root)
}

func (f *File) yamlRoot(root *yaml.Node) error {
	return eachKey(root, "the table", func(key string, k, v *yaml.Node) error {
		head := commentLines(k.HeadComment)
		switch key {
		case "match":
			text, err := scalar(v, "match")
			if err != nil {
				return err
			}
			if f.Match, err = ParseMatchMode(text); err != nil {
				return placeOf(v).errorf("%s", err)
			}
			f.HasMatch = true
			f.comments.head = append(f.comments.head, head...)
		case "routes":
			f.list = true
			f.comments.routes = head
			return eachItem(v, "routes", MaxYAMLRows, "at most 100000 rows in YAML (use the arrow form)", f.yamlRow)
		case "expect":
			f.list = true
			f.comments.expect = head
			return eachItem(v, "expect", MaxYAMLRows, "at most 100000 lines", f.yamlExpect)
		default:
			return placeOf(k).errorf("unknown key %q, the keys of a table are match, routes and expect", key)
		}
		return nil
	})
}

func (f *File) yamlRow(n *yaml.Node) error {
	r := &fileRow{op: Op{Route: NewRoute("", "")}}
	before := commentLines(n.HeadComment)
	after := ""
	err := eachKey(n, "a row", func(key string, k, v *yaml.Node) error {
		if n.Style&yaml.FlowStyle == 0 {
			before = append(before, commentLines(k.HeadComment)...)
			if v.LineComment != "" {
				after = v.LineComment
			}
		}
		text, err := scalar(v, key)
		if err != nil {
			return err
		}
		missing := v.Tag == "!!null" && v.Value == ""
		switch key {
		case "pattern":
			if missing {
				return placeOf(v).errorf("the pattern is missing (write \"\" for the empty one)")
			}
			r.op.Route.Pattern, r.pattern, r.hasPattern = text, placeOf(v), true
			return nil
		case "address":
			if missing {
				return placeOf(v).errorf("the address is missing (write null for a row that discards)")
			}
			if v.Tag == "!!null" {
				text = NullAddress
			}
			r.op.Route.Address, r.address, r.hasAddress = text, placeOf(v), true
			return nil
		}
		if findColumn(key) == nil {
			return placeOf(k).errorf("unknown key %q, the keys of a row are pattern, address, %s", key, strings.Join(ColumnNames(), ", "))
		}
		if text == "" && findColumn(key).set&(ColFallback|ColOptional|ColDynamicHost) != 0 {
			return placeOf(v).errorf("%s: write true or false", key)
		}
		return r.column(key, text, placeOf(v))
	})
	if err != nil {
		return err
	}
	if err := f.addRow(r, placeOf(n)); err != nil {
		return err
	}
	if n.LineComment != "" {
		after = n.LineComment
	}
	if lines := commentLines(after); len(lines) > 0 {
		after = lines[0]
	}
	f.keepComments(before, after)
	f.comments.tail = append(f.comments.tail, commentLines(n.FootComment)...)
	return nil
}

func (f *File) yamlExpect(n *yaml.Node) error {
	e := Expect{Line: n.Line}
	hasAddress, hasHops := false, false
	err := eachKey(n, "an expect line", func(key string, k, v *yaml.Node) (err error) {
		switch key {
		case "address":
			hasAddress = true
			e.Address, err = scalar(v, key)
		case "target":
			e.Target, err = scalar(v, key)
		case "hops":
			hasHops = true
			if v.Kind == yaml.ScalarNode && v.Tag == "!!null" {
				return nil
			}
			return eachItem(v, "hops", MaxYAMLRows, "too many hops", func(h *yaml.Node) error {
				text, err := scalar(h, "a hop")
				if h.Tag == "!!null" {
					text = NullAddress
				}
				e.Hops = append(e.Hops, text)
				return err
			})
		case "properties":
			e.Properties = map[string]string{}
			return eachKey(v, "properties", func(key string, k, v *yaml.Node) (err error) {
				e.Properties[key], err = scalar(v, key)
				return err
			})
		default:
			return placeOf(k).errorf("unknown key %q, the keys of an expect line are address, hops, target and properties", key)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case !hasAddress:
		return placeOf(n).errorf("the expect line has no address")
	case !hasHops:
		return placeOf(n).errorf("the expect line has no hops (write [] for none)")
	}
	f.Expect = append(f.Expect, e)
	return nil
}

func placeOf(n *yaml.Node) place { return place{max(1, n.Line), max(1, n.Column)} }

// eachKey calls do for the pairs of a mapping, each key once.
func eachKey(n *yaml.Node, what string, do func(key string, k, v *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return placeOf(n).errorf("%s is not a mapping", what)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, err := scalar(n.Content[i], "a key")
		if err != nil {
			return err
		}
		if seen[key] {
			return placeOf(n.Content[i]).errorf("the key %q is there twice", key)
		}
		seen[key] = true
		if err := do(key, n.Content[i], n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func eachItem(n *yaml.Node, what string, limit int, over string, do func(*yaml.Node) error) error {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		return placeOf(n).errorf("%s is not a list", what)
	}
	if len(n.Content) > limit {
		return placeOf(n.Content[limit]).errorf("%s", over)
	}
	for _, item := range n.Content {
		if err := do(item); err != nil {
			return err
		}
	}
	return nil
}

// scalar is the text of a scalar as written; !!binary is decoded.
func scalar(n *yaml.Node, what string) (string, error) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return "", placeOf(n).errorf("%s: anchors and aliases are not read", what)
	}
	if n.Kind != yaml.ScalarNode {
		return "", placeOf(n).errorf("%s is not text", what)
	}
	switch n.Tag {
	case "!!binary":
		text, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(n.Value), ""))
		if err != nil {
			return "", placeOf(n).errorf("%s: not base64", what)
		}
		return string(text), nil
	case "!!str", "!!int", "!!float", "!!bool", "!!null", "!!timestamp", "!!merge", "!", "":
		return n.Value, nil
	}
	return "", placeOf(n).errorf("%s: the tag %s is not read", what, n.Tag)
}

var yamlLine = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)

// yamlError gives a syntax error a place. The parser tells the line alone: the column is that of the line's first character.
func yamlError(err error, data []byte) error {
	at := place{1, 1}
	msg := err.Error()
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		at.line, _ = strconv.Atoi(m[1])
		at.line = max(1, at.line)
		msg = m[2]
	}
	lines := bytes.Split(data, []byte("\n"))
	at.line = min(at.line, len(lines))
	line := lines[at.line-1]
	at.column = len(line) - len(bytes.TrimLeft(line, " \t")) + 1
	return at.errorf("not YAML: %s", msg)
}

// commentLines splits a comment, keeping what begins with "#" and the blank lines between.
func commentLines(text string) []string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || line == "" && len(lines) > 0 {
			lines = append(lines, clean(line))
		}
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// WriteYAML writes the YAML form, a row a line. It may write more than ParseFile reads: MaxYAMLRows.
func (f *File) WriteYAML(w io.Writer) error {
	if text, ok := f.edited(true); ok {
		_, err := io.WriteString(w, text)
		return err
	}
	b := bufio.NewWriter(w)
	lines := func(indent string, lines []string) {
		for _, line := range lines {
			if line != "" {
				line = indent + line
			}
			b.WriteString(line + "\n")
		}
	}
	lines("", f.comments.head)
	if f.HasMatch {
		b.WriteString("match: " + f.Match.String() + "\n")
	}
	lines("", f.comments.routes)
	if len(f.Routes) == 0 {
		b.WriteString("routes: []\n")
	} else {
		b.WriteString("routes:\n")
	}
	for i := range f.Routes {
		r := &f.Routes[i]
		lines("  ", f.comments.before[keyOf(r)])
		b.WriteString("  - " + yamlText(r))
		if c := f.trailing(r); c != "" {
			b.WriteString("  " + c)
		}
		b.WriteByte('\n')
	}
	for i := range f.live {
		b.WriteString("  # - " + yamlText(&f.live[i]) + "  " + f.trailing(&f.live[i]) + "\n")
	}
	lines("", f.comments.expect)
	if len(f.Expect) > 0 {
		b.WriteString("expect:\n")
	}
	for i := range f.Expect {
		b.WriteString("  - " + yamlExpectText(&f.Expect[i]) + "\n")
	}
	lines("", f.comments.tail)
	return b.Flush()
}

// yamlText is a row as a flow mapping.
func yamlText(r *Route) string {
	address := "null"
	if r.Address != NullAddress {
		address = yamlScalar(r.Address)
	}
	line := "{pattern: " + yamlScalar(r.Pattern) + ", address: " + address
	for _, kv := range FormatColumns(r) {
		value := kv.Value
		switch kv.Key {
		case "hash-key", "when", "note", "name":
			value = yamlScalar(value)
		}
		line += ", " + kv.Key + ": " + value
	}
	return line + "}"
}

func yamlExpectText(e *Expect) string {
	hops := make([]string, len(e.Hops))
	for i, hop := range e.Hops {
		hops[i] = "null"
		if hop != NullAddress {
			hops[i] = yamlScalar(hop)
		}
	}
	line := "{address: " + yamlScalar(e.Address) + ", hops: [" + strings.Join(hops, ", ") + "]"
	if e.Target != "" {
		line += ", target: " + yamlScalar(e.Target)
	}
	if len(e.Properties) > 0 {
		var pairs []string
		for _, k := range sortedKeys(e.Properties) {
			pairs = append(pairs, yamlScalar(k)+": "+yamlScalar(e.Properties[k]))
		}
		line += ", properties: {" + strings.Join(pairs, ", ") + "}"
	}
	return line + "}"
}

// plainScalar is text that every YAML reader takes for a string, or for a number or word that we read as text.
var plainScalar = regexp.MustCompile(`^[A-Za-z_/][A-Za-z0-9_./@+-]*$`)

// yamlWord are plain scalars that other readers do not take for text.
var yamlWord = regexp.MustCompile(`(?i)^(null|true|false|yes|no|on|off|y|n)$`)

// yamlScalar is text as a YAML scalar: plain, quoted, or binary where it is not UTF-8.
func yamlScalar(s string) string {
	if plainScalar.MatchString(s) && !yamlWord.MatchString(s) {
		return s
	}
	if !utf8.ValidString(s) {
		return yamlBinary(s)
	}
	return yamlQuoted(s)
}

func yamlBinary(s string) string {
	return `!!binary "` + base64.StdEncoding.EncodeToString([]byte(s)) + `"`
}

func yamlQuoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < 0x80 && c >= ' ' && c != 0x7f || c >= 0x80 && unicode.IsPrint(c):
			b.WriteRune(c)
		case c <= 0xffff:
			fmt.Fprintf(&b, `\u%04X`, c)
		default:
			fmt.Fprintf(&b, `\U%08X`, c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// looseScalar is text that is one plain scalar wherever it stands, though other readers may not take it for text.
var looseScalar = regexp.MustCompile(`^[A-Za-z0-9_/$][A-Za-z0-9_./@+$%:-]*[A-Za-z0-9_/$]$`)

// yamlValue is the value of a key of a row, quoted as the value like is. An empty like is the writers' own way.
func yamlValue(name, text, like string) string {
	own := false // it may be any text
	switch name {
	case "pattern", "address", "hash-key", "when", "note", "name":
		own = true
	}
	switch {
	case name == "address" && text == NullAddress:
		return "null"
	case !utf8.ValidString(text):
		return yamlBinary(text)
	case strings.HasPrefix(like, `"`):
		return yamlQuoted(text)
	case strings.HasPrefix(like, "'") && !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) || c == 0xfeff }):
		return "'" + strings.ReplaceAll(text, "'", "''") + "'"
	case own && looseScalar.MatchString(like) && !yamlWord.MatchString(like) && yamlScalar(like) != like && looseScalar.MatchString(text):
		return text // the hand leaves out quotes that the writers would put
	case own:
		return yamlScalar(text)
	}
	return text
}
