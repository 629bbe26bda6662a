package routetable

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gobwas/glob"
	"pgregory.net/rapid"
)

// naiveWild matches Messenger's wildcards by plain recursion: each takes the longest run that lets the rest match.
func naiveWild(p, s string) (captures []string, ok bool) {
	if p == "" {
		return nil, s == ""
	}
	switch {
	case p[0] == '*' || p[0] == '%':
		end := len(s)
		if p[0] == '%' {
			if i := strings.IndexByte(s, '/'); i >= 0 {
				end = i
			}
		}
		for n := end; n >= 0; n-- {
			if rest, ok := naiveWild(p[1:], s[n:]); ok {
				return append([]string{s[:n]}, rest...), true
			}
		}
		return nil, false
	case p[0] == '\\' && len(p) > 1 && strings.IndexByte(`*%\`, p[1]) >= 0:
		p = p[1:]
	}
	if s == "" || s[0] != p[0] {
		return nil, false
	}
	return naiveWild(p[1:], s[1:])
}

// naiveTopic is Rembus's own way: a regular expression, and no captured part with "@".
func naiveTopic(p, s string) (captures []string, ok bool) {
	if p == "topic:*" {
		if !strings.HasPrefix(s, topicPrefix) {
			return nil, false
		}
		return []string{s[len(topicPrefix):]}, true
	}
	expr := regexp.QuoteMeta(p)
	expr = strings.ReplaceAll(expr, `\*\*`, `(.*)`)
	expr = strings.ReplaceAll(expr, `\*`, `([^/]+)`)
	m := regexp.MustCompile(`(?s)\A` + expr + `\z`).FindStringSubmatch(s)
	if m == nil || p != "topic:**" && !strings.Contains(s, "/") {
		return nil, false
	}
	for _, c := range m[1:] {
		if strings.Contains(c, "@") {
			return nil, false
		}
	}
	return m[1:], true
}

func captures(p *pattern, s string) []string {
	ends := p.capture(nil, s)
	var out []string
	for i := 0; i < len(ends); i += 2 {
		out = append(out, s[ends[i]:ends[i+1]])
	}
	return out
}

func checkWild(t interface{ Fatalf(string, ...any) }, text, s string, naive func(p, s string) ([]string, bool)) {
	p, err := compilePattern(text)
	if err != nil {
		t.Fatalf("pattern %q: %v", text, err)
	}
	want, ok := naive(text, s)
	if guard(s) > 0 && len(p.forms) > 0 && len(p.forms[0].prefix) < guard(s) {
		ok = false
	}
	if got := p.match(s); got != ok {
		t.Fatalf("pattern %q address %q: got %v, want %v", text, s, got, ok)
	}
	if got := captures(p, s); ok && len(p.forms) > 0 && !slices.Equal(got, want) {
		t.Fatalf("pattern %q address %q: got %q, want %q", text, s, got, want)
	}
}

func TestWildAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune(`ab/*%\`)), 0, 10, -1).Draw(t, "pattern")
		s := rapid.StringOfN(rapid.SampledFrom([]rune(`aab/*%\`)), 0, 14, -1).Draw(t, "address")
		checkWild(t, text, s, naiveWild)
	})
}

// TestWildExhaustive runs every short pattern and every short address of a few letters.
func TestWildExhaustive(t *testing.T) {
	texts := words(`a/*%`, 6)
	addresses := words(`a/`, 7)
	if underRace { // nothing here runs at once
		texts, addresses = words(`a/*%`, 5), words(`a/`, 6)
	}
	for _, text := range texts {
		for _, s := range addresses {
			checkWild(t, text, s, naiveWild)
		}
	}
}

// words lists all words over the letters, up to length n.
func words(letters string, n int) []string {
	all, last := []string{""}, []string{""}
	for range n {
		var next []string
		for _, w := range last {
			for _, c := range letters {
				next = append(next, w+string(c))
			}
		}
		all, last = append(all, next...), next
	}
	return all
}

func TestTopicAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := "topic:" + rapid.StringOfN(rapid.SampledFrom([]rune(`ab/**@`)), 0, 10, -1).Draw(t, "pattern")
		s := "topic:" + rapid.StringOfN(rapid.SampledFrom([]rune(`aab//@`)), 0, 14, -1).Draw(t, "address")
		if !strings.Contains(text, "*") {
			t.Skip()
		}
		checkWild(t, text, s, naiveTopic)
	})
}

func TestTopicPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern  string
		yes, not []string
	}{
		{"a/*/c", []string{"a/b/c"}, []string{"a/x/y/c", "a//c", "a/@b/c", "a/c"}},
		{"a/**", []string{"a/b", "a/b/c", "a/"}, []string{"a"}},
		{"**/c", []string{"b/c", "a/b/c"}, []string{"c"}},
		{"a/**/c", []string{"a/b/c", "a/x/y/c", "a//c"}, []string{"a/c", "ac", "axyzc"}},
		{"**", []string{"x", "x/y"}, []string{"a/@b"}},
		{"*", []string{"x", "x/y", "@x"}, nil},
		{"*/*", []string{"x/y"}, []string{"x", "x/y/z"}},
		{"a/b.c/*", []string{"a/b.c/d"}, []string{"a/bxc/d"}},
		{"a*", nil, []string{"ab"}},
		{"a*/c", []string{"ab/c"}, []string{"a/c"}},
		{"a/%/c", []string{"a/%/c"}, []string{"a/b/c"}},
	} {
		p, err := compilePattern("topic:" + c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range c.yes {
			if !p.match("topic:" + s) {
				t.Errorf("%s does not match %s", c.pattern, s)
			}
		}
		for _, s := range c.not {
			if p.match("topic:" + s) {
				t.Errorf("%s matches %s", c.pattern, s)
			}
		}
	}
}

// naiveGlob matches a glob by recursion over its runes.
func naiveGlob(p, s string) bool {
	alternatives, rest, ok := cutBraces(p)
	if ok {
		for _, a := range alternatives {
			if naiveGlob(a+rest, s) {
				return true
			}
		}
		return false
	}
	if p == "" {
		return s == ""
	}
	c, n := utf8.DecodeRuneInString(s)
	switch p[0] {
	case '*':
		tail, slash := strings.CutPrefix(p[1:], "*")
		for i := 0; i <= len(s); {
			if naiveGlob(tail, s[i:]) {
				return true
			}
			if i == len(s) || !slash && s[i] == '/' {
				return false
			}
			_, n := utf8.DecodeRuneInString(s[i:])
			i += n
		}
		return false
	case '?':
		return n > 0 && c != '/' && naiveGlob(p[1:], s[n:])
	case '\\':
		p = p[1:]
	}
	pc, pn := utf8.DecodeRuneInString(p)
	return n > 0 && pc == c && naiveGlob(p[pn:], s[n:])
}

// cutBraces takes apart a pattern that begins with a group. Stars of different alternatives are kept apart by the caller's recursion.
func cutBraces(p string) (alternatives []string, rest string, ok bool) {
	if !strings.HasPrefix(p, "{") {
		return nil, "", false
	}
	depth, start := 0, 1
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return append(alternatives, p[start:i]), p[i+1:], true
			}
		case ',':
			if depth == 1 {
				alternatives = append(alternatives, p[start:i])
				start = i + 1
			}
		}
	}
	return nil, "", false
}

