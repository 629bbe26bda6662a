package ctl

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/routetable"
)

// explanation is what a table does with one address.
type explanation struct {
	Address  string         `json:"address"`
	Revision uint64         `json:"revision"`
	Matches  []explainMatch `json:"matches"`
	Hops     []string       `json:"hops"`
	Routed   string         `json:"routed,omitempty"`  // what was looked up, where it is not the address as written
	Emptied  *emptied       `json:"emptied,omitempty"` // the pattern that matched, and has no row any more
	Near     []string       `json:"near,omitempty"`    // patterns that nearly fit, and why they do not
}

// emptied is a pattern that had rows.
type emptied struct {
	Pattern  string `json:"pattern"`
	Revision uint64 `json:"revision"`
	At       string `json:"at"` // RFC 3339, UTC
}

// explainMatch is one row whose pattern fits. Exactly one of Hop and Problem is there.
type explainMatch struct {
	Pattern  string   `json:"pattern"`
	Address  string   `json:"address"`
	Captures []string `json:"captures"`
	Result   string   `json:"result"` // the raw expansion
	Hop      *string  `json:"hop,omitempty"`
	Problem  *string  `json:"problem,omitempty"`
	Pick     string   `json:"pick"`
	Group    int      `json:"group"`
	Fallback bool     `json:"fallback"`
	Optional bool     `json:"optional"`
	Used     bool     `json:"used"`
	Why      string   `json:"why,omitempty"`     // where it is not used
	When     string   `json:"when,omitempty"`    // its predicate, the rule of a component's route
	Origin   string   `json:"origin,omitempty"`  // where it has one: who asserts it, down to the route
	Depth    int      `json:"depth,omitempty"`   // where it is used and names another name: how many names deep that goes
	Nowhere  string   `json:"nowhere,omitempty"` // where it is used and leads to no hop that counts
	Chosen   *bool    `json:"chosen,omitempty"`  // against a running router: the node would send here now
}

// question is an address with what the rows' predicates and the link add to it.
type question struct {
	address    string
	properties map[string]string
	target     string
}

// ofRequest adds what the request of an address has, web:ENVIRONMENT/DEPLOYMENT/PATH, where it is not given: its path, and that it is a GET. Fields of
// headers have the names that rules ask for.
func (q *question) ofRequest() {
	name, ok := strings.CutPrefix(q.address, "web:")
	parts := strings.SplitN(name, "/", 3)
	if !ok || len(parts) < 3 {
		return
	}
	for k, v := range maps.Clone(q.properties) {
		if field, ok := strings.CutPrefix(k, "header:"); ok {
			delete(q.properties, k)
			q.properties["header:"+textproto.CanonicalMIMEHeaderKey(field)] = v
		}
	}
	for k, v := range map[string]string{"path": "/" + parts[2], "method": "GET", "type": "io.kubefox.http"} {
		if _, given := q.properties[k]; !given {
			q.properties[k] = v
		}
	}
}

