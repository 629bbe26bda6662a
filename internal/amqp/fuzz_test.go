package amqp

import (
	"testing"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// FuzzChallenges has a server say anything to a client that logs in by SCRAM: it never proves that it knows the password.
func FuzzChallenges(f *testing.F) {
	f.Add([]byte("r=abc,s=c2FsdHNhbHQ=,i=4096"), []byte("v=AAAA"), []byte(nil))
	f.Add([]byte("r=abc,s=,i=99999999999"), []byte("e=other-error"), []byte("v="))
	f.Add([]byte("v=AAAA"), []byte(""), []byte("v=AAAA"))
	f.Add([]byte("0"), []byte("0"), []byte("v="))
	f.Fuzz(func(t *testing.T, a, b, additional []byte) {
		s := newClientSASL(&DialOptions{User: "alice", Password: "secret", PLAIN: true})
		mechanism, first, ok := s.Choose([]wire.Symbol{"PLAIN", "SCRAM-SHA-1"})
		if !ok || mechanism != "SCRAM-SHA-1" {
			t.Fatalf("chose %q, %t", mechanism, ok)
		}
		if len(a) > 0 && a[0] == 'r' { // the nonce has to be the client's for more to be looked at
			a = append(append([]byte(nil), first[len("n,,n=alice,"):]...), a[1:]...)
		}
		if _, err := s.Respond(a); err == nil {
			s.Respond(b)
		}
		var _ engine.SASLFinisher = s
		if err := s.Finish(additional); err == nil {
			t.Errorf("%q, %q, %q: the server is believed", a, b, additional)
		}
	})
}
