package routetable

import (
	"slices"
	"strconv"
	"strings"
)

// Lint says what in the table is allowed and probably not meant: what an add warns about, rows that can never be used, names that lead
// back by way of wildcards, groups that do not agree. Cost: some microseconds for each row.
func (s *Snapshot) Lint() []Warning {
	l := newLinter(s)
	var warnings []Warning
	for r := range s.Routes() {
		kin := l.kinOf(r.Pattern)
		warnings = s.warnRow(warnings, r)
		warnings = warnLoose(warnings, r)
		warnings = warnGroup(warnings, r, kin)
		warnings = l.warnShadowed(warnings, r)
		warnings = s.warnDuplicates(warnings, r, kin)
		warnings = s.warnNames(warnings, r)
	}
	return warnings
}

// linter is what rows are compared with, so that it is looked for once.
type linter struct {
	s     *Snapshot
	stars map[string][]*Route // rows of a "prefix*" that always count, by prefix: the first, and the first of another pattern, fallbacks by themselves
	sizes []int               // of the prefixes, ascending
	last  *kin
	many  map[string]*kin // of patterns with many rows
}

// kin is the rows of one pattern, in table order, and their groups where there are several.
type kin struct {
	pattern string
	rows    []*Route
	groups  []cand
}

func newLinter(s *Snapshot) *linter {
	l := &linter{s: s, stars: map[string][]*Route{}, last: &kin{}, many: map[string]*kin{}}
	s.records(func(rec record) bool {
		if rec.flags()&recWild == 0 {
			return true
		}
		r := s.routeOf(rec.slot())
		prefix, ok := starOf(r.c.pattern)
		if !ok || !r.alwaysCounts() {
			return true
		}
		n := 0
		for _, o := range l.stars[prefix] {
			if o.Fallback == r.Fallback {
				if n++; n == 2 || o.Pattern == r.Pattern {
					return true
				}
			}
		}
		l.stars[prefix] = append(l.stars[prefix], r)
		if at, there := slices.BinarySearch(l.sizes, len(prefix)); !there {
			l.sizes = slices.Insert(l.sizes, at, len(prefix))
		}
		return true
	})
	return l
}

func (l *linter) kinOf(pattern string) *kin {
	if l.last.pattern == pattern {
		return l.last
	}
	k := l.many[pattern]
	if k == nil {
		k = &kin{pattern: pattern, rows: l.s.rowsOf(pattern)}
		if len(k.rows) > 1 {
			k.groups = groupRows(nil, k.rows, func(*Route) bool { return true })
		}
		if len(k.rows) > manyRows {
			l.many[pattern] = k
		}
	}
	l.last = k
	return k
}

// alwaysCounts reports whether the row is used for whatever its pattern matches.
func (r *Route) alwaysCounts() bool {
	return !r.Optional && r.c.when == nil && r.c.match[0].Problem == ""
}

func warning(r *Route, what string) Warning {
	return Warning{Line: r.line, Pattern: r.Pattern, Address: r.Address, What: what}
}

// warnRow appends what is to be said of the row by itself.
func (s *Snapshot) warnRow(dst []Warning, r *Route) []Warning {
	say := func(what string) { dst = append(dst, warning(r, what)) }
	t, p := r.c.template, r.c.pattern
	if r.Pattern == "" {
		say("the pattern is empty: it matches only messages without an address")
	}
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
func warnGroup(dst []Warning, r *Route, k *kin) []Warning {
	if r.Pick != PickAny {
		return dst
	}
	for _, o := range k.rows {
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
func (s *Snapshot) warnDuplicates(dst []Warning, r *Route, k *kin) []Warning {
	for i := range k.groups {
		g := &k.groups[i]
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

// sample is an address that fits a pattern, each of whose wildcards takes something of its own. A glob with more than stars has none.
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
func (l *linter) warnShadowed(dst []Warning, r *Route) []Warning {
	if r.Fallback {
		if o := l.covering(r, func(o *Route) bool { return !o.Fallback }); o != nil {
			return append(dst, warning(r, "never used: "+arrowField(o.Pattern)+" matches all that this fallback does"))
		}
	}
	mode := l.s.space(r.Pattern)
	if mode == spaceAll || r.Optional && mode != spaceFirst {
		return dst
	}
	if o := l.covering(r, func(o *Route) bool { return o.Fallback == r.Fallback && o.before(r) && o.Pattern != r.Pattern }); o != nil {
		dst = append(dst, warning(r, "never used: "+arrowField(o.Pattern)+" comes first and matches all that it does"))
	}
	return dst
}

// covering finds the first row that always counts, for which is holds, and whose pattern surely matches all that r's does. It knows the simple
// cases: a literal, the same pattern, and a "prefix*".
func (l *linter) covering(r *Route, is func(*Route) bool) *Route {
	var first *Route
	look := func(rows []*Route) {
		for _, o := range rows {
			if o.alwaysCounts() && is(o) && (first == nil || o.before(first)) {
				first = o
			}
		}
	}
	p := r.c.pattern
	if p.literal() {
		look(l.s.rowsFor(nil, p.lits[0], hashAddress(p.lits[0])))
		return first
	}
	look(l.last.rows) // of r's pattern
	common := p.prefix()
	for _, n := range l.sizes {
		if n > len(common) {
			break
		}
		if rows := l.stars[common[:n]]; len(rows) > 0 && covers(rows[0].c.pattern, p) {
			look(rows)
		}
	}
	return first
}

// prefix is what every address that fits begins with.
func (p *pattern) prefix() string {
	common, begun := "", false
	add := func(text string) {
		if !begun {
			common, begun = text, true
			return
		}
		n := 0
		for n < min(len(common), len(text)) && common[n] == text[n] {
			n++
		}
		common = common[:n]
	}
	for _, lit := range p.lits {
		add(lit)
	}
	for i := range p.forms {
		add(p.forms[i].prefix)
	}
	return common
}

// starOf is the prefix of a pattern that is "prefix*".
func starOf(p *pattern) (prefix string, ok bool) {
	if len(p.lits) > 0 || len(p.forms) != 1 || p.forms[0].w == nil || p.forms[0].topic {
		return "", false
	}
	w := p.forms[0].w
	if len(w.kinds) != 1 || w.kinds[0] != wildAny || w.lits[1] != "" {
		return "", false
	}
	return w.lits[0], true
}

// covers reports whether all that fits b surely fits a, which is a "prefix*".
func covers(a, b *pattern) bool {
	star, _ := starOf(a)
	for i := range b.lits {
		if !a.match(b.lits[i]) {
			return false
		}
	}
	for i := range b.forms {
		prefix := b.forms[i].prefix
		if !strings.HasPrefix(prefix, star) || guard(prefix) > len(star) {
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
