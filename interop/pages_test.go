//go:build heavy

package interop

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	events "github.com/fingerpost/fingerpost/messenger/event"
	"github.com/fingerpost/fingerpost/messenger/relay"
)

// pageLook is what a page shows in Chromium.
type pageLook struct {
	Title, State        string
	Boxes, Rows, Errors []string
	Edges, Wide         int
}

func (p *process) look() (l pageLook) {
	p.t.Helper()
	line := p.line()
	if err := json.Unmarshal([]byte(line), &l); err != nil {
		p.t.Fatalf("%q: %v", line, err)
	}
	if l.State != "live" || len(l.Errors) > 0 || l.Wide > 0 {
		p.t.Errorf("the page is %s, %d pixels too wide, with the errors %q", l.State, l.Wide, l.Errors)
	}
	return l
}

func (l pageLook) shows(t *testing.T, boxes ...string) {
	t.Helper()
	for _, want := range boxes {
		if !slices.ContainsFunc(l.Boxes, func(b string) bool { return strings.Contains(b, want) }) {
			t.Errorf("no box has %q: %q", want, l.Boxes)
		}
	}
}

// Components, a relay client, a receiver and rows that lead nowhere are one picture in a browser, and it follows what happens.
func TestThePagesInChromium(t *testing.T) {
	r := startRelay(t)
	page := strings.TrimPrefix(r.web, "ws://")
	r.ctl(t, "add", "event:req/Saved", "link:backup")
	mail := newManager(t, page, "Mail <b>")
	mail.Request("SendMail", func(context.Context, *events.Event) (*events.Response, error) { return nil, nil })
	runManager(t, mail)
	topic := r.client(t, "server", relay.Options{})
	if _, err := topic.Serve(t.Context(), "sum", echoParts); err != nil {
		t.Fatal(err)
	}
	recv := client(t, rhea, "recv", "--url", r.url(), "--address", "event:req/SendMail", "--count", "1")
	recv.expect("attached")
	if _, err := mail.Put(t.Context(), &events.Event{ID: "1", Type: "Lost"}); err != nil {
		t.Fatal(err)
	}

	p := start(t, "chromium", nodeProgram, "pages/look.mjs", "--url", "http://"+page+"/topology", "--until", "HANDLER GONE")
	first := p.look()
	first.shows(t, "Mail <b>", "SendMail | request · more than one handler", "link:backup | nobody is there", "relay:acme/sum", "acme | relay 127.0.0.1", "receiver", "Lost | NOT WIRED · 1")
	if first.Edges < 4 {
		t.Errorf("%d edges", first.Edges)
	}
	topic.Close()
	r.ctl(t, "add", "COLOSSUS", "null")
	r.ctl(t, "delete", "COLOSSUS", "null")
	r.tryCtl(t, "send", "COLOSSUS", "x")
	p.look().shows(t, "COLOSSUS | HANDLER GONE · 1")

	health := start(t, "chromium", nodeProgram, "pages/look.mjs", "--url", "http://"+page+"/health")
	if rows := health.look().Rows; !slices.ContainsFunc(rows, func(row string) bool { return strings.HasPrefix(row, "Mail <b> | ") }) {
		t.Errorf("health has %q", rows)
	}
	console := start(t, "chromium", nodeProgram, "pages/look.mjs", "--url", "http://"+page+"/")
	if rows := console.look().Rows; !slices.ContainsFunc(rows, func(row string) bool { return strings.HasPrefix(row, "event:req/Saved | link:backup") }) {
		t.Errorf("the console has %q", rows)
	}
}
