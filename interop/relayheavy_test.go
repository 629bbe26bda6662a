//go:build heavy

package interop

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// The slow cases too, and nothing of what was sent is in the log or in the state directory.
func TestRelayConformanceSlow(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	r := startRelay(t, "--state", state, "--log-level", "debug")
	log := filepath.Join(t.TempDir(), "log")
	r.drive(t, "--slow", "--scan", state)
	if err := os.WriteFile(log, []byte(r.log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(r.log.String(), "canary-") {
		t.Error("data is in the log")
	}
}

type crowdOp struct{ Op, Topic, ID, From, Ref, Code string }

// server serves topics and answers, until it is killed.
func (r *relayRouter) server(t testing.TB, topics []string) *relayPeer {
	p := r.dial(t, "cf-server-Lw0e", nil)
	var list []string
	for _, topic := range topics {
		list = append(list, fmt.Sprintf(`{"op":"serve","topic":%q}`, topic))
	}
	p.send("[" + strings.Join(list, ",") + "]")
	return p
}

// life is the life of a server.
type life struct{ killed atomic.Int64 } // Unix nanoseconds; 0: it lives

// relayReading is a request that a server has read.
type relayReading struct {
	server *life
	at     time.Time
}

// survived tells whether the server lived on for long: then it has answered.
func (r relayReading) survived() bool {
	killed := r.server.killed.Load()
	return killed == 0 || time.Unix(0, killed).Sub(r.at) > 3*time.Second
}

func (p *relayPeer) answer(l *life, read *sync.Map) {
	for {
		m, more, err := p.ws.Next()
		if err != nil {
			return
		}
		var ops []crowdOp
		if json.Unmarshal(m.Data, &ops) != nil {
			return
		}
		p.ws.Lock()
		for _, o := range ops {
			if o.Op == "head" {
				read.Store(o.ID, relayReading{l, time.Now()})
				p.ws.Append(true, fmt.Appendf(nil, `[{"op":"head","topic":%q,"id":%q,"to":%q,"done":true}]`, o.Topic, o.ID, o.From))
			}
		}
		if !more {
			p.ws.Flush()
		}
		p.ws.Unlock()
	}
}

// A thousand clients ask fifty topics whose servers are killed again and again. Every op is answered, and a request that its server has taken is
// answered too, unless that server was killed.
func TestRelayServersThatAreKilled(t *testing.T) {
	t.Parallel()
	const clients, topics, requests, servers = 1000, 50, 20, 20
	r := startRelay(t, "--log-level", "warn")
	var read sync.Map // relayReading by id
	ended := make(chan struct{})
	var serving sync.WaitGroup
	for s := range servers {
		serving.Go(func() {
			var mine []string
			for i := range 2 * topics / servers {
				mine = append(mine, fmt.Sprintf("t%d", (s*2*topics/servers+i)%topics))
			}
			for {
				p := r.server(t, mine)
				var answering sync.WaitGroup
				l := &life{}
				answering.Go(func() { p.answer(l, &read) })
				select {
				case <-ended:
					p.ws.Abort(os.ErrClosed)
					answering.Wait()
					return
				case <-time.After(time.Duration(300+rand.IntN(6000)) * time.Millisecond): // it is killed
				}
				l.killed.Store(time.Now().UnixNano())
				p.ws.Abort(os.ErrClosed)
				answering.Wait()
				p.ws.End(0, "")
			}
		})
	}
	var asking sync.WaitGroup
	var answered, refused, lost atomic.Int64
	for c := range clients {
		asking.Go(func() {
			p := r.dial(t, "cf-client-b91X", nil)
			defer p.ws.End(websocket.Normal, "")
			for n := range requests {
				id := fmt.Sprintf("%d-%d", c, n)
				switch err := p.request(fmt.Sprintf("t%d", rand.IntN(topics)), id); err {
				case nil:
					answered.Add(1)
				case errRefused:
					refused.Add(1)
				case errLost:
					lost.Add(1)
					if x, ok := read.Load(id); ok && x.(relayReading).survived() {
						t.Errorf("request %s: a server that lived on has read it, and no answer came", id)
					}
					return // its connection was given up to wait no longer
				default:
					t.Errorf("client %d, request %d: %v", c, n, err)
					return
				}
			}
		})
	}
	asking.Wait()
	close(ended)
	serving.Wait()
	t.Logf("%d answered, %d refused, %d lost with their server", answered.Load(), refused.Load(), lost.Load())
	if answered.Load() < clients {
		t.Error("too few requests were answered")
	}
}

var errRefused, errLost = fmt.Errorf("refused"), fmt.Errorf("lost")

// request asks and waits for the end of the request.
func (p *relayPeer) request(topic, id string) error {
	p.send(fmt.Sprintf(`[{"op":"head","topic":%q,"id":%q,"done":true,"ref":%q}]`, topic, id, id))
	taken := false
	timer := time.AfterFunc(10*time.Second, func() { p.ws.Abort(os.ErrDeadlineExceeded) })
	defer timer.Stop()
	for done := false; !done || !taken; {
		m, _, err := p.ws.Next()
		if err != nil {
			if taken {
				return errLost
			}
			return fmt.Errorf("the op was never answered: %w", err)
		}
		var ops []crowdOp
		if err := json.Unmarshal(m.Data, &ops); err != nil {
			return err
		}
		for _, o := range ops {
			switch {
			case o.ID != id:
				return fmt.Errorf("an op of another request: %+v", o)
			case o.Op == "head:error":
				return errRefused
			case o.Op == "head:ok":
				taken = true
			case o.Op == "head":
				done = true
			}
		}
	}
	return nil
}
