package ctl

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// startWatch runs a watch until the test ends; stop interrupts it and gives the exit status and what went to standard error.
func startWatch(t *testing.T, host string, flags ...string) (lines *bufio.Scanner, stop func() (int, string)) {
	t.Helper()
	ctx, interrupt := context.WithCancel(context.Background())
	r, w := io.Pipe()
	var errs bytes.Buffer
	status := make(chan int, 1)
	go func() {
		status <- Run(ctx, append([]string{"--url", host, "watch"}, flags...), Env{
			Stdin: strings.NewReader(""), Stdout: w, Stderr: &errs, Getenv: func(string) string { return "" },
		})
		w.Close()
	}()
	t.Cleanup(func() { interrupt(); r.Close() })
	lines = bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	return lines, func() (int, string) {
		interrupt()
		go io.Copy(io.Discard, r)
		return <-status, errs.String()
	}
}

func expectLines(t *testing.T, lines *bufio.Scanner, want ...string) {
	t.Helper()
	for _, w := range want {
		if !lines.Scan() {
			t.Fatalf("the watch ended, want %q", w)
		}
		if got := lines.Text(); got != w {
			t.Fatalf("got  %s\nwant %s", got, w)
		}
	}
}

func TestWatchPrintsChanges(t *testing.T) {
	core, host := startRouter(t)
	do := func(cmd admin.Command) {
		t.Helper()
		if _, err := core.Do(admin.Caller{User: "boss", Remote: "console", Role: admin.RoleAdmin}, cmd); err != nil {
			t.Fatal(err)
		}
	}
	do(admin.Add{Route: routetable.NewRoute("A", "amqp://a")})
	plain, stop := startWatch(t, host, "--snapshot")
	expectLines(t, plain, "1  watching", "1  = A --> amqp://a")
	do(admin.Add{Route: routetable.NewRoute("B", "amqp://b")})
	expectLines(t, plain, "2  + B --> amqp://b")
	do(admin.Set{Route: routetable.Route{Pattern: "B", Address: "amqp://b", Note: "x y", Retry: -1}, Columns: routetable.ColNote})
	expectLines(t, plain, "3  - B --> amqp://b", `3  + B --> amqp://b ; note="x y"`)
	do(admin.Subscribe{Pattern: "L", Address: "link:99", Origin: "link:99"})
	expectLines(t, plain, "3  + L --> link:99  # from link:99")
	do(admin.Subscribe{Pattern: "$reply/x/y", Address: "link:98", Origin: "link:98"})
	do(admin.Withdraw{Origin: "link:98"})
	do(admin.Withdraw{Origin: "link:99"})
	expectLines(t, plain, "3  - L --> link:99  # from link:99")
	if status, errs := stop(); status != 0 || errs != "" {
		t.Errorf("an interrupted watch: got exit %d, %q", status, errs)
	}

	asJSON, stop := startWatch(t, host, "-o", "json")
	if !asJSON.Scan() || !regexp.MustCompile(`^{"event":"watching","revision":3,"generation":\d+,"match":"all"}$`).MatchString(asJSON.Text()) {
		t.Errorf("got %s", asJSON.Text())
	}
	do(admin.Delete{Pattern: "B", Address: "amqp://b"})
	want := regexp.MustCompile(`^{"event":"change","revision":4,"generation":\d+,"author":{"user":"boss","from":"console","command":"delete B amqp://b","at":"[^"]*Z"},` +
		`"rows":\[{"change":"removed","before":{"pattern":"B","address":"amqp://b","pick":"all","order":0,"fallback":false,"optional":false,"origin":"operator","note":"x y"}}\]}$`)
	if !asJSON.Scan() || !want.MatchString(asJSON.Text()) {
		t.Errorf("got %s", asJSON.Text())
	}
	stop()

	wide, stop := startWatch(t, host, "-o", "wide")
	expectLines(t, wide, "4  watching")
	do(admin.Load{Mode: routetable.LoadMerge, Source: "t.yaml", File: &routetable.File{Match: routetable.MatchFirst, HasMatch: true}})
	expectLines(t, wide, "5  match: first", "5  # by boss at console: load t.yaml --merge")
	stop()
}

