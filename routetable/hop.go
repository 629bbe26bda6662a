package routetable

import (
	"net/netip"
	"strconv"
	"strings"
)

// MaxTextBytes is the longest pattern, address and expansion. A longer address of a message matches nothing.
const MaxTextBytes = 64 << 10

// reserved reports whether a scheme, in lower case, belongs to the product: DESIGN §3.
func reserved(scheme string) bool {
	switch scheme {
	case "link", "peer", "relay-conn", "event-conn", "grpc", "nats", "replay", "admin",
		"route", "topic", "rpc", "relay", "event", "web", "comp", "node":
		return true
	}
	return false
}

// longestReserved is the length of the longest reserved scheme ("relay-conn", "event-conn").
const longestReserved = 10

// ReservedScheme returns the reserved scheme that name begins with, in lower case: "topic" of "topic:orders".
func ReservedScheme(name string) (scheme string, ok bool) {
	for i := 0; i < len(name) && i <= longestReserved; i++ {
		switch c := name[i]; {
		case c|0x20 >= 'a' && c|0x20 <= 'z' || c == '-':
		case c == ':' && i > 0:
			scheme = lower(name[:i])
			if reserved(scheme) {
				return scheme, true
			}
			return "", false
		default:
			return "", false
		}
	}
	return "", false
}

// IsName reports whether the hop is a name: an address that is looked up again, not one that an outlet reaches.
func (h *Hop) IsName() bool {
	switch h.Scheme {
	case "route", "topic", "rpc", "relay", "event", "web", "comp", "node":
		return true
	}
	return false
}

// LookupName is the name that a name hop is looked up by: the plain name of route:NAME, else the canonical text.
func (h *Hop) LookupName() string {
	if h.Scheme == "route" {
		return h.Name
	}
	return h.Text
}

// parsedHop is an address taken apart, with what is to be said of it.
type parsedHop struct {
	Hop
	problem   string // why a node has no use for it although it is well formed
	warning   string // what is probably not meant
	authority int    // offset of the authority in the text
	slash     int    // offset of the slash after the authority, or the length of the text
}

// ParseHop takes an address apart:
//
//	null
//	scheme:name                                          a reserved scheme
//	[amqp[s]://][user[:password]@]host[:port][/name]     every other
//
// The rules are Messenger's: the scheme ends at a "://" before any other slash, the name begins at the first slash after it and is
// raw, userinfo ends at the first "@" and is percent-decoded, the port begins at the last colon, brackets hold an IPv6 address.
// Unlike Messenger it refuses an empty host or port, a port that is not a number up to 65535, an IPv6 address without brackets
// where one of its groups could be a port, schemes that no outlet has, and "~". The error is a *RefusedError.
func ParseHop(text string) (*Hop, error) {
	p, err := parseHop(text)
	if err != nil {
		return nil, err
	}
	if p.problem != "" {
		return nil, &RefusedError{What: p.problem, Where: "address"}
	}
	return &p.Hop, nil
}

// ValidateLiteral says what is wrong with a literal address, as an add does. An unknown scheme or a "~" is not wrong in this sense.
func ValidateLiteral(address string) error {
	_, err := parseHop(address)
	return err
}

func badAddress(offset int, what, hint string) error {
	return &RefusedError{What: what, Where: "address, column " + strconv.Itoa(offset+1), Hint: hint}
}

func parseHop(text string) (*parsedHop, error) {
	p := &parsedHop{}
	if err := p.parse(text); err != nil {
		return nil, err
	}
	return p, nil
}

// parse is parseHop into p, which is empty.
func (p *parsedHop) parse(text string) error {
	if len(text) > MaxTextBytes {
		return badAddress(0, "the address is longer than 64 KiB", "")
	}
	if text == NullAddress {
		p.Hop = Hop{Scheme: NullAddress, Text: NullAddress, Key: NullAddress}
		p.slash = len(text)
		return nil
	}
	if text == "" {
		return badAddress(0, "the address is empty", "a row that discards has the address null")
	}
	if p.parsePlain(text) {
		return nil
	}
	if scheme, ok := ReservedScheme(text); ok {
		return p.parseName(text, scheme)
	}
	return p.parseURL(text)
}

