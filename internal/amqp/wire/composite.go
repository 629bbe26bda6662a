package wire

import "math"

// Parse reads the performative that body begins with; rest is what follows it. It copies what it keeps.
func (p *Open) Parse(body []byte) (rest []byte, err error) {
	*p = Open{MaxFrameSize: math.MaxUint32, ChannelMax: math.MaxUint16}
	r := readComposite(body, 0, CodeOpen, "open", 10)
	var ok bool
	p.ContainerID, ok = r.string("container-id")
	r.need("container-id", ok)
	p.Hostname, _ = r.string("hostname")
	if v, ok := r.uint32("max-frame-size"); ok {
		p.MaxFrameSize = v
	}
	if v, ok := r.uint16("channel-max"); ok {
		p.ChannelMax = v
	}
	p.IdleTimeout, _ = r.uint32("idle-time-out")
	p.OutgoingLocales = r.symbols("outgoing-locales")
	p.IncomingLocales = r.symbols("incoming-locales")
	p.OfferedCapabilities = r.symbols("offered-capabilities")
	p.DesiredCapabilities = r.symbols("desired-capabilities")
	p.Properties = r.fields("properties")
	return r.done(body)
}

// Append appends the performative, without a frame header. As in all performatives, text that may not be sent is
// repaired (U+FFFD in strings, '?' in symbols) and a map that [AppendValue] refuses is sent as null.
func (p *Open) Append(dst []byte) []byte {
	w := writeComposite(dst, CodeOpen)
	w.string(p.ContainerID, true)
	w.string(p.Hostname, p.Hostname != "")
	w.uint32(p.MaxFrameSize, p.MaxFrameSize != math.MaxUint32 && p.MaxFrameSize != 0)
	w.uint16(p.ChannelMax, p.ChannelMax != math.MaxUint16)
	w.uint32(p.IdleTimeout, p.IdleTimeout != 0)
	w.symbols(p.OutgoingLocales)
	w.symbols(p.IncomingLocales)
	w.symbols(p.OfferedCapabilities)
	w.symbols(p.DesiredCapabilities)
	w.fields(p.Properties)
	return w.done()
}

// Parse reads the performative that body begins with; rest is what follows it. It copies what it keeps.
func (p *Begin) Parse(body []byte) (rest []byte, err error) {
	*p = Begin{HandleMax: math.MaxUint32}
	r := readComposite(body, 0, CodeBegin, "begin", 8)
	var ok bool
	p.RemoteChannel, p.HasRemoteChannel = r.uint16("remote-channel")
	p.NextOutgoingID, ok = r.uint32("next-outgoing-id")
	r.need("next-outgoing-id", ok)
	p.IncomingWindow, ok = r.uint32("incoming-window")
	r.need("incoming-window", ok)
	p.OutgoingWindow, ok = r.uint32("outgoing-window")
	r.need("outgoing-window", ok)
	if v, ok := r.uint32("handle-max"); ok {
		p.HandleMax = v
	}
	p.OfferedCapabilities = r.symbols("offered-capabilities")
	p.DesiredCapabilities = r.symbols("desired-capabilities")
	p.Properties = r.fields("properties")
	return r.done(body)
}

// Append appends the performative, without a frame header.
func (p *Begin) Append(dst []byte) []byte {
	w := writeComposite(dst, CodeBegin)
	w.uint16(p.RemoteChannel, p.HasRemoteChannel)
	w.uint32(p.NextOutgoingID, true)
	w.uint32(p.IncomingWindow, true)
	w.uint32(p.OutgoingWindow, true)
	w.uint32(p.HandleMax, p.HandleMax != math.MaxUint32)
	w.symbols(p.OfferedCapabilities)
	w.symbols(p.DesiredCapabilities)
	w.fields(p.Properties)
	return w.done()
}

// Parse reads the performative that body begins with; rest is what follows it. It copies what it keeps.
func (p *Attach) Parse(body []byte) (rest []byte, err error) {
	*p = Attach{SndSettleMode: SenderMixed}
	r := readComposite(body, 0, CodeAttach, "attach", 14)
	p.read(&r)
	return r.done(body)
}

