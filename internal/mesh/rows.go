package mesh

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// Rows of the table are all that says who gets what:
//
//	topic:T  --> peer:NAME   all; its note is how far back a subscriber looks (msg_from=…)
//	rpc:T    --> peer:NAME   first (first_up) or any (round_robin, less_busy)
//	node:N   --> peer:NAME   first; of a pool's member group@… also node:group as a method, fallback
//
// Their origins are below peer:NAME/: c what NAME has said, n what it is called.

// originOf is the prefix of the origins of a twin's rows.
func originOf(name string) string { return "peer:" + url.PathEscape(name) + "/" }

// hopOf is the address of a twin's hop.
func hopOf(name string) string { return "peer:" + strings.ReplaceAll(name, "$", "$$") }

const notePrefix = "msg_from="

// interest is the row of a subscription. lookBack is in nanoseconds.
func interest(name, topic string, lookBack float64) routetable.Route {
	r := routetable.NewRoute("topic:"+topic, hopOf(name))
	r.Origin = originOf(name) + "c"
	if lookBack > 0 {
		r.Note = notePrefix + strconv.FormatFloat(lookBack, 'g', -1, 64)
	}
	return r
}

// implementation is the row of an exposed method; ok is false where no row can have the name.
func (m *Mesh) implementation(name, topic string) (r routetable.Route, ok bool) {
	pattern, ok := routetable.QuotePattern("rpc:" + topic)
	r = routetable.NewRoute(pattern, hopOf(name))
	r.Origin = originOf(name) + "c"
	r.Pick, r.Balance = m.pick()
	return r, ok
}

// pick is how one of several exposers is chosen.
func (m *Mesh) pick() (routetable.Pick, routetable.Balance) {
	switch m.o.Policy {
	case "round_robin":
		return routetable.PickAny, routetable.RoundRobin
	case "less_busy":
		return routetable.PickAny, routetable.LeastBusy
	}
	return routetable.PickFirst, routetable.LeastBusy
}

// repick has the rows of methods and pools that are there already chosen by the policy of now.
func (m *Mesh) repick() {
	pick, balance := m.pick()
	var commands []admin.Command
	for r := range m.table.Snapshot().Routes() {
		chosen := strings.HasPrefix(r.Pattern, "rpc:") || strings.HasPrefix(r.Pattern, "node:") && r.Fallback
		if chosen && strings.HasPrefix(r.Origin, "peer:") && (r.Pick != pick || r.Balance != balance) {
			row := *r
			row.Pick, row.Balance = pick, balance
			commands = append(commands, admin.Assert{Route: row})
		}
	}
	if len(commands) > 0 {
		m.do("", admin.Together{Commands: commands})
	}
}

// call are the rows by which a twin is named in a direct request.
func (m *Mesh) call(name string) []routetable.Route {
	var rows []routetable.Route
	if pattern, ok := routetable.QuotePattern("node:" + name); ok {
		r := routetable.NewRoute(pattern, hopOf(name))
		r.Pick = routetable.PickFirst
		rows = append(rows, r)
	}
	if group, _, ok := strings.Cut(name, "@"); ok && group != "" {
		if pattern, ok := routetable.QuotePattern("node:" + group); ok {
			r := routetable.NewRoute(pattern, hopOf(name))
			r.Pick, r.Balance = m.pick()
			r.Fallback = true
			rows = append(rows, r)
		}
	}
	return rows
}

// arrivedRows writes the rows by which a twin is called. They stay where it keeps what it has.
func (m *Mesh) arrivedRows(t *twin) {
	m.do(t.name, admin.Setup{Origin: originOf(t.name) + "n", Routes: m.call(t.name)})
}

// do gives a command of a peer to the table. What the table does not do is logged: the peer has done nothing wrong.
func (m *Mesh) do(from string, cmd admin.Command) (routetable.Change, bool) {
	ch, err := m.core.Do(m.caller(from), cmd)
	if err != nil {
		m.o.Log.Warn("a peer's rows could not be written", "peer", from, "error", err)
	}
	return ch, err == nil
}

// subscribe writes a row; false where it cannot be.
func (m *Mesh) subscribe(t *twin, topic string, lookBack float64) bool {
	_, ok := m.do(t.name, admin.Assert{Route: interest(t.name, topic, lookBack)})
	return ok
}