// parsePlain reads what most addresses are, amqp://host[:port][/name] in canonical form, and reports whether text is that.
func (p *parsedHop) parsePlain(text string) bool {
	const start = len("amqp://")
	if !strings.HasPrefix(text, "amqp://") {
		return false
	}
	i := start
	for i < len(text) && (text[i] >= 'a' && text[i] <= 'z' || text[i] >= '0' && text[i] <= '9' || text[i] == '.' || text[i] == '-') {
		i++
	}
	end, port := i, 5672
	if i > start && i < len(text) && text[i] == ':' {
		port = 0
		for i++; i < len(text) && text[i] >= '0' && text[i] <= '9' && port < 1<<16; i++ {
			port = 10*port + int(text[i]-'0')
		}
		if text[end+1:i] == "" || text[end+1] == '0' || port == 5672 || port >= 1<<16 {
			return false
		}
	}
	if end == start || i < len(text) && text[i] != '/' {
		return false
	}
	p.Hop = Hop{Scheme: "amqp", Host: text[start:end], Port: uint16(port), Text: text, Key: text}
	if i < len(text) {
		p.Name, p.HasName = text[i+1:], true
	}
	p.authority, p.slash = start, i
	return true
}

// parseName reads scheme:name. The scheme is reserved, so it wins over a reading as host and port.
func (p *parsedHop) parseName(text, scheme string) error {
	name := text[len(scheme)+1:]
	if name == "" && scheme != "admin" {
		return badAddress(len(scheme)+1, scheme+": without a name", "")
	}
	canonical := text
	if text[:len(scheme)] != scheme {
		canonical = scheme + ":" + name
	}
	p.Hop = Hop{Scheme: scheme, Name: name, HasName: true, Text: canonical, Key: canonical}
	p.authority, p.slash = len(text), len(text)
	if allDigits(name) && len(name) <= 5 && scheme != "link" {
		p.warning = scheme + ": is a scheme, not a host: write amqp://" + text + " if a host and port is meant"
	}
	return nil
}

// parseURL reads [scheme://][user[:password]@]host[:port][/name].
func (p *parsedHop) parseURL(text string) error {
	h := &p.Hop
	h.Scheme = "amqp"
	slash := strings.IndexByte(text, '/')
	if slash > 0 && text[slash-1] == ':' && strings.HasPrefix(text[slash:], "//") {
		h.Scheme = lower(text[:slash-1])
		p.authority = slash + 2
		slash = strings.IndexByte(text[p.authority:], '/')
		if slash >= 0 {
			slash += p.authority
		}
	}
	p.slash = len(text)
	if slash >= 0 {
		p.slash = slash
		h.Name, h.HasName = text[slash+1:], true
	}
	authority := text[p.authority:p.slash]
	at := p.authority
	if i := strings.IndexByte(authority, '@'); i >= 0 {
		p.readUserinfo(authority[:i])
		authority, at = authority[i+1:], at+i+1
	}
	port, hasPort, err := p.readHost(authority, at)
	if err != nil {
		return err
	}
	h.Port = 5672
	if h.Scheme == "amqps" {
		h.Port = 5671
	}
	if hasPort {
		at += len(authority) - len(port)
		hint := ""
		if strings.IndexByte(h.Name, '@') >= 0 && !h.HasUser {
			hint = "a / in a password is written %2F"
		} else if h.HasName && p.authority == 0 && (h.Host == "amqp" || h.Host == "amqps") {
			hint = "a scheme is followed by ://"
		}
		n, err := strconv.ParseUint(port, 10, 32)
		switch {
		case port == "":
			return badAddress(at, "the port is empty", hint)
		case !allDigits(port):
			// The text is not repeated: it may be a part of a password.
			return badAddress(at, "the port is not a number", hint)
		case err != nil || n > 65535:
			return badAddress(at, "the port is over 65535", hint)
		}
		h.Port = uint16(n)
	}
	switch {
	case strings.HasPrefix(h.Host, "~"):
		p.problem = "an address with ~ listens, which is not what a route can do"
	case h.Scheme != "amqp" && h.Scheme != "amqps":
		p.problem = "no outlet has the scheme " + strconv.Quote(h.Scheme)
	}
	p.canonical(text)
	return nil
}

// readUserinfo decodes user[:password]. As in Messenger, "%" and two more characters are one byte, and a NUL ends the text.
func (p *parsedHop) readUserinfo(info string) {
	user, pass, has := strings.Cut(info, ":")
	p.User, p.HasUser = p.decode(user), true
	if has {
		p.Password, p.HasPass = p.decode(pass), true
	}
}

