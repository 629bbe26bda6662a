package routetable

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxCommand is how many characters of a command the history keeps.
const maxCommand = 200

// commandOf is a batch as one would type it for routectl, with credentials masked, or more than maxCommand characters of that.
func commandOf(ops []Op) string {
	if len(ops) == 0 {
		return ""
	}
	var w commandWriter
	w.Grow(32 + len(ops[0].Route.Pattern) + len(ops[0].Route.Address))
	if len(ops) > 1 {
		fmt.Fprintf(&w, "apply of %d: ", len(ops))
	}
	w.op(&ops[0])
	if len(ops) > 1 {
		w.WriteString(" …")
	}
	return w.String()
}

// commandWriter collects words until there are enough.
type commandWriter struct{ strings.Builder }

func (w *commandWriter) word(s string) {
	if w.Len() > maxCommand*utf8.UTFMax {
		return
	}
	w.WriteByte(' ')
	if len(s) > maxCommand*utf8.UTFMax {
		s = s[:maxCommand*utf8.UTFMax]
	}
	w.WriteString(arrowField(s))
}

func (w *commandWriter) address(s string) { w.word(MaskUserinfo(s)) }

func (w *commandWriter) origin(s string) {
	if s != "" && s != OriginOperator {
		w.WriteString(" --origin")
		w.word(s)
	}
}

func (w *commandWriter) op(op *Op) {
	w.WriteString(op.Verb.String())
	switch op.Verb {
	case VerbAdd, VerbInsert, VerbSet, VerbReplace:
		w.word(op.Route.Pattern)
		w.address(op.Route.Address)
		if op.Verb == VerbInsert {
			w.anchor(op)
		}
		w.columns(op)
		if op.Verb == VerbSet {
			w.origin(op.Origin)
		} else {
			w.origin(op.Route.Origin)
		}
	case VerbReplaceAll:
		w.word(op.Route.Pattern)
		for _, a := range op.Addresses {
			w.address(a)
		}
		w.columns(op)
	case VerbDelete:
		w.word(op.Route.Pattern)
		w.address(op.Route.Address)
		w.origin(op.Origin)
	case VerbDeletePattern:
		w.word(op.Route.Pattern)
		w.origin(op.Origin)
	case VerbClear:
		w.origin(op.Origin)
	case VerbWithdraw:
		w.word(op.Origin)
	case VerbLoad:
		fmt.Fprintf(w, " of %d rows", len(op.Routes))
		if op.Mode == LoadMerge {
			w.WriteString(" --merge")
		}
		w.origin(op.Origin)
	case VerbMatch:
		w.word(op.Match.String())
	case VerbObject:
		w.word(op.Object)
		if op.Text == "" {
			w.WriteString(" --delete")
		}
	case VerbRollback:
		fmt.Fprintf(w, " %d", op.To)
	}
}

func (w *commandWriter) anchor(op *Op) {
	if op.Before {
		w.WriteString(" --before")
	} else {
		w.WriteString(" --after")
	}
	w.word(op.Anchor)
	if op.AnchorAddress != "" {
		w.WriteString(" --address")
		w.address(op.AnchorAddress)
	}
}

func (w *commandWriter) columns(op *Op) {
	named := namedColumns(op)
	if named == 0 {
		return
	}
	for i := range columns {
		c := &columns[i]
		if named&c.set == 0 {
			continue
		}
		w.WriteString(" --")
		w.WriteString(c.name)
		switch {
		case c.set&(ColFallback|ColOptional|ColDynamicHost) == 0:
			w.word(c.format(&op.Route))
		case !c.isSet(&op.Route):
			w.WriteString("=false")
		}
	}
}

// cutCommand bounds a command.
func cutCommand(s string) string {
	if len(s) <= maxCommand || utf8.RuneCountInString(s) <= maxCommand {
		return s
	}
	n := 0
	for i := range s {
		if n++; n == maxCommand {
			return s[:i] + "…"
		}
	}
	return s
}

// cut bounds a text of which only people read more than the beginning, and copies it.
func cut(s string, bytes int) string {
	if len(s) > bytes {
		return strings.ToValidUTF8(s[:bytes], "")
	}
	return strings.Clone(s)
}