// expose is subscribe for a method.
func (m *Mesh) expose(t *twin, topic string) bool {
	r, ok := m.implementation(t.name, topic)
	if !ok {
		return false
	}
	_, ok = m.do(t.name, admin.Assert{Route: r})
	return ok
}

// unsubscribe takes a row away; false where there was none.
func (m *Mesh) unsubscribe(t *twin, topic string) bool {
	return m.retract(t, interest(t.name, topic, 0))
}

// unexpose is unsubscribe for a method.
func (m *Mesh) unexpose(t *twin, topic string) bool {
	r, ok := m.implementation(t.name, topic)
	return ok && m.retract(t, r)
}

func (m *Mesh) has(r routetable.Route) bool {
	return m.table.Snapshot().Find(r.Pattern, r.Address, r.Origin) != nil
}

func (m *Mesh) retract(t *twin, r routetable.Route) bool {
	ch, ok := m.do(t.name, admin.Unsubscribe{Origin: r.Origin, Pattern: r.Pattern, Address: r.Address})
	return ok && len(ch.Removed) > 0
}

// setup puts what a twin says that it has in the place of what it had.
func (m *Mesh) setup(t *twin, exposers, subscribers []string) bool {
	var rows []routetable.Route
	for _, topic := range subscribers {
		if badName(topic) == "" && m.mayUse(t, topic) {
			r := interest(t.name, topic, 0)
			if old := m.table.Snapshot().Find(r.Pattern, r.Address, r.Origin); old != nil {
				r.Note = old.Note // how far it looks back is said by subscribe alone
			}
			rows = append(rows, r)
		}
	}
	for _, topic := range exposers {
		if r, ok := m.implementation(t.name, topic); ok && badName(topic) == "" && m.mayUse(t, topic) {
			rows = append(rows, r)
		}
	}
	_, ok := m.do(t.name, admin.Setup{Origin: originOf(t.name) + "c", Routes: rows})
	return ok
}

// withdraw takes all rows of a twin away.
func (m *Mesh) withdraw(t *twin) {
	if len(m.table.Snapshot().OfOrigin(originOf(t.name))) > 0 {
		m.do(t.name, admin.Withdraw{Origin: originOf(t.name)})
	}
}

// names counts the rows of each topic and method, so that who connects can be told all of them without a look at the whole table.
type names struct {
	mu      sync.Mutex          // guards what follows; a leaf
	rows    map[string]int      // by pattern: topic:T, rpc:T
	own     map[string]int      // those that no other router of our kind has told of
	changed map[string]bool     // patterns of which own began or ended
	learned map[string]bool     // patterns that began or ended here by no command of a peer's: what another router told, or other wires have
	wake    chan struct{}       // there are some
	early   []routetable.Change // that came before the table was looked at
	started bool
	here    bool // what peers have is not counted: nobody is told of it (Options.Server)
}

// isAnnounced tells whether peers are told of a row's pattern.
func isAnnounced(pattern string) bool {
	return strings.HasPrefix(pattern, "topic:") || strings.HasPrefix(pattern, "rpc:")
}

func (n *names) add(by int, rows ...*routetable.Route) {
	for _, r := range rows {
		if !isAnnounced(r.Pattern) || n.here && strings.HasPrefix(r.Address, "peer:") {
			continue
		}
		placed := isPlaced(r.Origin)
		if tally(n.rows, r.Pattern, by) && (placed || !strings.HasPrefix(r.Origin, "peer:")) {
			if n.learned[r.Pattern] { // back to what is known of it
				delete(n.learned, r.Pattern)
			} else {
				n.learned[r.Pattern] = true
			}
		}
		if !placed && tally(n.own, r.Pattern, by) {
			n.changed[r.Pattern] = true
		}
	}
}

// tally counts a row; true where it is the first, or was the last.
func tally(counts map[string]int, pattern string, by int) bool {
	before := counts[pattern]
	if counts[pattern] = before + by; before+by <= 0 {
		delete(counts, pattern)
	}
	return (before > 0) != (before+by > 0)
}

// changes gives the patterns that began (true) or ended: of our own, and those that no command of a peer's told of.
func (n *names) changes() (own, learned map[string]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	own, learned = n.changed, n.learned
	n.changed, n.learned = map[string]bool{}, map[string]bool{}
	for p := range own {
		own[p] = n.own[p] > 0
	}
	for p := range learned {
		learned[p] = n.rows[p] > 0
	}
	return own, learned
}

