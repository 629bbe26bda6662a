package wire

// Parse reads the SASL frame body that body begins with; rest is what follows it. It copies what it keeps.
func (p *SASLMechanisms) Parse(body []byte) (rest []byte, err error) {
	r := readComposite(body, 0, CodeSASLMechanisms, "sasl-mechanisms", 1)
	present := r.n > 0 && r.i < len(r.b) && r.b[r.i] != fmtNull
	p.Mechanisms = r.symbols("sasl-server-mechanisms")
	r.need("sasl-server-mechanisms", present)
	return r.done(body)
}

// Append appends the body of the SASL frame: an array, also for one mechanism or none.
func (p *SASLMechanisms) Append(dst []byte) []byte {
	w := writeComposite(dst, CodeSASLMechanisms)
	w.wrote(appendSymbols(w.b, p.Mechanisms))
	return w.done()
}

// Parse reads the SASL frame body that body begins with; rest is what follows it. It copies what it keeps.
func (p *SASLInit) Parse(body []byte) (rest []byte, err error) {
	*p = SASLInit{}
	r := readComposite(body, 0, CodeSASLInit, "sasl-init", 3)
	var ok bool
	p.Mechanism, ok = r.symbol("mechanism")
	r.need("mechanism", ok)
	p.InitialResponse, p.HasInitialResponse = r.copied("initial-response")
	p.Hostname, _ = r.string("hostname")
	return r.done(body)
}

// Append appends the body of the SASL frame.
func (p *SASLInit) Append(dst []byte) []byte {
	w := writeComposite(dst, CodeSASLInit)
	w.symbol(p.Mechanism, true)
	w.binary(p.InitialResponse, p.HasInitialResponse || p.InitialResponse != nil)
	w.string(p.Hostname, p.Hostname != "")
	return w.done()
}

// Parse reads the SASL frame body that body begins with; rest is what follows it. It copies what it keeps.
func (p *SASLChallenge) Parse(body []byte) (rest []byte, err error) {
	r := readComposite(body, 0, CodeSASLChallenge, "sasl-challenge", 1)
	var ok bool
	p.Challenge, ok = r.copied("challenge")
	r.need("challenge", ok)
	return r.done(body)
}

// Append appends the body of the SASL frame.
func (p *SASLChallenge) Append(dst []byte) []byte {
	w := writeComposite(dst, CodeSASLChallenge)
	w.binary(p.Challenge, true)
	return w.done()
}

// Parse reads the SASL frame body that body begins with; rest is what follows it. It copies what it keeps.
func (p *SASLResponse) Parse(body []byte) (rest []byte, err error) {
	r := readComposite(body, 0, CodeSASLResponse, "sasl-response", 1)
	var ok bool
	p.Response, ok = r.copied("response")
	r.need("response", ok)
	return r.done(body)
}

// Append appends the body of the SASL frame.
func (p *SASLResponse) Append(dst []byte) []byte {
	w := writeComposite(dst, CodeSASLResponse)
	w.binary(p.Response, true)
	return w.done()
}

// Parse reads the SASL frame body that body begins with; rest is what follows it. It copies what it keeps.
func (p *SASLOutcome) Parse(body []byte) (rest []byte, err error) {
	*p = SASLOutcome{}
	r := readComposite(body, 0, CodeSASLOutcome, "sasl-outcome", 2)
	var ok bool
	p.Code, ok = r.uint8("code")
	r.need("code", ok)
	p.AdditionalData, _ = r.copied("additional-data")
	return r.done(body)
}

// Append appends the body of the SASL frame.
func (p *SASLOutcome) Append(dst []byte) []byte {
	w := writeComposite(dst, CodeSASLOutcome)
	w.uint8(p.Code, true)
	w.binary(p.AdditionalData, p.AdditionalData != nil)
	return w.done()
}
