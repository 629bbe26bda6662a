package relay

import "testing"

func TestAddress(t *testing.T) {
	m := newMint()
	good := string(m.issue(nil, 7, "acme", "echo"))
	if len(good) != addressLength {
		t.Fatalf("%q has %d characters", good, len(good))
	}
	if c, ok := m.connection([]byte(good), "acme", "echo"); !ok || c != 7 {
		t.Fatalf("%q leads to %d, %v", good, c, ok)
	}
	if string(m.issue(nil, 7, "acme", "echo")) != good {
		t.Error("one connection has two addresses on a topic")
	}
	others := map[string]string{
		"another connection's": string(m.issue(nil, 8, "acme", "echo")), "another topic's": string(m.issue(nil, 7, "acme", "echo2")),
		"another domain's": string(m.issue(nil, 7, "acm", "eecho")), "another process's": string(newMint().issue(nil, 7, "acme", "echo")),
	}
	for whose, a := range others {
		if a == good {
			t.Errorf("%s address is the same", whose)
		}
	}
	for _, whose := range []string{"another topic's", "another domain's", "another process's"} {
		if _, ok := m.connection([]byte(others[whose]), "acme", "echo"); ok {
			t.Errorf("%s address is taken", whose)
		}
	}
	for i := range good {
		for _, c := range []byte("Aa0-_=.\n\x00") {
			bent := []byte(good)
			if bent[i] == c {
				continue
			}
			bent[i] = c
			if _, ok := m.connection(bent, "acme", "echo"); ok {
				t.Errorf("%q is taken", bent)
			}
		}
	}
	for _, a := range []string{"", "nobody", good + "=", good[:43], good + "\n", "\n" + good[:43]} {
		if _, ok := m.connection([]byte(a), "acme", "echo"); ok {
			t.Errorf("%q is taken", a)
		}
	}
}
