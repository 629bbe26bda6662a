package ctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// remote is the table of a running router, behind AMQP Management.
type remote struct {
	caller caller
}

// pageRows is how many rows a query asks for at once.
const pageRows = 2000

// chunkBytes is the most that one LOAD-CHUNK carries.
const chunkBytes = 1 << 20

func (t *remote) close() { t.caller.close() }

// ask calls an operation of the table. A refusal is the answer no.
func (t *remote) ask(ctx context.Context, operation string, arguments map[string]any) (reply, error) {
	return t.do(ctx, call{operation: operation, kind: "table", name: "main", body: arguments})
}

func (t *remote) do(ctx context.Context, q call) (reply, error) {
	a, err := t.caller.call(ctx, q)
	if status, ok := errors.AsType[*statusError](err); ok {
		if status.status == 500 {
			return a, no("%s: the router failed: %v: see its log", verbOf(q.operation), status)
		}
		return a, no("%v", status)
	}
	return a, err
}

// verbOf is the verb of the command line that an operation belongs to.
func verbOf(operation string) string {
	switch {
	case strings.HasPrefix(operation, "LOAD-"):
		return "load"
	case operation == "DELETE-ROUTE":
		return "delete"
	}
	return strings.ToLower(operation)
}

func (t *remote) apply(ctx context.Context, edits []edit, o applyOptions) (result, error) {
	if len(edits) == 1 && o == (applyOptions{}) {
		a, err := t.ask(ctx, edits[0].operation, edits[0].arguments)
		if err != nil {
			return result{}, err
		}
		return readResult(a)
	}
	ops := make([]any, len(edits))
	for i, e := range edits {
		op := map[string]any{"operation": e.operation}
		for k, v := range e.arguments {
			op[k] = v
		}
		ops[i] = op
	}
	arguments := map[string]any{"ops": ops, "dryRun": o.dryRun}
	if o.ifRevision != nil {
		arguments["ifRevision"] = *o.ifRevision
	}
	a, err := t.ask(ctx, "APPLY", arguments)
	if err != nil {
		return result{}, err
	}
	x, err := readResult(a)
	x.DryRun = o.dryRun
	return x, err
}

func readResult(a reply) (result, error) {
	m, ok := a.body.(map[string]any)
	if !ok {
		return result{}, unreachable("the answer to a change is no map")
	}
	var x result
	x.Revision = uint64(wholeOr(a.properties["revision"], wholeOr(m["revision"], 0)))
	x.Added = int(wholeOr(m["added"], 0))
	x.Removed = int(wholeOr(m["removed"], 0))
	x.Updated = int(wholeOr(m["updated"], 0))
	x.Objects = readObjectDifferences(m["objects"])
	x.Note, _ = m["note"].(string)
	list, _ := m["warnings"].([]any)
	for _, w := range list {
		x.Warnings = append(x.Warnings, fmt.Sprint(plain(w)))
	}
	return x, nil
}

func wholeOr(v any, otherwise int64) int64 {
	if n, ok := whole(v); ok {
		return n
	}
	return otherwise
}

func (t *remote) load(ctx context.Context, f *routetable.File, o loadOptions) (result, error) {
	o.mode = "replace"
	if o.merge {
		o.mode = "merge"
	}
	session, err := t.upload(ctx, f, o)
	if err != nil {
		return result{}, err
	}
	o.tell("the router checks and loads %s", plural(len(f.Routes), "row"))
	// An interrupt comes too late now: the router does it all or nothing, and says which.
	told := make(chan struct{})
	unheard := context.AfterFunc(ctx, func() {
		defer close(told)
		if o.say != nil {
			o.say("interrupted, but the router has the whole file and loads it or refuses it: waiting for which (a second interrupt does not wait)")
		}
	})
	a, err := t.ask(context.WithoutCancel(ctx), "LOAD-COMMIT", map[string]any{"session": session, "dryRun": o.dryRun})
	if !unheard() {
		<-told
	}
	if err != nil {
		t.abort(ctx, session)
		if f, ok := errors.AsType[*fault](err); ok && f.status == exitUnreachable {
			f.text += ": whether the load was done is not known: routectl history tells"
		}
		return result{}, inFile(err, f)
	}
	x, err := readResult(a)
	x.DryRun = o.dryRun
	for i, text := range x.Warnings {
		x.Warnings[i] = lineOfFile(text, f)
	}
	return x, err
}

// sentLine is how the router begins to say where something is in the text of a load.
var sentLine = regexp.MustCompile(`^line (\d+)(, column \d+)?: `)

// lineOfFile puts the line of the file, which the user knows, for the line of the text that was sent of it.
func lineOfFile(text string, f *routetable.File) string {
	m := sentLine.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	sent, _ := strconv.Atoi(m[1])
	line, column, ok := f.RowAt(sent)
	switch {
	case !ok:
		return text
	case m[2] == "":
		return fmt.Sprintf("line %d: %s", line, text[len(m[0]):])
	}
	return fmt.Sprintf("line %d, column %d: %s", line, column, text[len(m[0]):])
}

func inFile(err error, f *routetable.File) error {
	if x, ok := errors.AsType[*fault](err); ok {
		x.text = lineOfFile(x.text, f)
	}
	return err
}

func (o loadOptions) tell(format string, args ...any) {
	if o.progress != nil {
		o.progress(fmt.Sprintf(format, args...))
	}
}

