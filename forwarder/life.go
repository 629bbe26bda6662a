package forwarder

import (
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// A message has a life: the ttl of its header, from when it came, or its absolute-expiry-time, whichever ends first.

// headerWithTTL is the shortest header section that has a ttl or what comes behind it.
const headerWithTTL = 9

// lives finds out how long the message may live, and whether it is the first attempt.
func (m *Message) lives() {
	if h := m.scan.Header; h.End-h.Start >= headerWithTTL {
		var header wire.Header
		if _, err := header.Parse(h.Of(m.Payload)); err == nil {
			if m.first, m.tries = header.FirstAcquirer, header.DeliveryCount; header.TTL > 0 {
				m.ttl, m.until = header.TTL, m.born+int64(header.TTL)*1e6
			}
		}
	}
	if p := m.scan.Properties.Of(m.Payload); mayHaveExpiry(p) {
		if until := expiryOf(p); until != 0 && (m.until == 0 || until < m.until) {
			m.until = until
		}
	}
}

// mayHaveExpiry tells whether a properties section has as many fields as one with an absolute-expiry-time has.
func mayHaveExpiry(section []byte) bool {
	const smallUlong, list0, list8, fields = 0x53, 0x45, 0xc0, 9
	if len(section) < 6 || section[1] != smallUlong || section[3] != list8 {
		return len(section) > 3 && section[3] != list0
	}
	return section[5] >= fields
}

// expiryOf is the absolute-expiry-time, in Unix nanoseconds; 0 where there is none.
func expiryOf(section []byte) int64 {
	raw, ok, err := wire.LookupProperty(section, "absolute-expiry-time")
	if !ok || err != nil {
		return 0
	}
	if v, _, err := wire.ParseValue(raw, nil); err == nil {
		if ms, ok := v.(wire.Timestamp); ok {
			return expiryNanos(ms)
		}
	}
	return 0
}

// expiryNanos makes Unix nanoseconds of a timestamp; one before 1970 or after 2262 is the first or the last moment there is. 0 is what
// clients write that mean none.
func expiryNanos(ms wire.Timestamp) int64 {
	const last = (1<<63 - 1) / 1_000_000
	switch {
	case ms == 0:
		return 0
	case ms < 0:
		return 1
	case int64(ms) > last:
		return 1<<63 - 1
	}
	return int64(ms) * 1_000_000
}

func expiredOutcome() Outcome { return rejected(condExpired, "the message's time to live is over") }

// ownHead is what goes in front of the bare message of a copy whose header differs from the one that came: less time to live, more
// attempts, not the first to have it. It is appended to dst.
func (ln *line) ownHead(dst []byte, c *Copy, at int64) []byte {
	m := &c.in.Message
	dst = m.appendHeader(dst, c, at)
	if _, ok := ln.router(); ok {
		return m.appendAnnotations(dst, ln.n.id)
	}
	return m.appendPlain(dst)
}

// differs tells whether the copy's header is not the one that came.
func (c *Copy) differs(at int64) bool {
	m := &c.in.Message
	return c.had().attempts > 0 || c.acquired && m.first || m.ttl > 0 && at-m.born >= 1e6
}

func (m *Message) appendHeader(dst []byte, c *Copy, at int64) []byte {
	section := m.scan.Header.Of(m.Payload)
	var h wire.Header
	if len(section) > 0 {
		if _, err := h.Parse(section); err != nil {
			return append(dst, section...)
		}
	}
	h.DeliveryCount += c.had().attempts
	if c.acquired {
		h.FirstAcquirer = false
	}
	if m.ttl > 0 {
		h.TTL = max(m.ttl-uint32(min(max(at-m.born, 0)/1e6, int64(m.ttl))), 1)
	}
	return h.Append(dst)
}