func (p *Attach) read(r *reader) {
	var ok bool
	p.Name, ok = r.string("name")
	r.need("name", ok)
	p.Handle, ok = r.uint32("handle")
	r.need("handle", ok)
	role, ok := r.boolean("role")
	r.need("role", ok)
	p.Role = Role(role)
	if v, ok := r.choice("snd-settle-mode", SenderMixed); ok {
		p.SndSettleMode = v
	}
	p.RcvSettleMode, _ = r.choice("rcv-settle-mode", ReceiverSecond)
	if sub, ok := r.composite("source", CodeSource, "source", 11); ok {
		p.Source = &Source{}
		p.Source.read(&sub)
		r.adopt(&sub)
	}
	if isCoordinator(r) {
		sub, _ := r.composite("target", CodeCoordinator, "coordinator", 1)
		sub.symbols("capabilities")
		p.Coordinator = true
		r.adopt(&sub)
	} else if sub, ok := r.composite("target", CodeTarget, "target", 7); ok {
		p.Target = &Target{}
		p.Target.read(&sub)
		r.adopt(&sub)
	}
	if r.n > 0 && r.i < len(r.b) && r.b[r.i] != fmtNull && r.b[r.i] != fmtMap8 && r.b[r.i] != fmtMap32 {
		r.wrong("unsettled", "map")
	}
	if raw := r.raw("unsettled"); raw != nil {
		p.Unsettled = append([]byte(nil), raw...)
	}
	p.IncompleteUnsettled, _ = r.boolean("incomplete-unsettled")
	p.InitialDeliveryCount, p.HasInitialDeliveryCount = r.uint32("initial-delivery-count")
	p.MaxMessageSize, _ = r.uint64("max-message-size")
	p.OfferedCapabilities = r.symbols("offered-capabilities")
	p.DesiredCapabilities = r.symbols("desired-capabilities")
	p.Properties = r.fields("properties")
}

func isCoordinator(r *reader) bool {
	if r.n == 0 {
		return false
	}
	code, _, bad := descriptor(r.b, r.i)
	return bad == "" && code == CodeCoordinator
}

// Append appends the performative, without a frame header.
func (p *Attach) Append(dst []byte) []byte {
	w := writeComposite(dst, CodeAttach)
	w.string(p.Name, true)
	w.uint32(p.Handle, true)
	w.boolean(bool(p.Role), true)
	w.uint8(p.SndSettleMode, p.SndSettleMode != SenderMixed)
	w.uint8(p.RcvSettleMode, p.RcvSettleMode != ReceiverFirst)
	if p.Source != nil {
		w.wrote(p.Source.Append(w.b))
	} else {
		w.null()
	}
	switch {
	case p.Coordinator:
		w.wrote(append(appendDescriptor(w.b, CodeCoordinator), fmtList0))
	case p.Target != nil:
		w.wrote(p.Target.Append(w.b))
	default:
		w.null()
	}
	w.raw(p.Unsettled)
	w.boolean(true, p.IncompleteUnsettled)
	w.uint32(p.InitialDeliveryCount, p.HasInitialDeliveryCount || p.Role == RoleSender)
	w.uint64(p.MaxMessageSize, p.MaxMessageSize != 0)
	w.symbols(p.OfferedCapabilities)
	w.symbols(p.DesiredCapabilities)
	w.fields(p.Properties)
	return w.done()
}

// Parse reads the source that body begins with; rest is what follows it. It copies what it keeps.
func (p *Source) Parse(body []byte) (rest []byte, err error) {
	r := readComposite(body, 0, CodeSource, "source", 11)
	p.read(&r)
	return r.done(body)
}

func (p *Source) read(r *reader) {
	*p = Source{ExpiryPolicy: ExpireSessionEnd}
	p.Address, p.HasAddress = r.string("address")
	p.Durable = durability(r)
	p.ExpiryPolicy = expiry(r)
	p.Timeout, _ = r.uint32("timeout")
	p.Dynamic, _ = r.boolean("dynamic")
	p.DynamicNodeProperties = r.fields("dynamic-node-properties")
	p.DistributionMode, _ = r.symbol("distribution-mode")
	p.Filter = r.fields("filter")
	if raw := r.state("default-outcome"); raw != nil {
		p.DefaultOutcome = append([]byte(nil), raw...)
	}
	p.Outcomes = r.symbols("outcomes")
	p.Capabilities = r.symbols("capabilities")
}

func durability(r *reader) uint32 {
	at := r.i
	v, _ := r.uint32("durable")
	if v > 2 {
		r.fail(at, "durable", "value is not defined")
	}
	return v
}

func expiry(r *reader) Symbol {
	at := r.i
	v, ok := r.symbol("expiry-policy")
	switch v {
	case ExpireLinkDetach, ExpireSessionEnd, ExpireConnectionClose, ExpireNever:
		return v
	}
	if ok {
		r.fail(at, "expiry-policy", "value is not defined")
	}
	return ExpireSessionEnd
}

