package routetable

import (
	"slices"
	"strconv"
	"strings"
)

// Lint says what in the table is allowed and probably not meant: what an add warns about, rows that can never be used, names that lead
// back by way of wildcards, groups that do not agree. It looks at pairs of patterns, so it is for files and people, not for every edit.
func (s *Snapshot) Lint() []Warning {
	var warnings []Warning
	for r := range s.Routes() {
		warnings = s.warnRow(warnings, r)
		warnings = warnLoose(warnings, r)
		warnings = s.warnGroup(warnings, r)
		warnings = s.warnShadowed(warnings, r)
		warnings = s.warnDuplicates(warnings, r)
		warnings = s.warnNames(warnings, r)
	}
	return warnings
}

func warning(r *Route, what string) Warning {
	return Warning{Line: r.line, Pattern: r.Pattern, Address: r.Address, What: what}
}

// warnRow appends what is to be said of the row by itself.
func (s *Snapshot) warnRow(dst []Warning, r *Route) []Warning {
	say := func(what string) { dst = append(dst, warning(r, what)) }
	t, p := r.c.template, r.c.pattern
	if t.highest > p.groups {
		n := "$" + strconv.Itoa(t.highest)
		if t.highest >= maxGroup {
			n = "the group"
		}
		switch {
		case strings.HasPrefix(p.text, globPrefix):
			say(n + " is empty: a glob: pattern has no groups but $0")
		case p.groups == 0:
			say(n + " is empty: the pattern has no groups")
		default:
			say(n + " is empty: the pattern has " + strconv.Itoa(p.groups) + " group(s)")
		}
	}
	if t.lone {
		say("a $ without a number is the whole address: write $0, or $$ for a dollar sign")
	}
	if t.dynamic && !r.DynamicHost && !s.dynamicHosts {
		say("captured text supplies the whole host: a router takes the row only with dynamic-host")
	} else if t.dynamic && r.DynamicHost {
		say("an open host: whoever sends to this pattern says where the message goes")
	}
	if t.literal {
		dst = s.warnLiteral(dst, r)
	}
	if r.Weight != 0 && (r.Pick != PickAny || r.Balance != Weighted) {
		say("weight has no effect without pick any and balance weighted")
	}
	if r.HashKey != "" && (r.Pick != PickAny || r.Balance != Hash) {
		say("hash-key has no effect without pick any and balance hash")
	}
	if r.Balance != LeastBusy && r.Pick != PickAny {
		say("balance has no effect without pick any")
	}
	return dst
}

// manyLoose is the number of loose patterns that an edit and the reader of a file bear without a word. Each costs a lookup that the cache does
// not answer some tens of nanoseconds.
const manyLoose = 64

// warnLoose appends that the index cannot file the row's pattern by anything in it.
func warnLoose(dst []Warning, r *Route) []Warning {
	if !r.c.pattern.loose() {
		return dst
	}
	return append(dst, warning(r, "the pattern is looked at for every address that is not in the cache: give it a literal prefix, or a literal of 4 bytes"))
}

// warnManyLoose is warnLoose for rows that join a table, where it has many like them.
func (s *Snapshot) warnManyLoose(dst []Warning, rows []*Route) []Warning {
	if s.index.filed[kindRest] <= manyLoose {
		return dst
	}
	for _, r := range rows {
		dst = warnLoose(dst, r)
	}
	return dst
}

// warnLiteral appends what is to be said of a literal address.
func (s *Snapshot) warnLiteral(dst []Warning, r *Route) []Warning {
	value, h := r.c.template.of(r.Address), &r.c.hop
	if problem := r.c.match[0].Problem; problem != "" {
		dst = append(dst, warning(r, problem+": a router does not use the row"))
	}
	if r.c.warning != "" {
		dst = append(dst, warning(r, r.c.warning))
	}
	if h.Port == 0 && r.c.match[0].Problem == "" && (h.Scheme == "amqp" || h.Scheme == "amqps") {
		dst = append(dst, warning(r, "no listener has port 0"))
	}
	if bare(value) && value != NullAddress && s.hasPattern(value) {
		dst = append(dst, warning(r, value+" is a host here, and a pattern elsewhere in the table: did you mean route:"+value))
	}
	return dst
}

// bare reports whether an address is a single word, a host.
func bare(text string) bool { return !strings.ContainsAny(text, ":/@[") }

// warnGroup says where a row of an any group does not agree with the first.
func (s *Snapshot) warnGroup(dst []Warning, r *Route) []Warning {
	if r.Pick != PickAny {
		return dst
	}
	for _, o := range s.rowsOf(r.Pattern) {
		if o.Pick == r.Pick && o.Fallback == r.Fallback {
			if o.Balance != r.Balance || hashKey(o) != hashKey(r) {
				dst = append(dst, warning(r, "the group's first row decides: its balance is "+balanceText(o)))
			}
			break
		}
	}
	return dst
}