// note takes a change of the table.
func (n *names) note(ch routetable.Change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.started {
		n.early = append(n.early, ch)
		return
	}
	n.add(-1, ch.Removed...)
	n.add(-1, ch.Before...)
	n.add(1, ch.Added...)
	n.add(1, ch.Updated...)
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// watch keeps names as the table is.
func (n *names) watch(t *routetable.Table) (stop func()) {
	stop = t.OnChange(n.note)
	s := t.Snapshot()
	n.mu.Lock()
	n.rows, n.own, n.started = map[string]int{}, map[string]int{}, true
	n.changed, n.learned = map[string]bool{}, map[string]bool{}
	for r := range s.Routes() {
		n.add(1, r)
	}
	early := n.early
	n.early = nil
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
	for _, ch := range early {
		if ch.Generation > s.Generation() {
			n.note(ch)
		}
	}
	return stop
}

// topicsFor gives the methods and topics that somebody other than a twin has, sorted (get_topics).
func (m *Mesh) topicsFor(t *twin) (exposed, subscribed []string) {
	own := map[string]int{}
	if !m.o.Server {
		for _, r := range m.table.Snapshot().OfOrigin(originOf(t.name)) {
			own[r.Pattern]++
		}
	}
	m.names.mu.Lock()
	for pattern, n := range m.names.rows {
		if n <= own[pattern] {
			continue
		}
		if topic, ok := strings.CutPrefix(pattern, "topic:"); ok {
			subscribed = append(subscribed, topic)
		} else if topic, ok := unquoted(pattern); ok {
			exposed = append(exposed, topic)
		}
	}
	m.names.mu.Unlock()
	slices.Sort(exposed)
	slices.Sort(subscribed)
	return exposed, subscribed
}

// unquoted gives the method that a pattern of rpc: names, where it names one alone.
func unquoted(pattern string) (topic string, ok bool) {
	topic = strings.TrimPrefix(pattern, "rpc:")
	if !strings.ContainsAny(topic, `*%\`) {
		return topic, true
	}
	var b strings.Builder
	for i := 0; i < len(topic); i++ {
		switch c := topic[i]; {
		case c == '*' || c == '%':
			return "", false
		case c == '\\' && i+1 < len(topic):
			i++
		}
		b.WriteByte(topic[i])
	}
	return b.String(), true
}

// exports is the data of an identity's answer: what somebody other than the twin exposes, and what somebody other subscribes to.
func (m *Mesh) exports(t *twin) []byte {
	exposed, subscribed := m.topicsFor(t)
	return appendTexts(appendTexts([]byte{majorArray<<5 | 2}, exposed), subscribed)
}

func appendTexts(b []byte, list []string) []byte {
	b = appendHead(b, majorArray, uint64(len(list)))
	for _, s := range list {
		b = appendText(b, s)
	}
	return b
}

// appendLists appends a map of lists, its keys sorted.
func appendLists(b []byte, lists map[string][]string) []byte {
	b = appendHead(b, majorMap, uint64(len(lists)))
	for _, key := range slices.Sorted(maps.Keys(lists)) {
		b = appendTexts(appendText(b, key), lists[key])
	}
	return b
}

// config is what broker_config tells: who exposes and who subscribes.
func (m *Mesh) config() []byte {
	exposers, subscribers := map[string][]string{}, map[string][]string{}
	for r := range m.table.Snapshot().Routes() {
		hop, err := routetable.ParseHop(r.Address)
		if err != nil || hop.Scheme != "peer" || !isAnnounced(r.Pattern) {
			continue
		}
		lists, topic := subscribers, strings.TrimPrefix(r.Pattern, "topic:")
		if method, ok := strings.CutPrefix(r.Pattern, "rpc:"); ok {
			lists, topic = exposers, method
		}
		name := strings.ReplaceAll(hop.Name, "$$", "$")
		if !slices.Contains(lists[topic], name) {
			lists[topic] = append(lists[topic], name)
		}
	}
	b := appendLists(appendText([]byte{majorMap<<5 | 2}, "exposers"), exposers)
	return appendLists(appendText(b, "subscribers"), subscribers)
}