// upload brings the rows of f to the router as a load that is not committed, and gives its session. After an error, an interrupt too, there
// is none.
func (t *remote) upload(ctx context.Context, f *routetable.File, o loadOptions) (session string, err error) {
	o.tell("writing %s", plural(len(f.Routes), "row"))
	var text bytes.Buffer
	if err := f.WriteRows(&text); err != nil {
		return "", no("load: %v", err)
	}
	a, err := t.ask(context.WithoutCancel(ctx), "LOAD-BEGIN", map[string]any{"mode": o.mode, "source": sourceName(o.source)})
	if err != nil {
		return "", err
	}
	session = stringOf(a.body, "session")
	total := text.Len()
	for text.Len() > 0 {
		if _, err := t.ask(ctx, "LOAD-CHUNK", map[string]any{"session": session, "text": text.Next(chunkBytes)}); err != nil {
			t.abort(ctx, session)
			return "", err
		}
		sent := total - text.Len()
		o.tell("sent %d%% of %s (%d of %d kB)", int64(sent)*100/int64(total), plural(len(f.Routes), "row"), sent>>10, total>>10)
	}
	if ctx.Err() != nil { // the last chunk went out and came back; the table is as it was
		t.abort(ctx, session)
		return "", ctx.Err()
	}
	return session, nil
}

// sourceName is the name of a file as the history keeps it.
func sourceName(name string) string {
	if name = filepath.Base(name); len(name) > 200 {
		name = name[:200]
	}
	return strings.ToValidUTF8(name, "?")
}

// abort gives the router its memory back; it would drop the load by itself after a while. The caller has an error to
// report already.
func (t *remote) abort(ctx context.Context, session string) {
	t.ask(context.WithoutCancel(ctx), "LOAD-ABORT", map[string]any{"session": session})
}

func stringOf(body any, name string) string {
	m, _ := body.(map[string]any)
	s, _ := m[name].(string)
	return s
}

// store reads the pages of STORE, all of one snapshot.
func (t *remote) store(ctx context.Context, all bool) (*routetable.File, error) {
	var text bytes.Buffer
	arguments := map[string]any{"all": all}
	for {
		a, err := t.ask(ctx, "STORE", arguments)
		if err != nil {
			return nil, err
		}
		m, _ := a.body.(map[string]any)
		switch page := m["text"].(type) {
		case string:
			text.WriteString(page)
		case []byte:
			text.Write(page)
		}
		next, more := m["next"]
		if !more || next == nil {
			break
		}
		arguments = map[string]any{"all": all, "snapshot": m["snapshot"], "offset": next}
	}
	f, err := routetable.ParseFile("the router's table", t.withoutOwn(text.Bytes()))
	if err != nil {
		return nil, no("store: the router's table is not understood: %v", err)
	}
	return f, nil
}

func (t *remote) explain(ctx context.Context, q question) (explanation, error) {
	properties := map[string]any{}
	for k, v := range q.properties {
		properties[k] = v
	}
	arguments := map[string]any{"address": text(q.address), "properties": properties}
	if q.target != "" {
		arguments["target"] = text(q.target)
	}
	a, err := t.ask(ctx, "EXPLAIN", arguments)
	if err != nil {
		return explanation{}, err
	}
	return readExplanation(a.body)
}

// withoutOwn drops the comment that is the row of this very call's answers.
func (t *remote) withoutOwn(text []byte) []byte {
	own := []byte(" " + t.caller.replyTo() + " ")
	at := bytes.Index(text, own)
	if at < 0 {
		return text
	}
	start := bytes.LastIndexByte(text[:at], '\n') + 1
	end := bytes.IndexByte(text[at:], '\n') + at + 1
	if text[start] != '#' || end == at {
		return text
	}
	return slices.Concat(text[:start], text[end:])
}

// rowAttributes are the attributes of a route that list shows.
func rowAttributes() []any {
	names := []any{"name", "pattern", "address", "origin"}
	for _, c := range routetable.ColumnNames() {
		names = append(names, admin.AttributeName(c))
	}
	return names
}

// rows pages over one snapshot with QUERY. The row that brings the answers to this very call is left out.
func (t *remote) rows(ctx context.Context, f filter) ([]row, error) {
	var rows []row
	own, _ := routetable.QuotePattern(t.caller.replyTo())
	q := call{operation: "QUERY", name: "self", kind: "org.amqp.management", properties: map[string]any{"entityType": "route", "count": int32(pageRows)}}
	for name, value := range map[string]string{"pattern": f.Pattern, "origin": f.Origin, "space": f.Space} { // an older router sends other rows too: all are looked at below
		if value != "" || name == "pattern" && f.OfPattern {
			q.properties[name] = text(value)
		}
	}
	names := rowAttributes()
	if f.counted {
		names = append(names, counterNames...)
	}
	q.body = map[string]any{"attributeNames": names}
	for offset := 0; ; {
		q.properties["offset"] = int32(offset)
		a, err := t.do(ctx, q)
		if err != nil {
			return nil, err
		}
		page, err := readRows(a.body)
		if err != nil {
			return nil, err
		}
		offset += len(page)
		for _, x := range page {
			if f.takes(x.Route) && (own == "" || x.Pattern != own) {
				rows = append(rows, x)
			}
		}
		if total, ok := whole(a.properties["total"]); len(page) == 0 || !ok || offset >= int(total) {
			return rows, nil
		}
		q.properties["snapshot"] = a.properties["snapshot"]
	}
}
