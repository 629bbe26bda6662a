package mesh

import "bytes"

// login is how far a connection has come in saying who is at its other end (rembus.md, 3). It is pure: what it needs to know it is given.
//
//	nobody --identity, no key--> named
//	nobody --identity, a key--> challenged --attestation--> named and attested
//	challenged (a router that takes nobody without) --attestation--> named and attested
type login struct {
	name      string // who it is; empty: nobody yet
	attested  bool   // it has proven that
	strict    bool   // the router takes nobody who has not
	challenge []byte // that is to be answered
	asked     string // who is to answer it; empty: anybody
}

// reply is the answer to a step of the login.
type reply struct {
	status Status
	reason string // of a refusal
	proof  []byte // of a challenge: what is to be signed
	close  bool   // the connection ends behind the answer
	named  bool   // it has its name now
}

func refusal(reason string) reply { return reply{status: StatusError, reason: reason} }

// identity takes a name that is said. key is the name's, nil where it has none; nonce is a challenge that nobody has seen.
func (l *login) identity(name string, key *key, keyErr error, nonce []byte) reply {
	switch bad := badName(name); {
	case name == "":
		return refusal("empty cid")
	case bad != "":
		return refusal("bad cid: " + bad)
	case l.name != "":
		r := refusal("already identified")
		r.close = true
		return r
	case keyErr != nil:
		return refusal("authentication failed")
	}
	if key == nil && !l.strict {
		l.name, l.challenge = name, nil
		return reply{named: true}
	}
	l.asked = name
	if l.challenge == nil {
		l.challenge = nonce
	}
	return reply{status: StatusChallenge, proof: l.challenge}
}

// attest takes the answer to a challenge.
func (l *login) attest(name string, key *key, keyErr error, proof []byte) reply {
	challenge, asked := l.challenge, l.asked
	if challenge == nil || l.name != "" {
		return refusal("no challenge was sent")
	}
	l.challenge, l.asked = nil, "" // it is answered once
	switch {
	case badName(name) != "" || asked != "" && asked != name || keyErr != nil || key == nil || !key.proves(challenge, name, proof):
		r := refusal("authentication failed")
		r.close = true
		return r
	}
	l.name, l.attested = name, true
	return reply{named: true}
}

// demand is the challenge that a strict router sends first.
func (l *login) demand(nonce []byte) { l.strict, l.challenge = true, bytes.Clone(nonce) }

// mayRegister says whether a name may be given a key, and why not. pin is the tenant's, known whether there is one; taken that the name has a key.
func (l *login) mayRegister(name, pin, given string, known, taken bool) (status Status, reason string) {
	switch {
	case l.name != "":
		return StatusError, "invalid operation"
	case badName(name) != "" || !isNamed(name):
		return StatusError, "bad cid"
	case !known:
		return StatusError, "tenant [" + tenantOf(name) + "] not enabled"
	case pin == "" || pin != given:
		return StatusError, "wrong tenant/pin"
	case taken:
		return StatusNameTaken, "name " + name + " not available for registration"
	}
	return StatusOK, ""
}