// warnDuplicates says, for the first row of a group, which rows of the group lead to the hop of one before by another text.
func (s *Snapshot) warnDuplicates(dst []Warning, r *Route) []Warning {
	rows := s.rowsOf(r.Pattern)
	if len(rows) < 2 {
		return dst
	}
	groups := groupRows(nil, rows, func(*Route) bool { return true })
	for i := range groups {
		g := &groups[i]
		if len(g.matches) < 2 || g.first().ID != r.ID {
			continue
		}
		addr, ok := sample(g.pattern)
		if !ok {
			continue
		}
		seen := map[string]*Route{}
		for _, m := range s.expandAll(g, addr) {
			if m.Hop == nil || m.Problem != "" || m.Route.When != "" {
				continue
			}
			if first := seen[m.Hop.Key]; first == nil {
				seen[m.Hop.Key] = m.Route
			} else if first.Address != m.Route.Address {
				dst = append(dst, warning(m.Route, "leads to the same hop as "+rowText(first)+": it gets one copy, and one of the rows will do"))
			}
		}
	}
	return dst
}

// sample is an address that fits a pattern, each of whose wildcards takes something of its own. A glob has none.
func sample(p *pattern) (addr string, ok bool) {
	if p.literal() {
		return p.lits[0], true
	}
	if len(p.lits) > 0 || len(p.forms) != 1 || p.forms[0].w == nil {
		return "", false
	}
	w := p.forms[0].w
	var b strings.Builder
	for i, lit := range w.lits {
		b.WriteString(lit)
		if i < len(w.kinds) {
			b.WriteString("w" + strconv.Itoa(i) + "w")
		}
	}
	addr = b.String()
	return addr, p.match(addr)
}

// warnShadowed says where a row is never used because of the rows of another pattern.
func (s *Snapshot) warnShadowed(dst []Warning, r *Route) []Warning {
	if r.Fallback {
		if o := s.covering(r, func(o *Route) bool { return !o.Fallback }); o != nil {
			return append(dst, warning(r, "never used: "+arrowField(o.Pattern)+" matches all that this fallback does"))
		}
	}
	mode := s.space(r.Pattern)
	if mode == spaceAll || r.Optional && mode != spaceFirst {
		return dst
	}
	if o := s.covering(r, func(o *Route) bool { return o.Fallback == r.Fallback && o.before(r) && o.Pattern != r.Pattern }); o != nil {
		dst = append(dst, warning(r, "never used: "+arrowField(o.Pattern)+" comes first and matches all that it does"))
	}
	return dst
}

// covering finds a row that always counts, for which is holds, and whose pattern matches all that r's does.
func (s *Snapshot) covering(r *Route, is func(*Route) bool) *Route {
	fits := func(o *Route) bool { return !o.Optional && o.c.when == nil && o.c.match[0].Problem == "" && is(o) }
	p := r.c.pattern
	if p.literal() {
		for _, o := range s.rowsFor(nil, p.lits[0], hashAddress(p.lits[0])) {
			if fits(o) {
				return o
			}
		}
		return nil
	}
	for o := range s.Routes() {
		if fits(o) && covers(o.c.pattern, p) {
			return o
		}
	}
	return nil
}

// covers reports whether all that fits b surely fits a. It knows the simple cases: the same pattern, and a "prefix*".
func covers(a, b *pattern) bool {
	if a.text == b.text {
		return true
	}
	if len(a.forms) != 1 || a.forms[0].w == nil || a.forms[0].topic {
		return false
	}
	w := a.forms[0].w
	if len(w.kinds) != 1 || w.kinds[0] != wildAny || w.lits[1] != "" {
		return false
	}
	for i := range b.lits {
		if !a.match(b.lits[i]) {
			return false
		}
	}
	for i := range b.forms {
		prefix := b.forms[i].prefix
		if !strings.HasPrefix(prefix, w.lits[0]) || guard(prefix) > len(w.lits[0]) {
			return false
		}
	}
	return true
}

// warnNames says where a literal name leads nowhere, or back to the row.
func (s *Snapshot) warnNames(dst []Warning, r *Route) []Warning {
	name, ok := nextName(r)
	if !ok {
		return dst
	}
	if r.c.match[0].Hop.Scheme == "route" && len(s.rowsFor(nil, name, hashAddress(name))) == 0 {
		return append(dst, warning(r, "no row matches the name "+arrowField(name)))
	}
	any := func(string) (string, bool) { return "", false }
	for _, c := range s.Resolve(nil, s.LookupInto(nil, name, any), nil, any) {
		if c.End == EndTooDeep {
			return append(dst, warning(r, "the name leads back or too deep: "+arrowField(c.Name)))
		}
	}
	return dst
}

// sortWarnings puts warnings in the order of their lines.
func sortWarnings(w []Warning) {
	slices.SortStableFunc(w, func(a, b Warning) int { return a.Line - b.Line })
}
