package interop

import (
	"bytes"
	"fmt"
	"testing"
)

// messageOf is message number n of a batch, as bytes.
func messageOf(b batchOf, n int) []byte {
	return join(
		composite(propertiesSection, str(fmt.Sprintf("%s-%d", b.id, n)), null, str(b.to)),
		described(dataSection, binaryv(bodyOf(n, b.sizes[n%len(b.sizes)]))),
	)
}

// gotRaw reads a message that came as bytes.
func gotRaw(t testing.TB, payload []byte) got {
	t.Helper()
	all, err := sections(payload)
	if err != nil {
		t.Fatalf("message % x: %v", payload[:min(len(payload), 64)], err)
	}
	var g got
	var data []byte
	for _, s := range all {
		v, _, err := decode(s.raw)
		if err != nil {
			t.Fatal(err)
		}
		switch inner := v.(tagged).value; s.code {
		case propertiesSection:
			f := &frame{fields: inner.([]any)}
			g.id, g.to = f.text(0), f.text(2)
		case dataSection:
			data = append(data, inner.([]byte)...)
		}
	}
	g.size, g.sha = len(data), shaOf(data)
	return g
}

// via is the annotation that a router adds toward dialled hops.
const via = "x-opt-via"

// sameMessage checks that a message arrived as it was sent, byte for byte but for the annotation x-opt-via, and that this
// is there only where a router may add it. vias is how many routers it must name.
func sameMessage(t testing.TB, where string, sent, have []byte, vias int) {
	t.Helper()
	if vias == 0 && bytes.Equal(sent, have) {
		return
	}
	want, err := sections(sent)
	if err != nil {
		t.Fatalf("the test's own message: %v", err)
	}
	got, err := sections(have)
	if err != nil {
		t.Errorf("%s: got what is no message: % x: %v", where, have[:min(len(have), 100)], err)
		return
	}
	got, ids := withoutVia(t, got)
	if want, _ = withoutVia(t, want); ids != vias {
		t.Errorf("%s: %s names %d routers, want %d", where, via, ids, vias)
	}
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			t.Errorf("%s: section %#x is missing", where, want[i].code)
		case i >= len(want):
			t.Errorf("%s: section %#x was added: % x", where, got[i].code, got[i].raw[:min(len(got[i].raw), 100)])
		case !bytes.Equal(want[i].raw, got[i].raw):
			at := 0
			for at < min(len(want[i].raw), len(got[i].raw)) && want[i].raw[at] == got[i].raw[at] {
				at++
			}
			t.Errorf("%s: section %#x differs from byte %d:\n got % x\nwant % x", where, want[i].code, at, window(got[i].raw, at), window(want[i].raw, at))
		}
	}
}

func window(b []byte, at int) []byte { return b[max(0, at-8):min(len(b), at+40)] }

// withoutVia takes x-opt-via out of the message annotations, which are then compared by the bytes of keys and values: the
// map around them is written anew by whoever adds to it. Annotations that are left empty are none.
func withoutVia(t testing.TB, all []section) (rest []section, ids int) {
	t.Helper()
	for _, s := range all {
		if s.code != messageAnnotationsSect {
			rest = append(rest, s)
			continue
		}
		d, _ := measure(s.raw[1:])
		v := s.raw[1+d:]
		if v[0]&0xf == 1 && v[0] >= 0xc0 {
			v = v[3:]
			if s.raw[1+d] == 0xd1 {
				v = v[6:]
			}
		}
		var kept []byte
		for len(v) > 0 {
			k, err := measure(v)
			if err != nil {
				t.Fatal(err)
			}
			n, err := measure(v[k:])
			if err != nil {
				t.Fatal(err)
			}
			key, _, _ := decode(v)
			if key == symbol(via) {
				value, _, _ := decode(v[k:])
				list, ok := value.([]any)
				if !ok {
					t.Errorf("%s is no list: %v", via, value)
				}
				ids = len(list)
			} else {
				kept = append(kept, v[:k+n]...)
			}
			v = v[k+n:]
		}
		if len(kept) > 0 {
			rest = append(rest, section{s.code, kept})
		}
	}
	return rest, ids
}
