package ctl

import (
	"bytes"
	"context"
	"testing"
)

// past is an editor with a history.
type past struct {
	editor
	list []revision
}

func (p past) history(context.Context, int) ([]revision, error) { return p.list, nil }
func (past) close()                                             {}

func TestHistoryMarksRevisionsThatThereIsNoWayBackTo(t *testing.T) {
	list := []revision{
		{Revision: 3, At: "2026-11-30T12:00:00Z", User: "alice", Command: "clear", Removed: 1},
		{Revision: 2, At: "2026-11-30T11:00:00Z", User: "alice", Command: "load t", Added: 1, Gone: true},
		{Revision: 4, At: "2026-11-30T12:30:00Z", User: "alice", Command: "component release prod a=b", Objects: 1},
		{Revision: 5, At: "2026-11-30T12:40:00Z", User: "alice", Command: "rollback 1", Objects: 2, Updated: 1},
	}
	for _, c := range []struct {
		name string
		list []revision
		want string
	}{
		{"objects", list[2:], "" +
			"REVISION  AT                    WHO    CHANGES              COMMAND\n" +
			"4         2026-11-30 12:30:00Z  alice  1 object             component release prod a=b\n" +
			"5         2026-11-30 12:40:00Z  alice  +0 -0 ~1, 2 objects  rollback 1\n"},
		{"one is gone", list[:2], "" +
			"REVISION  AT                    WHO    CHANGES   COMMAND\n" +
			"3         2026-11-30 12:00:00Z  alice  +0 -1 ~0  clear\n" +
			"2 x       2026-11-30 11:00:00Z  alice  +1 -0 ~0  load t\n" +
			"x: there is no way back to it any more\n"},
		{"none is", list[:1], "" +
			"REVISION  AT                    WHO    CHANGES   COMMAND\n" +
			"3         2026-11-30 12:00:00Z  alice  +0 -1 ~0  clear\n"},
	} {
		var out bytes.Buffer
		r := &run{
			open: func(context.Context) (editor, error) { return past{list: c.list}, nil },
			env:  Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }},
		}
		if status := r.run(context.Background(), []string{"history"}); status != exitDone || out.String() != c.want {
			t.Errorf("%s: exit %d, got\n%s\nwant\n%s", c.name, status, &out, c.want)
		}
	}
}

// gone is an editor that explains an address whose rows are gone.
type gone struct{ editor }

func (gone) explain(context.Context, question) (explanation, error) {
	return explanation{Address: "A", Revision: 9, Emptied: &emptied{"A*", 7, "2026-11-30T12:00:00Z"}}, nil
}
func (gone) close() {}

func TestExplainTellsOfAHandlerThatIsGone(t *testing.T) {
	var out bytes.Buffer
	r := &run{
		open: func(context.Context) (editor, error) { return gone{}, nil },
		env:  Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }},
	}
	want := "\"A\": no row matches (revision 9)\nhandler gone: the last row of A* went with revision 7, at 2026-11-30T12:00:00Z\n"
	if status := r.run(context.Background(), []string{"explain", "A"}); status != exitNo || out.String() != want {
		t.Errorf("exit %d, got\n%s\nwant\n%s", status, &out, want)
	}
}