func explainCommand(r *run) *cobra.Command {
	var properties []string
	var q question
	c := &cobra.Command{
		Use:   "explain ADDRESS",
		Short: "show which rows match an address, and where it would go",
		Long: `Explain shows the rows whose pattern fits ADDRESS, what they capture, what their address becomes, and which of them
are used. An address web:ENVIRONMENT/DEPLOYMENT/PATH is that of a request to components, web://PATH of one that names neither: where no --property
says otherwise it is a GET of the path; others are host, header:NAME and query:NAME. Exit status 1 says that nothing matches; optional rows, rows whose address becomes a problem, and rows that name what
leads nowhere do not count.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, argv []string) error {
			q.address = argv[0]
			q.properties = map[string]string{}
			for _, p := range properties {
				k, v, ok := strings.Cut(p, "=")
				if !ok || k == "" {
					return usage("--property %q: give K=V", p)
				}
				q.properties[k] = v
			}
			if err := onWire("explain", properties...); err != nil {
				return err
			}
			q.ofRequest()
			ed, err := r.editor(c.Context(), true)
			if err != nil {
				return err
			}
			defer ed.close()
			x, err := ed.explain(c.Context(), q)
			if err != nil {
				return err
			}
			if err := r.print(x, func(p *printer) { drawExplanation(p, x, q) }); err != nil {
				return err
			}
			if !x.routed() {
				return silentNo
			}
			return nil
		},
	}
	c.Flags().StringArrayVar(&properties, "property", nil, "message property `K=V` that predicates see (may be repeated)")
	c.Flags().StringVar(&q.target, "target", "", "the link's `TARGET`, used where the address matches nothing")
	return c
}

// routed says whether a message to the address would find a row that counts.
func (x explanation) routed() bool {
	return slices.ContainsFunc(x.Matches, func(m explainMatch) bool { return m.Used && !m.Optional && m.Problem == nil && m.Nowhere == "" })
}

func drawExplanation(p *printer, x explanation, q question) {
	if len(x.Matches) == 0 {
		text := strconv.Quote(x.Address) + ": no row matches"
		if q.target != "" {
			text += ", nor is there one for the target " + strconv.Quote(q.target)
		}
		if len(x.Address) > routetable.MaxTextBytes {
			text = fmt.Sprintf("an address of %d bytes matches nothing: at most %d KiB", len(x.Address), routetable.MaxTextBytes>>10)
		}
		p.line(fmt.Sprintf("%s (revision %d)", text, x.Revision))
		if e := x.Emptied; e != nil {
			p.line(fmt.Sprintf("handler gone: the last row of %s went with revision %d, at %s", cell(e.Pattern), e.Revision, cell(e.At)))
		}
		if name, ok := strings.CutPrefix(x.Address, "web:"); ok && !strings.HasPrefix(name, "/") {
			p.line("an environment and a deployment have rows while requests name them: the first one makes them")
		}
		drawNear(p, x)
		return
	}
	defer drawNear(p, x)
	defer drawUnused(p, x)
	switch {
	case x.Routed == "":
	case x.Routed == q.target:
		p.line(fmt.Sprintf("no row counts for %s: what follows is for the link's target, %s", strconv.Quote(x.Address), strconv.Quote(x.Routed)))
	default:
		p.line(fmt.Sprintf("no row counts for %s: what follows is for the name in it, %s", strconv.Quote(x.Address), strconv.Quote(x.Routed)))
	}
	p.columns("USED", "GROUP", "PICK", "PATTERN", "ADDRESS", "CAPTURES", "HOP")
	for _, m := range x.Matches {
		used := "no"
		if m.Used {
			used = "yes"
		}
		if m.Chosen != nil && *m.Chosen {
			used = "chosen"
		}
		pick := m.Pick
		if m.Fallback {
			pick += ",fallback"
		}
		if m.Optional {
			pick += ",optional"
		}
		hop := ""
		switch {
		case m.Hop != nil:
			hop = *m.Hop
		case m.Problem != nil:
			hop = "problem: " + *m.Problem
		}
		if p.wide && m.Result != hop {
			hop += " (" + m.Result + ")"
		}
		p.columns(used, strconv.Itoa(m.Group), pick, patternCell(m.Pattern), m.Address, strings.Join(m.Captures, " "), hop)
	}
	drawTaken(p, x)
	for _, m := range x.Matches {
		if m.Depth > 0 {
			p.line(fmt.Sprintf("names: %s --> %s: %d deep of at most %d", cell(m.Pattern), cell(m.Address), m.Depth, routetable.MaxDepth))
		}
		if m.Nowhere != "" {
			p.line("leads nowhere: " + cell(m.Pattern) + " --> " + cell(m.Address) + ": " + cell(m.Nowhere))
		}
	}
	if len(x.Hops) == 0 {
		p.line("no hop")
		return
	}
	p.line("hops: " + strings.Join(x.Hops, " "))
}

// drawTaken says which rule takes a request to components: the first, whatever the rows' pick is.
func drawTaken(p *printer, x explanation) {
	if !strings.HasPrefix(x.Address, "web:") {
		return
	}
	for _, m := range x.Matches {
		if m.Used && !m.Optional && m.When != "" {
			p.line(strings.TrimSuffix("taken by: "+cell(m.When)+", "+cell(m.Origin), ", "))
			return
		}
	}
}

// maxUnused bounds the rows of which the form for people says why they are not used.
const maxUnused = 20

// drawUnused says of the rows that are not used why not.
func drawUnused(p *printer, x explanation) {
	n := 0
	for _, m := range x.Matches {
		if m.Used || m.Why == "" {
			continue
		}
		if n++; n > maxUnused {
			continue
		}
		p.line("not used: " + cell(m.Pattern) + " --> " + cell(m.Address) + ": " + cell(m.Why))
	}
	if n > maxUnused {
		p.line(fmt.Sprintf("and %d more that are not used", n-maxUnused))
	}
}

func drawNear(p *printer, x explanation) {
	for _, n := range x.Near {
		p.line("near: " + cell(n))
	}
}

// readExplanation reads the map that EXPLAIN answers; its lists are never nil.
func readExplanation(body any) (explanation, error) {
	var x explanation
	text, err := json.Marshal(plain(body))
	if err == nil {
		err = json.Unmarshal(text, &x)
	}
	if err != nil {
		return x, unreachable("the answer to EXPLAIN is not understood: %v", err)
	}
	x.fill()
	return x, nil
}

// explanationOf is what a table file says.
func explanationOf(t *routetable.Explanation) explanation {
	x := explanation{Address: t.Address, Revision: t.Revision, Hops: t.Hops, Routed: t.Routed, Near: t.Near}
	for _, m := range t.Matches {
		one := explainMatch{
			Pattern: m.Pattern, Address: m.Address, Captures: m.Captures, Result: m.Result, Pick: m.Pick.String(),
			Group: m.Group, Fallback: m.Fallback, Optional: m.Optional, Used: m.Used, Why: m.Why, Depth: m.Depth, Nowhere: m.Nowhere, Chosen: m.Chosen,
		}
		if m.Route.When != "" {
			one.When, one.Origin = m.Route.When, m.Route.Origin
		}
		if m.Problem != "" {
			one.Problem = &m.Problem
		} else {
			one.Hop = &m.Hop
		}
		x.Matches = append(x.Matches, one)
	}
	x.fill()
	return x
}

// fill makes absent lists empty ones.
func (x *explanation) fill() {
	if x.Matches == nil {
		x.Matches = []explainMatch{}
	}
	if x.Hops == nil {
		x.Hops = []string{}
	}
	for i := range x.Matches {
		if x.Matches[i].Captures == nil {
			x.Matches[i].Captures = []string{}
		}
	}
}

// parseProperties reads the --property flags of send.
func parseProperties(flags []string) (map[string]any, error) {
	if len(flags) == 0 {
		return nil, nil
	}
	m := map[string]any{}
	for _, f := range flags {
		k, v, ok := strings.Cut(f, "=")
		if !ok || k == "" {
			return nil, usage("--property %q: give K=V", f)
		}
		m[k] = v
	}
	return m, nil
}
