package routetable

import (
	"errors"
	"regexp"
	"strings"
)

// places is the pattern of a host or a path, taken apart at its separator.
type places struct {
	separator byte
	prefix    bool // it fits more parts too
	never     bool // it fits nothing: the pattern of Host or Path is empty
	named     bool // a placeholder has a name
	led       int32
	lead      string // the first led parts, which are literal, with separators between them
	parts     []segment
}

// segment is one part: literal text, or a placeholder.
type segment struct {
	lit  string
	wild bool
	name string         // of a placeholder; may be empty
	re   *regexp.Regexp // of a placeholder; nil is any text but none
}

// Errors of a pattern.
var (
	errPlaceOpen  = errors.New("a placeholder is not closed: expected }")
	errPlaceFirst = errors.New("text before { : a placeholder has to be a whole part")
	errPlaceLast  = errors.New("text after } : a placeholder has to be a whole part")
)

// parse reads a pattern:
//
//	pattern     = { separator } part { separator { separator } part } { separator }
//	part        = literal | placeholder
//	literal     = text without separator; \{ is a {
//	placeholder = "{" [ name ] [ ":" regex ] "}" | "{^" regex "}"
//
// Without a regex a placeholder is one character or more. It ends at the "}" that fits its "{", where what is behind a backslash does not
// count; where none fits (a "{" alone in the regex), at the first one that is not behind a backslash. In a host the colons in a regex are dropped, as
// they are there where components were first routed.
func (p *places) parse(text string, separator byte, prefix bool) error {
	p.separator, p.prefix = separator, prefix
	for at := 0; at < len(text); {
		if text[at] == separator {
			at++
			continue
		}
		var one segment
		var err error
		if text[at] == '{' {
			at, err = one.placeholder(text, at, separator)
		} else {
			at, err = one.literal(text, at, separator)
		}
		if err != nil {
			return err
		}
		p.named = p.named || one.name != ""
		p.parts = append(p.parts, one)
	}
	for ; int(p.led) < len(p.parts) && !p.parts[p.led].wild; p.led++ {
		if p.led > 0 {
			p.lead += string(separator)
		}
		p.lead += p.parts[p.led].lit
	}
	p.never = len(p.parts) == 0 && !prefix && (text == "" || separator != '/')
	return nil
}

func (one *segment) literal(text string, at int, separator byte) (int, error) {
	var b []byte
	for ; at < len(text) && text[at] != separator; at++ {
		switch {
		case text[at] == '\\' && at+1 < len(text) && text[at+1] == '{':
			at++
		case text[at] == '{':
			return at, errPlaceFirst
		}
		b = append(b, text[at])
	}
	one.lit = string(b)
	return at, nil
}

func (one *segment) placeholder(text string, at int, separator byte) (int, error) {
	end := closing(text, at)
	if end < 0 {
		return at, errPlaceOpen
	}
	body := text[at+1 : end]
	at = end + 1
	if at < len(text) && text[at] != separator {
		return at, errPlaceLast
	}
	one.wild = true
	var re string
	if strings.HasPrefix(body, "^") { // an array of a template: it has no name
		re = body
	} else if one.name, re, _ = strings.Cut(body, ":"); separator == '.' {
		re = strings.ReplaceAll(re, ":", "")
	}
	if re == "" {
		return at, nil
	}
	var err error
	one.re, err = wholeRegexp(re)
	return at, err
}

// closing is the place of the } that closes the { at open, or -1.
func closing(text string, open int) int {
	depth, first := 0, -1
	for i := open; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if first < 0 {
				first = i
			}
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return first
}

// trim drops the separators at both ends.
func (p *places) trim(text string) string {
	for text != "" && text[0] == p.separator {
		text = text[1:]
	}
	for text != "" && text[len(text)-1] == p.separator {
		text = text[:len(text)-1]
	}
	return text
}

// match reports whether the text of the host or path fits; there is whether there is one. Separators at its ends do not matter, and between
// two that stand together is an empty part.
func (p *places) match(text string, there bool) bool {
	if p.never {
		return false
	}
	rest, more := p.trim(text), true
	if len(p.parts) == 0 {
		return p.prefix || there && rest == ""
	}
	if p.led > 0 {
		if !strings.HasPrefix(rest, p.lead) {
			return false
		}
		if rest = rest[len(p.lead):]; rest != "" && rest[0] != p.separator {
			return false
		}
		if more = rest != ""; more {
			rest = rest[1:]
		}
	}
	for i := int(p.led); i < len(p.parts); i++ {
		if !more {
			return false
		}
		var one string
		one, rest, more = p.cut(rest)
		if !p.parts[i].fits(one) {
			return false
		}
	}
	return p.prefix || !more
}

func (p *places) cut(text string) (one, rest string, more bool) {
	i := strings.IndexByte(text, p.separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+1:], true
}

func (one *segment) fits(text string) bool {
	switch {
	case !one.wild:
		return one.lit == text
	case one.re != nil:
		return one.re.MatchString(text)
	}
	return text != ""
}

// capture appends what the placeholders took of a text that fits, and gives what is behind the parts of a prefix.
func (p *places) capture(dst []Capture, text string) (captures []Capture, suffix string) {
	rest := p.trim(text)[len(p.lead):]
	if p.led > 0 && rest != "" {
		rest = rest[1:]
	}
	for i := int(p.led); i < len(p.parts); i++ {
		var one string
		one, rest, _ = p.cut(rest)
		if p.parts[i].name != "" {
			dst = append(dst, Capture{p.parts[i].name, one})
		}
	}
	return dst, rest
}
