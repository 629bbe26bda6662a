package routetable

import "testing"

// The literal beginning of a pattern is compared at once; part by part it comes to the same.
func TestTheBeginningOfAPatternIsItsParts(t *testing.T) {
	texts := []string{""}
	for i := 0; len(texts[i]) < 5; i++ {
		for _, c := range []string{"a", "b", "/"} {
			texts = append(texts, texts[i]+c)
		}
	}
	for _, pattern := range []string{"a", "/a/", "a/b", "ab", "a/{x}", "a/b/{x}", "{x}", "{x}/a", "a/{x}/b", "a/{x:a+}", "/a//b"} {
		for _, prefix := range []bool{false, true} {
			var fast places
			if err := fast.parse(pattern, '/', prefix); err != nil {
				t.Fatal(err)
			}
			slow := fast
			slow.led, slow.lead = 0, ""
			for _, text := range texts {
				got, want := fast.match(text, true), slow.match(text, true)
				if got != want {
					t.Fatalf("%s on %q, prefix %v: got %v, want %v", pattern, text, prefix, got, want)
				}
				if !want {
					continue
				}
				took, rest := fast.capture(nil, text)
				all, left := slow.capture(nil, text)
				if rest != left || len(took) != len(all) || len(all) > 0 && took[0] != all[0] {
					t.Fatalf("%s on %q, prefix %v: got %v and %q, want %v and %q", pattern, text, prefix, took, rest, all, left)
				}
			}
		}
	}
}