func (p *parsedHop) decode(s string) string {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, 0) < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' && i+2 < len(s) {
			n := 0
			for n < 2 && isHex(s[i+1+n]) {
				n++
			}
			v, _ := strconv.ParseUint("0"+s[i+1:i+1+n], 16, 8)
			c = byte(v)
			if n < 2 {
				p.warning = "the userinfo holds a % without two hex digits: write %25"
			}
			i += 2
		}
		if c == 0 {
			break
		}
		out = append(out, c)
	}
	return string(out)
}

// readHost splits host[:port]. The offset of text in the address is at.
func (p *parsedHop) readHost(text string, at int) (port string, hasPort bool, err error) {
	host := text
	if end := strings.IndexByte(text, ']'); strings.HasPrefix(text, "[") && end > 0 {
		host = text[1:end]
		rest := text[end+1:]
		if i := strings.LastIndexByte(rest, ':'); i >= 0 {
			port, hasPort, rest = rest[i+1:], true, rest[:i]
		}
		if rest != "" {
			p.warning = "what is between ] and the port is not read"
		}
	} else {
		if strings.IndexByte(text, ':') != strings.LastIndexByte(text, ':') {
			if a, err := netip.ParseAddr(text); err == nil && a.Is6() {
				return "", false, badAddress(at, "an IPv6 address without brackets", "write [address]:port")
			}
		}
		if i := strings.LastIndexByte(text, ':'); i >= 0 {
			host, port, hasPort = text[:i], text[i+1:], true
		}
	}
	if strings.TrimPrefix(host, "~") == "" {
		return "", false, badAddress(at, "the host is empty", "")
	}
	if i := strings.IndexAny(host, "@[]"); i >= 0 {
		// Such a host has no canonical text that reads as itself, and what is before an "@" is likely a part of the userinfo.
		return "", false, badAddress(at, "the host holds "+strconv.QuoteRune(rune(host[i])), "an @ in a user name is written %40")
	}
	p.Host = lower(host)
	if strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		p.warning = "the host holds a blank or a control character"
	}
	return port, hasPort, nil
}

// canonical fills Text and Key of an amqp hop that was read from text.
func (p *parsedHop) canonical(text string) {
	var room [128]byte
	b := append(append(room[:0], p.Scheme...), "://"...)
	start := len(b)
	if strings.IndexByte(p.Host, ':') >= 0 {
		b = append(append(append(b, '['), p.Host...), ']')
	} else {
		b = append(b, p.Host...)
	}
	if (p.Scheme == "amqps" && p.Port != 5671) || (p.Scheme != "amqps" && p.Port != 5672) {
		b = strconv.AppendUint(append(b, ':'), uint64(p.Port), 10)
	}
	if p.HasName {
		b = append(append(b, '/'), p.Name...)
	}
	if !p.HasUser && !p.HasPass {
		if p.Text = text; string(b) != text {
			p.Text = string(b)
		}
		p.Key = p.Text
		return
	}
	end := string(b[start:])
	p.Text = p.Scheme + "://" + maskText + "@" + end
	key := p.Scheme + "://" + strconv.Quote(p.User)
	if p.HasPass {
		key += ":" + strconv.Quote(p.Password)
	}
	p.Key = key + "@" + end
}

// maskText stands for userinfo wherever people can see it.
const maskText = "***"

// MaskUserinfo replaces the userinfo of an address, or of a template of one, by "***". It errs on the side of hiding: a password with
// a raw slash in it is hidden too.
func MaskUserinfo(address string) string {
	if strings.IndexByte(address, '@') < 0 {
		return address
	}
	if _, ok := ReservedScheme(address); ok {
		return address
	}
	start := 0
	if i := strings.Index(address, "://"); i >= 0 && strings.IndexByte(address, '/') == i+1 {
		start = i + 3
	}
	authority, _, _ := strings.Cut(address[start:], "/")
	if i := strings.IndexByte(authority, '@'); i >= 0 {
		return address[:start] + maskText + address[start+i:]
	}
	if i := strings.LastIndexByte(authority, ':'); i >= 0 && !allDigits(authority[i+1:]) && !strings.HasPrefix(authority, "[") {
		return address[:start] + maskText + address[strings.LastIndexByte(address, '@'):]
	}
	return address
}

// lower folds ASCII letters, as names of hosts and schemes are compared; other bytes stay as they are.
func lower(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] >= 'A' && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if b[i] >= 'A' && b[i] <= 'Z' {
					b[i] |= 0x20
				}
			}
			return string(b)
		}
	}
	return s
}

func allDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// String gives the canonical text, with userinfo masked: a hop can be printed.
func (h Hop) String() string { return h.Text }