func TestGlobAgainstNaive(t *testing.T) {
	atom := rapid.SampledFrom([]string{"a", "b", "/", "?", "*", "**", "{ba,}", "{*b,a}", "{a,b/}", "é"})
	rapid.Check(t, func(t *rapid.T) {
		var body string
		star := false
		for _, a := range rapid.SliceOfN(atom, 0, 7).Draw(t, "atoms") {
			// The naive matcher reads text: stars that meet would change their meaning.
			if star && strings.HasPrefix(a, "*") || star && a == "{*b,a}" {
				a = "a"
			}
			star = strings.HasSuffix(a, "*") || a == "{ba,}" && star
			body += a
		}
		s := rapid.StringOfN(rapid.SampledFrom([]rune(`aab/é`)), 0, 10, -1).Draw(t, "address")
		p, err := compilePattern("glob:" + body)
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if got, want := p.match(s), naiveGlob(body, s); got != want {
			t.Fatalf("glob:%s on %q: got %v, want %v", body, s, got, want)
		}
	})
}

// TestGlobAgainstGobwas holds brace-free forms with few stars to the library whose syntax they have.
func TestGlobAgainstGobwas(t *testing.T) {
	atom := rapid.SampledFrom([]string{"a", "b", "/", "?", "*", "**", "[ab]", "[!a]", "[a-z]", "é", "[é/]", `\\*`, "-"})
	rapid.Check(t, func(t *rapid.T) {
		body := strings.Join(rapid.SliceOfN(atom, 0, 8).Draw(t, "atoms"), "")
		s := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "a", "b", "/", "é", "*", "\xff", "-"}), 0, 10).Draw(t, "address"), "")
		checkGlob(t, body, s)
	})
}

func checkGlob(t interface{ Fatalf(string, ...any) }, body, s string) {
	g, err := glob.Compile(body, '/')
	p, ours := compilePattern("glob:" + body)
	if (err == nil) != (ours == nil) {
		t.Fatalf("glob:%s: gobwas says %v, we say %v", body, err, ours)
	}
	if err != nil {
		return
	}
	want := g.Match(s) && (len(p.forms) == 0 || len(p.forms[0].prefix) >= guard(s))
	if got := p.match(s); got != want {
		t.Fatalf("glob:%s on %q: got %v, gobwas says %v", body, s, got, want)
	}
}

