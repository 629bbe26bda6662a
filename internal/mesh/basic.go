package mesh

import (
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// credentials reads an Authorization header:
//
//	["Basic"] base64(NAME [":" SECRET])
//
// An empty secret is none.
func credentials(header string) (name, secret string, ok bool) {
	words := strings.Fields(header)
	if len(words) == 2 && strings.EqualFold(words[0], "Basic") {
		words = words[1:]
	}
	if len(words) != 1 {
		return "", "", false
	}
	text, err := base64.StdEncoding.DecodeString(words[0])
	if err != nil {
		return "", "", false
	}
	name, secret, _ = strings.Cut(string(text), ":")
	return name, secret, true
}

// authenticate tells who an Authorization header says that it is: empty is anybody. refusal says why it is not taken. With a secret, it must be that of the name;
// without, the name must have no key, and the router take those who have proven nothing. A public key cannot be proven by HTTP.
func (m *Mesh) authenticate(header string) (name string, attested bool, refusal string) {
	if header == "" {
		if m.o.Authenticated {
			return "", false, "authentication failed"
		}
		return "", false, ""
	}
	name, secret, ok := credentials(header)
	name = cleanName(name)
	if !ok || badName(name) != "" {
		return "", false, "authentication failed"
	}
	key, err := m.keys.find(name)
	switch {
	case err != nil:
		m.o.Log.Error("the key of a component cannot be read", "component", name, "error", err)
		return "", false, "authentication failed"
	case secret == "" && (key != nil || m.o.Authenticated):
		return "", false, "authentication failed"
	case secret != "" && (key == nil || key.secret == "" || subtle.ConstantTimeCompare([]byte(key.secret), []byte(secret)) != 1):
		return "", false, "authentication failed"
	}
	if t := m.twinOf(name); t != nil && t.open.Load() {
		return "", false, "already connected"
	}
	return name, secret != "", ""
}

// isOfThisMachine tells whether a request was made by a program of this machine: not by a page in a browser here, nor passed on by a proxy.
func isOfThisMachine(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !from.Addr().Unmap().IsLoopback() {
		return false
	}
	for _, h := range []string{"Origin", "Referer", "Sec-Fetch-Site", "Forwarded", "X-Forwarded-For", "Via"} {
		if r.Header.Get(h) != "" {
			return false
		}
	}
	host := r.Host // a page may have had its name lead here
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err = netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost"
}
