package routetable

// Group is the matching rows of one pattern with one pick. Its Matches may be shared with the table: do not write to them.
type Group struct {
	Pattern  string
	Pick     Pick
	Balance  Balance // any: of the group's first row
	HashKey  string  // hash: never empty there
	Fallback bool
	Number   int // from 1, in table order of one lookup
	Matches  []Match
}

// Match is a row whose pattern fits an address, with its address expanded.
type Match struct {
	Route    *Route
	Result   string   // the raw expansion
	Captures []string // only Explain fills it
	Hop      *Hop     // nil where there is a Problem
	Problem  string   // why Result is not usable; a node takes such a row as not matching, and counts it
}
