package mesh

import (
	"crypto/rand"
	"encoding/hex"
	"net/url"
	"strings"
)

// maxName is the longest name of a component, and of a topic.
const maxName = 4 << 10

// newName is a name for who gives none: a random UUID (RFC 9562, version 4), which Rembus takes as anonymous.
func newName() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// isNamed tells whether a component of that name keeps what it has between its connections: it is no UUID and not all digits.
func isNamed(name string) bool {
	if strings.Trim(name, "0123456789") == "" {
		return false
	}
	if len(name) != 36 {
		return true
	}
	for i := 0; i < len(name); i++ {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (name[i] == '-') || !dash && !isHex(name[i]) {
			return true
		}
	}
	return false
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

// tenantOf is what follows the first dot of a name, "." where there is none. Of a rid of a pool, NAME@URL, the name counts.
func tenantOf(name string) string {
	if at, _, ok := strings.Cut(name, "://"); ok {
		if i := strings.LastIndexByte(at, '@'); i >= 0 {
			name = name[:i]
		}
	}
	if _, tenant, ok := strings.Cut(name, "."); ok && tenant != "" {
		return tenant
	}
	return "."
}

// cleanName gives the name that an identity means, which may be a whole URL: its path, without a slash on either side.
func cleanName(name string) string {
	if strings.Contains(name, "://") || strings.HasPrefix(name, "//") {
		u, err := url.Parse(name)
		if err != nil {
			return ""
		}
		name = u.Path
	}
	return strings.TrimSuffix(strings.TrimPrefix(name, "/"), "/")
}

// badName says what is wrong with a name or a topic, empty where nothing is.
func badName(name string) string {
	switch {
	case name == "":
		return "empty"
	case len(name) > maxName:
		return "too long"
	case name == "." || name == "..":
		return "not a name"
	}
	for i := 0; i < len(name); i++ {
		if name[i] < 0x20 || name[i] == 0x7f {
			return "control characters"
		}
	}
	return ""
}

// isSpace tells whether a topic is a pattern.
func isSpace(topic string) bool { return strings.IndexByte(topic, '*') >= 0 }
