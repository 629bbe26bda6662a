package routetable

import (
	"errors"
	"net/textproto"
	"regexp"
	"strings"
)

// whenTest is one predicate of a when, compiled.
type whenTest struct {
	kind   whenTestKind
	any    bool   // {}: any value
	key    string // the property that it reads
	places places
	value  string
	list   []string // Method
	re     *regexp.Regexp
}

type whenTestKind uint8

const (
	testAll whenTestKind = iota
	testProperty
	testValues // one of the values of a property
	testType
	testMethod
	testPlaces
)

// whenTests are the predicates by name: how many arguments each takes (-1 is any number), and what makes it of them. at is the argument
// that is wrong, or -1.
var whenTests = map[string]struct {
	arguments int
	make      func(t *whenTest, args []string) (at int, err error)
}{
	"All":      {0, func(t *whenTest, _ []string) (int, error) { return 0, nil }},
	"Property": {2, func(t *whenTest, a []string) (int, error) { return t.compare(testProperty, a[0], a[0], a[1]) }},
	"Header": {2, func(t *whenTest, a []string) (int, error) {
		return t.compare(testValues, a[0], HeaderProperty(a[0]), a[1])
	}},
	"Query": {2, func(t *whenTest, a []string) (int, error) {
		return t.compare(testValues, a[0], QueryProperty(a[0]), a[1])
	}},
	"Type": {1, func(t *whenTest, a []string) (int, error) {
		t.kind, t.key, t.value = testType, "type", a[0]
		return 0, nil
	}},
	"Method": {-1, func(t *whenTest, a []string) (int, error) {
		t.kind, t.key, t.list = testMethod, "method", a
		return 0, nil
	}},
	"Host":       {1, func(t *whenTest, a []string) (int, error) { return t.place("host", a[0], '.', false) }},
	"Path":       {1, func(t *whenTest, a []string) (int, error) { return t.place("path", a[0], '/', false) }},
	"PathPrefix": {1, func(t *whenTest, a []string) (int, error) { return t.place("path", a[0], '/', true) }},
}

const whenTestNames = "All, Property, Type, Method, Header, Query, Host, Path, PathPrefix"

// HeaderProperty is the name of the property that Header(k, …) reads: the values of an HTTP header.
func HeaderProperty(k string) string { return "header:" + textproto.CanonicalMIMEHeaderKey(k) }

// QueryProperty is the name of the property that Query(k, …) reads: the values of a parameter of an HTTP query.
func QueryProperty(k string) string { return "query:" + k }

// JoinValues is the text of a property that has several values: they are separated by line feeds; a backslash is written before a
// backslash, and a line feed in a value as "\n". No value at all is no property.
func JoinValues(values []string) string {
	if len(values) == 1 && strings.IndexByte(values[0], '\n') < 0 && strings.IndexByte(values[0], '\\') < 0 {
		return values[0]
	}
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteByte('\n')
		}
		valueEscape.WriteString(&b, v)
	}
	return b.String()
}

var (
	valueEscape   = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	valueUnescape = strings.NewReplacer(`\\`, `\`, `\n`, "\n")
)

// compare makes a test of a property's text, or texts, against a value.
func (t *whenTest) compare(kind whenTestKind, name, key, value string) (at int, err error) {
	if name == "" {
		return -1, errors.New("the property has no name")
	}
	t.kind, t.key, t.value = kind, key, value
	if !strings.HasPrefix(value, "{") || !strings.HasSuffix(value, "}") || len(value) < 2 {
		return 0, nil
	}
	body := value[1 : len(value)-1]
	t.any = body == ""
	t.re, err = wholeRegexp(body)
	return 1, err
}

// wholeRegexp compiles a regular expression that a whole text has to match.
func wholeRegexp(body string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(body); err != nil { // alone, lest a ")" closes our group
		return nil, err
	}
	return regexp.Compile(`\A(?:` + body + `)\z`)
}

func (t *whenTest) place(key, text string, separator byte, prefix bool) (at int, err error) {
	t.kind, t.key, t.value = testPlaces, key, text
	return 0, t.places.parse(text, separator, prefix)
}

// captures reports whether the test gives captures where it holds.
func (t *whenTest) captures() bool {
	return t.kind == testPlaces && (t.places.prefix || t.places.named)
}

// holds reports whether the test holds.
func (t *whenTest) holds(property func(string) (string, bool)) bool {
	if t.kind == testAll {
		return true
	}
	v, ok := property(t.key)
	switch t.kind {
	case testPlaces:
		return t.places.match(v, ok)
	case testType:
		return ok && (v == t.value || len(v) >= len(t.value) && strings.EqualFold(v[len(v)-len(t.value):], t.value))
	case testMethod:
		for _, m := range t.list {
			if ok && strings.EqualFold(v, m) {
				return true
			}
		}
		return false
	case testValues:
		return ok && t.valuesHold(v)
	}
	return ok && t.fits(v)
}

func (t *whenTest) fits(v string) bool {
	switch {
	case t.any:
		return true
	case t.re != nil:
		return t.re.MatchString(v)
	}
	return v == t.value
}

// valuesHold reports whether one of the values in the text fits.
func (t *whenTest) valuesHold(text string) bool {
	for {
		v, rest, more := strings.Cut(text, "\n")
		if strings.IndexByte(v, '\\') >= 0 {
			v = valueUnescape.Replace(v)
		}
		if t.fits(v) {
			return true
		}
		if !more {
			return false
		}
		text = rest
	}
}
