package components

import (
	"encoding/hex"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// spanOf is the SpanContext of a request: that of its W3C trace headers. Where its trace is wanted the trace state says kf=1.
func spanOf(parent, state string, sampled bool) []byte {
	if parent == "" && !sampled {
		return nil
	}
	var b []byte
	var flags byte
	if p := strings.Split(parent, "-"); len(p) >= 4 && len(p[0]) == 2 && p[0] != "ff" {
		trace, err1 := hex.DecodeString(p[1])
		span, err2 := hex.DecodeString(p[2])
		f, err3 := hex.DecodeString(p[3])
		if err1 == nil && err2 == nil && err3 == nil && len(trace) == 16 && len(span) == 8 && len(f) == 1 {
			b, flags = appendBytes(appendBytes(b, 1, trace), 2, span), f[0]
		}
	}
	if sampled || flags&1 != 0 {
		state = strings.Trim("kf=1,"+state, ",")
	}
	if len(state) <= 512 {
		b = appendText(b, 3, state)
	}
	if flags != 0 {
		b = protowire.AppendFixed32(protowire.AppendTag(b, 4, protowire.Fixed32Type), uint32(flags))
	}
	return b
}