func TestViewersWatch(t *testing.T) {
	core, host := startRouter(t)
	if _, err := core.Table().Add("A", "amqp://u:secret@a"); err != nil {
		t.Fatal(err)
	}
	lines, stop := startWatch(t, "viewer:secret@"+host, "--snapshot")
	expectLines(t, lines, "1  watching", "1  = A --> amqp://***@a")
	stop()
}

func TestWatchEndsWhereTheRouterGoes(t *testing.T) {
	var errs bytes.Buffer
	status := Run(context.Background(), []string{"--url", "127.0.0.1:1", "watch"}, Env{
		Stdin: strings.NewReader(""), Stdout: &errs, Stderr: &errs, Getenv: func(string) string { return "" },
	})
	if status != exitUnreachable {
		t.Errorf("got exit %d, %s", status, errs.String())
	}
}

// An ordinary client that stops to take messages does not hold the table up; it is told what it missed, and is up to date at the end.
func TestWatcherWithoutCreditFallsBehind(t *testing.T) {
	t.Run("for a moment", func(t *testing.T) { fallBehind(t, 0) })
	t.Run("for longer than a message waits", func(t *testing.T) { fallBehind(t, 1500*time.Millisecond) })
}

func fallBehind(t *testing.T, pause time.Duration) {
	core, host := startRouter(t) // delivery timeout 1 s
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	conn, err := amqp.Dial(ctx, "amqp://"+host, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := session.NewReceiver(ctx, "", &amqp.ReceiverOptions{DynamicAddress: true, Credit: -1})
	if err != nil {
		t.Fatal(err)
	}
	sender, err := session.NewSender(ctx, managementNode, nil)
	if err != nil {
		t.Fatal(err)
	}
	receive := func() map[string]any {
		t.Helper()
		msg, err := receiver.Receive(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := receiver.AcceptMessage(ctx, msg); err != nil {
			t.Fatal(err)
		}
		body, _ := msg.Value.(map[string]any)
		return body
	}
	if err := receiver.IssueCredit(1); err != nil {
		t.Fatal(err)
	}
	replyTo := receiver.Address()
	err = sender.Send(ctx, &amqp.Message{
		Properties:            &amqp.MessageProperties{ReplyTo: &replyTo, MessageID: "w"},
		ApplicationProperties: map[string]any{"operation": "WATCH", "type": "table", "name": "main"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	receive()
	rows := map[string]bool{}
	// Far more than may wait, while no credit is there.
	start := time.Now()
	for i := range 1000 {
		if _, err := core.Table().Add(fmt.Sprintf("N%d", i), "amqp://h"); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("1000 changes took %v: the watcher holds the table up", took)
	}
	<-time.After(pause)
	if err := receiver.IssueCredit(2000); err != nil {
		t.Fatal(err)
	}
	missed := 0
	for last := uint64(0); last < core.Table().Generation(); {
		m := receive()
		g := m["generation"].(uint64)
		switch m["event"] {
		case "missed":
			missed++
			rows = map[string]bool{}
		case "snapshot":
			for _, r := range m["rows"].([]any) {
				rows[r.(map[string]any)["pattern"].(string)] = true
			}
			if m["last"] == true {
				last = g
			}
		case "change":
			for _, r := range m["added"].([]any) {
				rows[r.(map[string]any)["pattern"].(string)] = true
			}
			if g <= last {
				t.Errorf("generation %d behind %d", g, last)
			}
			last = g
		}
	}
	if missed == 0 || len(rows) != core.Table().Snapshot().Len() {
		t.Errorf("got %d rows after %d gaps, the table has %d", len(rows), missed, core.Table().Snapshot().Len())
	}
	if err := receiver.Close(ctx); err != nil {
		t.Fatal(err)
	}
	noWatches(t, core)
}

// noWatches waits until every watch of the router has ended.
func noWatches(t *testing.T, core *admin.Core) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for core.Watches() > 0 {
		select {
		case <-deadline:
			t.Fatal("a watch goes on without its link")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestWatchEndsWithItsConnection(t *testing.T) {
	core, host := startRouter(t)
	for range 5 {
		lines, stop := startWatch(t, host)
		expectLines(t, lines, "0  watching")
		stop()
	}
	noWatches(t, core)
}
