package routetable

import (
	"strings"
	"time"
)

// Pick says how the rows of a group are used.
type Pick uint8

// The picks. The zero value is a copy to each row.
const (
	PickAll   Pick = iota // a copy to each
	PickAny               // one of the group
	PickFirst             // the first present; the rest stand by
)

// Balance says how an any group chooses.
type Balance uint8

// The balances of an any group; its first row decides.
const (
	LeastBusy Balance = iota
	RoundRobin
	Weighted
	Hash
)

// NullAddress is the address text of a row that discards.
const NullAddress = "null"

// The origins that have no name inside. Rows of files have "file:NAME", learned ones "link:7", "peer:NAME/3/s2" and so on.
const (
	OriginOperator = "operator" // people and management clients
	OriginCluster  = "cluster"
	OriginSystem   = "system"
)

// Route is one row of the table: pattern → address, asserted by an origin. A Route that a table returned is immutable and shared.
type Route struct {
	Pattern     string
	Address     string // as first written; NullAddress discards
	Pick        Pick
	Balance     Balance
	Weight      int    // weighted: parts; 0 counts as 1
	HashKey     string // hash: property name; empty is group-id
	Order       int    // table order is (Order, position)
	Fallback    bool
	Optional    bool
	When        string        // predicate text; empty is always
	Timeout     time.Duration // delivery timeout; 0 is the node's
	Retry       int           // retries after the first attempt; -1 is none set (the node's), meaning no limit but the timeout
	DynamicHost bool
	Origin      string // empty reads as operator
	Note        string
	Name        string // the operator's own name for management, mostly empty

	ID uint64 // set by the table, stable for the life of the row; 0 in a Route that is not in a table

	// Set by ParseFile: where the row was read.
	line, column int

	// Set by the table.
	pos int64     // the position; table order is (Order, pos)
	c   *compiled // of the texts above
	key uint64    // of the record that the row was made of, 0 for another

	// Of a row that lookups find. They stand together, and the group behind them (wholeRow): that is all that most lookups read of a row.
	group  *Group // of the row alone
	plain  bool   // its pattern is its own text as a literal address
	simple bool   // the group is what the row gives, whatever the message is: a literal address without a problem, no predicate, not optional, no fallback, and no name space where groups or rows compete
}

// compiled is what the table makes of a row's texts, once.
type compiled struct {
	pattern  *pattern
	template *template
	when     *When    // nil is always
	key      string   // the address in normalised form: rows are told apart by it
	match    [1]Match // of a literal address: Result, Hop and Problem
	hop      Hop      // of a literal address; Hop of the match points here
	warning  string   // what is probably not meant in a literal address
}

// NewRoute returns a row with every column at its default.
func NewRoute(pattern, address string) Route {
	return Route{Pattern: pattern, Address: address, Retry: -1}
}

// Configured reports whether rows of the origin are configured ones, which revisions count and verbs act on: operator (also empty),
// file:…, cluster.
func Configured(origin string) bool {
	return origin == "" || origin == OriginOperator || origin == OriginCluster || strings.HasPrefix(origin, "file:")
}

// Learned reports whether rows of the origin come from adapters: every origin that is neither configured nor system.
func Learned(origin string) bool { return !Configured(origin) && origin != OriginSystem }

// Live reports whether rows of the origin are bound to a live connection, so that a stored table does not hold them. Named learned rows
// (peer:NAME/…, component:…) are not: they outlive a connection. An anonymous peer's name is a random UUID.
func Live(origin string) bool {
	if !Learned(origin) {
		return false
	}
	scheme, rest, _ := strings.Cut(origin, ":")
	if scheme == "peer" {
		name, _, _ := strings.Cut(rest, "/")
		return anonymousPeer(name)
	}
	return scheme != "component"
}

// anonymousPeer reports whether a peer's name is a UUID, all digits, or none: Rembus gives such peers no state.
func anonymousPeer(name string) bool {
	if name == "" || allDigits(name) {
		return true
	}
	if len(name) != 36 {
		return false
	}
	for i := 0; i < len(name); i++ {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (name[i] == '-') || !dash && !isHex(name[i]) {
			return false
		}
	}
	return true
}

// before reports whether r stands before o in the table.
func (r *Route) before(o *Route) bool {
	if r.Order != o.Order {
		return r.Order < o.Order
	}
	if r.pos != o.pos {
		return r.pos < o.pos
	}
	return uint32(r.ID) < uint32(o.ID)
}

func compareRoutes(a, b *Route) int {
	switch {
	case a.ID == b.ID:
		return 0
	case a.before(b):
		return -1
	}
	return 1
}

// Hop is an address that an outlet can reach, parsed and normalised.
type Hop struct {
	Scheme   string // lower case: amqp, amqps, link, peer, relay-conn, event-conn, grpc, nats, replay, admin, null, …, or a name scheme (route, topic, …)
	User     string // percent-decoded
	Password string // percent-decoded
	HasUser  bool
	HasPass  bool
	Host     string // amqp and amqps: lower case, brackets off
	Port     uint16 // amqp and amqps: the default filled in
	Name     string // amqp: what follows the first slash, raw; other schemes: all after "scheme:"
	HasName  bool   // an absent name is not an empty one
	Text     string // canonical: lower-case scheme and host, port unless it is the default, userinfo masked
	Key      string // canonical with userinfo: equal keys are the same hop; never shown
}
