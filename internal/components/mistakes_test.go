package components

import "testing"

// What is wrong with components.yaml is told in the words of its keys, without what it holds.
func TestMistakesOfAFileAreToldInItsWords(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"platfrom: p", `line 1: unknown key "platfrom" of Objects`},
		{"platform: p\ncomponents: {a: s3cret}", "line 2: a map does not fit here"},
		{"platform: [s3cret]", "line 1: a list does not fit here"},
		{"components:\n- {ap: x}", `line 2: unknown key "ap" of Identity`},
		{"a: 1\nb: 1\nc: 1\nd: 1\ne: 1", `line 1: unknown key "a" of Objects; line 2: unknown key "b" of Objects; line 3: unknown key "c" of Objects; and 2 more`},
	} {
		if _, err := ParseObjects([]byte(c.text)); err == nil || err.Error() != c.want {
			t.Errorf("%q: got %v, want %s", c.text, err, c.want)
		}
	}
}
