package messenger

import (
	"strings"

	"github.com/fingerpost/fingerpost/routetable"
)

// stripUserinfo gives an address as it goes out: without user and password. All the rest is kept as written: scheme, brackets,
// "~", port, name.
//
//	[scheme://][user[:password]@]host[:port][/name]  →  [scheme://]host[:port][/name]
//
// Everything up to the last "@" before the name goes, so that a raw "@" in a password hides no part of it. An amqp URL whose password
// has a raw "/" has no host and port that can be told from it: that is an [*AddressError], not a guess. Names of a reserved scheme
// (topic:a@b) have no userinfo.
func stripUserinfo(address string) (string, error) {
	if strings.IndexByte(address, '@') < 0 {
		return address, nil
	}
	if _, ok := routetable.ReservedScheme(address); ok {
		return address, nil
	}
	start := authorityStart(address)
	authority, name, hasName := strings.Cut(address[start:], "/")
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		return address[:start] + address[start+i+1:], nil
	}
	if i := strings.LastIndexByte(authority, ':'); hasName && start > 0 && i >= 0 && strings.IndexByte(name, '@') >= 0 {
		if port := authority[i+1:]; !isPort(port) && !strings.HasSuffix(authority, "]") {
			return "", &AddressError{Address: address[:start] + "***", What: "userinfo with a raw slash: write %2F"}
		}
	}
	return address, nil
}

// authorityStart is where what follows "scheme://" begins; 0 where there is no scheme.
func authorityStart(address string) int {
	if i := strings.IndexByte(address, '/'); i > 0 && address[i-1] == ':' && strings.HasPrefix(address[i:], "//") {
		return i + 2
	}
	return 0
}

func isPort(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// isEndpoint tells whether an address that no row matches says by itself where to: an amqp URL, or a host with a port. A bare
// word is a name.
func isEndpoint(address string, hop *routetable.Hop) bool {
	if hop.Scheme != "amqp" && hop.Scheme != "amqps" {
		return false
	}
	start := authorityStart(address)
	if start > 0 {
		return true
	}
	authority, _, _ := strings.Cut(address, "/")
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	i := strings.LastIndexByte(authority, ':')
	return i >= 0 && isPort(authority[i+1:])
}
