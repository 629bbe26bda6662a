package load

import "time"

// Result is what a run gave.
type Result struct {
	Senders   int     `json:"senders"`
	Receivers int     `json:"receivers"`
	Addresses int     `json:"addresses"`
	Size      int     `json:"size"` // bytes of a body
	Settled   bool    `json:"settled"`
	Anonymous bool    `json:"anonymous"`
	Window    int     `json:"window,omitempty"`
	Rate      float64 `json:"rate,omitempty"` // messages a second that were asked for

	Peer  *Figures `json:"peer"`
	Relay *Figures `json:"relay,omitempty"`
	Ratio *Ratio   `json:"ratio,omitempty"` // the peer's figures divided by the relay's
}

// Figures are of one thing that carried the load. Those up to RSS are of the measured time, the others of the whole run.
type Figures struct {
	Seconds   float64  `json:"seconds"`
	Messages  uint64   `json:"messages"`
	Copies    uint64   `json:"copies"`
	PerSecond float64  `json:"messages_per_second"`
	CopiesPer float64  `json:"copies_per_second"`
	MBPer     float64  `json:"megabytes_per_second"` // of bodies received
	PerMsg    float64  `json:"cpu_us_per_message,omitempty"`
	PerCopy   float64  `json:"cpu_us_per_copy,omitempty"`
	CPU       float64  `json:"cpu_percent,omitempty"` // of one processor
	RSS       int64    `json:"rss_bytes,omitempty"`   // at the end
	Latency   *Latency `json:"latency,omitempty"`

	Sent       uint64 `json:"sent"`
	Accepted   uint64 `json:"accepted"`
	Rejected   uint64 `json:"rejected"`
	Released   uint64 `json:"released"`
	Modified   uint64 `json:"modified"`
	Unanswered uint64 `json:"unanswered"`
	Lost       uint64 `json:"lost"`       // copies that never came
	Duplicates uint64 `json:"duplicates"` // copies that came again
	Strays     uint64 `json:"strays"`     // of somebody else
}

// Ratio compares with the relay. What was not measured is 0.
type Ratio struct {
	PerMsg  float64 `json:"cpu_per_message,omitempty"`
	PerCopy float64 `json:"cpu_per_copy,omitempty"`
	P50     float64 `json:"p50,omitempty"`
	P99     float64 `json:"p99,omitempty"`
}

func figures(a, b sample, o *Options) *Figures {
	f := &Figures{Messages: b.sent - a.sent, Copies: b.copies - a.copies, Seconds: time.Duration(b.at - a.at).Seconds(), RSS: b.rss}
	cpu := float64(b.cpu-a.cpu) / float64(time.Microsecond)
	f.PerSecond, f.CopiesPer = float64(f.Messages)/f.Seconds, float64(f.Copies)/f.Seconds
	f.MBPer = f.CopiesPer * float64(o.Size) / 1e6
	if o.PID != 0 {
		f.PerMsg, f.PerCopy = over(cpu, float64(f.Messages)), over(cpu, float64(f.Copies))
		f.CPU = cpu / f.Seconds / 1e4
	}
	return f
}

func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func (x *Result) compare() {
	p, r := x.Peer, x.Relay
	x.Ratio = &Ratio{PerMsg: over(p.PerMsg, r.PerMsg), PerCopy: over(p.PerCopy, r.PerCopy)}
	if p.Latency != nil && r.Latency != nil {
		x.Ratio.P50, x.Ratio.P99 = over(p.Latency.P50, r.Latency.P50), over(p.Latency.P99, r.Latency.P99)
	}
}
