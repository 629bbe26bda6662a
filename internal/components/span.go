package components

import (
	"encoding/hex"
	"strings"

	"github.com/fingerpost/fingerpost/internal/components/proto"
)

// spanOf is the SpanContext of a request: that of its W3C trace headers. Where its trace is wanted the trace state says kf=1.
func spanOf(parent, state string, sampled bool) []byte {
	if parent == "" && !sampled {
		return nil
	}
	var trace, span []byte
	var flags byte
	if p := strings.Split(parent, "-"); len(p) >= 4 && len(p[0]) == 2 && p[0] != "ff" {
		t, err1 := hex.DecodeString(p[1])
		s, err2 := hex.DecodeString(p[2])
		f, err3 := hex.DecodeString(p[3])
		if err1 == nil && err2 == nil && err3 == nil && len(t) == 16 && len(s) == 8 && len(f) == 1 {
			trace, span, flags = t, s, f[0]
		}
	}
	if sampled || flags&1 != 0 {
		state = strings.Trim("kf=1,"+state, ",")
	}
	if len(state) > 512 {
		state = ""
	}
	return proto.AppendSpan(nil, trace, span, utf8Text(state), uint32(flags))
}
