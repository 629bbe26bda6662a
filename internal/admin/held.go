package admin

import (
	"bytes"
	"time"

	"github.com/fingerpost/fingerpost/routetable"
)

// The bounds of the snapshots that are held for clients that page over them.
const (
	maxHeld     = 8
	maxHeldIdle = 2 * time.Minute
)

// heldSnapshot is a table that a client pages over. Its token is the table's generation, which names it exactly.
type heldSnapshot struct {
	s       *routetable.Snapshot
	touched time.Time

	text map[storeForm][]byte
}

// storeForm is what STORE makes of a snapshot.
type storeForm struct{ all, masked bool }

func (h *heldSnapshot) token() uint64 { return h.s.Generation() }

// hold gives the snapshot of a token, or the present one where there is none, and keeps it for the next page.
func (c *Core) hold(a args) (*heldSnapshot, error) {
	token, given, err := a.count("snapshot")
	if err != nil {
		return nil, err
	}
	now := c.o.Now()
	current := c.table.Snapshot()
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.held[:0]
	for _, h := range c.held {
		if now.Sub(h.touched) <= maxHeldIdle {
			kept = append(kept, h)
		}
	}
	clear(c.held[len(kept):])
	c.held = kept
	if !given {
		token = current.Generation()
	}
	for _, h := range c.held {
		if h.token() == token {
			h.touched = now
			return h, nil
		}
	}
	if current.Generation() != token {
		return nil, refuse(StatusNotFound, "snapshot: %d is no longer held (it is for %v): begin again without it", token, maxHeldIdle)
	}
	if len(c.held) >= maxHeld {
		oldest := 0
		for i, h := range c.held {
			if h.touched.Before(c.held[oldest].touched) {
				oldest = i
			}
		}
		c.held = append(c.held[:oldest], c.held[oldest+1:]...)
	}
	h := &heldSnapshot{s: current, touched: now}
	c.held = append(c.held, h)
	return h, nil
}

// storeText gives the snapshot's arrow text.
func (c *Core) storeText(h *heldSnapshot, form storeForm) ([]byte, error) {
	c.mu.Lock()
	text, ok := h.text[form]
	c.mu.Unlock()
	if ok {
		return text, nil
	}
	f := h.s.File(form.all)
	if form.masked {
		for i := range f.Routes {
			f.Routes[i].Address = routetable.MaskUserinfo(f.Routes[i].Address)
		}
	}
	var b bytes.Buffer
	if err := f.WriteArrow(&b); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.text == nil {
		h.text = map[storeForm][]byte{}
	}
	h.text[form] = b.Bytes()
	return b.Bytes(), nil
}

// dropText gives the memory of a snapshot's arrow text back: its last page is out.
func (c *Core) dropText(h *heldSnapshot, form storeForm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(h.text, form)
}