func TestGlobKnownFaults(t *testing.T) {
	for _, c := range [][2]string{
		{"*{ba,}a*?a", "baaa"}, {"*{*b,}b*?a", "abba"}, {"*{*a,}a*?b", "baab"}, {"*{*bb,b}*?b", "abbb"}, {"*{abb,b}*b*b", "abbab"},
		{"{*{aba,b}*,}ab", "abab"}, {"*{ba,}a**?/", "baa/"}, {"a[!x]b", "a/b"}, {"[{,}]", ","}, {"{a,b}{c,d}", "bc"},
	} {
		p, err := compilePattern("glob:" + c[0])
		if err != nil {
			t.Fatal(err)
		}
		if !p.match(c[1]) {
			t.Errorf("glob:%s does not match %s", c[0], c[1])
		}
	}
	for _, c := range []string{"{a,b", "[a", `a\`, "[b-a]", strings.Repeat("{a,b}", 9), strings.Repeat("a", 1024), "\xff"} {
		if _, err := compilePattern("glob:" + c); err == nil {
			t.Errorf("glob:%.20s is taken", c)
		}
	}
}

func TestPatternGuard(t *testing.T) {
	for _, c := range []struct {
		pattern, address string
		want             bool
	}{
		{"*", "orders", true},
		{"*", "topic:orders", false},
		{"%:orders", "topic:orders", false},
		{"topic*", "topic:orders", false},
		{"relay:*", "relay:d/x", true},
		{"relay:d/%", "relay:d/x", true},
		{"*", "$management", false},
		{"$*", "$management", true},
		{"*", "amqp://h/x", true},
		{"*", "TOPIC:orders", false},
		{"glob:**", "topic:orders", false},
		{"glob:{topic:,}**", "topic:orders", true},
		{"glob:**", "a/b", true},
		{"topic:orders", "topic:orders", true},
		{"*", "topical:orders", true},
		{`\**`, "*x", true},
	} {
		p, err := compilePattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.match(c.address); got != c.want {
			t.Errorf("%s on %s: got %v, want %v", c.pattern, c.address, got, c.want)
		}
	}
}

func TestQuotePattern(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"", "glob:", "topic:", "$"}).Draw(t, "scheme") +
			rapid.StringOfN(rapid.SampledFrom([]rune(`ab*%\{}[]?!`)), 0, 8, -1).Draw(t, "name")
		q, ok := QuotePattern(name)
		if !ok {
			if !strings.HasPrefix(name, topicPrefix) {
				t.Fatalf("no pattern for %q", name)
			}
			return
		}
		p, err := compilePattern(q)
		if err != nil {
			t.Fatal(err)
		}
		if !p.literal() || p.lits[0] != name {
			t.Fatalf("%q is quoted as %q, which is %q", name, q, p.lits)
		}
	})
}

// TestMatchingDoesNotBlowUp gives each matcher what hurts backtracking ones.
func TestMatchingDoesNotBlowUp(t *testing.T) {
	long := strings.Repeat("a", MaxTextBytes-1)
	for _, c := range []struct{ name, pattern, address string }{
		{"six stars", strings.Repeat("*a", 6) + "b", strings.Repeat("a", 100)},
		{"10 000 wildcards", strings.Repeat("*a", 10_000) + "b", long},
		{"10 000 wildcards that match", strings.Repeat("*a", 10_000), long},
		{"10 000 segments", strings.Repeat("%a", 10_000) + "b", long},
		{"10 000 adjacent stars", strings.Repeat("*", 10_000) + "b", long},
		{"10 000 mixed", strings.Repeat("*%a", 10_000) + "b", long},
		{"segments behind a star", "*b" + strings.Repeat("%/a", maxRescans) + "*b", strings.Repeat("/a", 32_000) + "b"},
		{"long literal", "*" + strings.Repeat("a", 30_000) + "*" + "c" + "%", long},
		{"topic", "topic:" + strings.Repeat("*/", 5_000) + "**b", "topic:" + strings.Repeat("a/", 20_000)},
		{"glob stars", "glob:" + strings.Repeat("**a", 300) + "b", long},
		{"glob segments", "glob:" + strings.Repeat("*a", 400) + "?b", long},
		{"glob segments behind a star", "glob:**b" + strings.Repeat("*/a", 300) + "*b", strings.Repeat("/a", 32_000) + "b"},
		{"glob classes", "glob:" + strings.Repeat("*[!b]", 150) + "?b", long},
		{"glob braces", "glob:" + strings.Repeat("{a*,b}", 8) + "c?", strings.Repeat("a", 60)},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			p, err := compilePattern(c.pattern)
			if err != nil {
				t.Fatal(err)
			}
			p.match(c.address)
			if d := time.Since(start); d > 20*time.Second { // a blow-up takes hours; a busy machine with the race detector does not
				t.Errorf("took %v", d)
			} else {
				t.Log(d)
			}
		})
	}
}

func FuzzPattern(f *testing.F) {
	for _, s := range [][2]string{
		{"*-*", "a-b-c"}, {"%/%/baz", "/foo/bar/baz"}, {`\**`, "*x"}, {"topic:a/**/c", "topic:a/b/c"}, {"glob:{a,b}*", "ab"}, {"%*", "a/b"},
		{"glob:[!a]**", "b/c"}, {"*a%b*a%", "aab/aab"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, text, s string) {
		p, err := compilePattern(text)
		if err != nil {
			return
		}
		p.match(s)
		if len(text) > 24 || len(s) > 24 {
			return
		}
		if body, ok := strings.CutPrefix(text, globPrefix); ok {
			// Three stars meet differently in gobwas, and braces it gets wrong.
			if !strings.ContainsAny(body, "{}") && !strings.Contains(body, "***") {
				checkGlob(t, body, s)
			}
			return
		}
		if strings.HasPrefix(text, topicPrefix) {
			if strings.Contains(text, "*") && utf8.ValidString(s) && utf8.ValidString(text) {
				checkWild(t, text, s, naiveTopic)
			}
			return
		}
		checkWild(t, text, s, naiveWild)
	})
}

func ExampleQuotePattern() {
	p, _ := QuotePattern("50%")
	fmt.Println(p)
	// Output: 50\%
}

// adversarial are patterns and addresses that a matcher which looks again at what it has seen takes long for.
func adversarial() []struct{ name, pattern, address string } {
	long := MaxTextBytes
	fill := func(s string) string { return strings.Repeat(s, long/len(s)) }
	return []struct{ name, pattern, address string }{
		{"many %", strings.Repeat("%", 30_000), fill("a")},
		{"many % between letters", strings.Repeat("%a", 30_000), fill("a")},
		{"many % that miss", "b" + strings.Repeat("%a", 30_000) + "%b", "b" + fill("a")[:long-2] + "b"},
		{"many *", strings.Repeat("*a", 30_000), fill("a")},
		{"a long literal", "*" + strings.Repeat("a", long/2) + "b*", fill("a")},
		{"a floating run", "*x" + strings.Repeat("%/", maxRescans) + "y*", fill("y/")},
		{"a floating run with a long literal", "*x%" + strings.Repeat("/"+strings.Repeat("a", 500), maxRescans) + "*", fill("/" + strings.Repeat("a", 500))},
		{"a run at the start", "x" + strings.Repeat("%/", 10_000) + "y*", "x" + fill("y/")[:long-1]},
		{"a run at the start that misses", "x" + strings.Repeat("%/", 10_000) + "z%y*", "x" + fill("y/")[:long-1]},
		{"a run at the end", "*x" + strings.Repeat("%/", 20_000), fill("y/")},
		{"a literal with slashes", "*x%" + strings.Repeat("/c", maxRescans) + "*", fill("/c")},
		{"topics", "topic:**x*" + strings.Repeat("/*", maxRescans) + "y**", "topic:" + fill("y/")[:long-6]},
	}
}

func TestPatternsThatCannotBeMatchedInLinearTimeAreRefused(t *testing.T) {
	slashes := func(n int) string { return strings.Repeat("/", n) }
	for _, c := range []struct {
		name, pattern string
		ok            bool
	}{
		{"as many as can be", "*%" + slashes(32) + "*", true},
		{"one more", "*%" + slashes(33) + "*", false},
		{"before the first star", strings.Repeat("%/", 1000) + "*", true},
		{"in the first literal", slashes(1000) + "%*", true},
		{"behind the last star", "*" + strings.Repeat("%/", 1000), true},
		{"without a segment wildcard", "*" + slashes(1000) + "*", true},
		{"without a star", strings.Repeat("%/", 1000), true},
		{"each run within the limit", strings.Repeat("*"+strings.Repeat("%/", 32), 5), true},
		{"a topic", "topic:**x" + strings.Repeat("*/", 33) + "**", false},
		{"a topic before the first star", "topic:" + strings.Repeat("*/", 1000) + "**", true},
	} {
		err := ValidatePattern(c.pattern)
		if (err == nil) != c.ok {
			t.Errorf("%s: got %v", c.name, err)
		}
		if err != nil && !strings.Contains(err.Error(), "at most 32") {
			t.Errorf("%s: %q does not name the limit", c.name, err)
		}
	}
}

func BenchmarkAdversarialMatch(b *testing.B) {
	for _, c := range adversarial() {
		p, err := compilePattern(c.pattern)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			b.SetBytes(int64(len(c.pattern) + len(c.address)))
			for b.Loop() {
				p.match(c.address)
			}
		})
	}
}