// Append appends the source as a described list.
func (p *Source) Append(dst []byte) []byte {
	w := writeComposite(dst, CodeSource)
	w.string(p.Address, p.HasAddress || p.Address != "")
	w.uint32(p.Durable, p.Durable != 0)
	w.symbol(p.ExpiryPolicy, p.ExpiryPolicy != "" && p.ExpiryPolicy != ExpireSessionEnd)
	w.uint32(p.Timeout, p.Timeout != 0)
	w.boolean(true, p.Dynamic)
	w.fields(p.DynamicNodeProperties)
	w.symbol(p.DistributionMode, p.DistributionMode != "")
	w.fields(p.Filter)
	w.raw(p.DefaultOutcome)
	w.symbols(p.Outcomes)
	w.symbols(p.Capabilities)
	return w.done()
}

// Parse reads the target that body begins with; rest is what follows it. It copies what it keeps.
func (p *Target) Parse(body []byte) (rest []byte, err error) {
	r := readComposite(body, 0, CodeTarget, "target", 7)
	p.read(&r)
	return r.done(body)
}

func (p *Target) read(r *reader) {
	*p = Target{}
	p.Address, p.HasAddress = r.string("address")
	p.Durable = durability(r)
	p.ExpiryPolicy = expiry(r)
	p.Timeout, _ = r.uint32("timeout")
	p.Dynamic, _ = r.boolean("dynamic")
	p.DynamicNodeProperties = r.fields("dynamic-node-properties")
	p.Capabilities = r.symbols("capabilities")
}

// Append appends the target as a described list.
func (p *Target) Append(dst []byte) []byte {
	w := writeComposite(dst, CodeTarget)
	w.string(p.Address, p.HasAddress || p.Address != "")
	w.uint32(p.Durable, p.Durable != 0)
	w.symbol(p.ExpiryPolicy, p.ExpiryPolicy != "" && p.ExpiryPolicy != ExpireSessionEnd)
	w.uint32(p.Timeout, p.Timeout != 0)
	w.boolean(true, p.Dynamic)
	w.fields(p.DynamicNodeProperties)
	w.symbols(p.Capabilities)
	return w.done()
}

// Parse reads the performative that body begins with; rest is what follows it. It copies what it keeps.
func (p *Detach) Parse(body []byte) (rest []byte, err error) {
	*p = Detach{}
	r := readComposite(body, 0, CodeDetach, "detach", 3)
	var ok bool
	p.Handle, ok = r.uint32("handle")
	r.need("handle", ok)
	p.Closed, _ = r.boolean("closed")
	p.Error = r.error("error")
	return r.done(body)
}

// Append appends the performative, without a frame header.
func (p *Detach) Append(dst []byte) []byte {
	w := writeComposite(dst, CodeDetach)
	w.uint32(p.Handle, true)
	w.boolean(true, p.Closed)
	w.error(p.Error)
	return w.done()
}

// Parse reads the performative that body begins with; rest is what follows it. It copies what it keeps.
func (p *End) Parse(body []byte) (rest []byte, err error) {
	r := readComposite(body, 0, CodeEnd, "end", 1)
	p.Error = r.error("error")
	return r.done(body)
}

// Append appends the performative, without a frame header.
func (p *End) Append(dst []byte) []byte {
	w := writeComposite(dst, CodeEnd)
	w.error(p.Error)
	return w.done()
}

// Parse reads the performative that body begins with; rest is what follows it. It copies what it keeps.
func (p *Close) Parse(body []byte) (rest []byte, err error) {
	r := readComposite(body, 0, CodeClose, "close", 1)
	p.Error = r.error("error")
	return r.done(body)
}

// Append appends the performative, without a frame header.
func (p *Close) Append(dst []byte) []byte {
	w := writeComposite(dst, CodeClose)
	w.error(p.Error)
	return w.done()
}

// Parse reads the error that body begins with; rest is what follows it. It copies what it keeps.
func (e *Error) Parse(body []byte) (rest []byte, err error) {
	*e = Error{}
	r := readComposite(body, 0, CodeError, "error", 3)
	e.read(&r)
	return r.done(body)
}

// Append appends the error as a described list.
func (e *Error) Append(dst []byte) []byte {
	w := writeComposite(dst, CodeError)
	w.symbol(e.Condition, true)
	w.string(e.Description, e.Description != "")
	w.fields(e.Info)
	return w.done()
}
