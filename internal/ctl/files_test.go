package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
)

// fakeFiles are the table files of a router.
type fakeFiles []admin.Entity

func (fakeFiles) Type() string           { return "file" }
func (fakeFiles) Attributes() []string   { return []string{"path", "rows", "loaded", "error", "hash"} }
func (f fakeFiles) List() []admin.Entity { return f }

func TestListWarnsOfFilesThatAreNotInForce(t *testing.T) {
	d := newDoor(t, admin.RoleViewer)
	if _, err := d.core.Table().Add("A", "amqp://h"); err != nil {
		t.Fatal(err)
	}
	d.core.Register(fakeFiles{
		{"name": "good.yaml", "error": "", "loaded": "2020-01-02T03:04:05Z"},
		{"name": "a.yaml", "error": "tables/a.yaml: line 3, column 5: unknown key\n\"x\"", "loaded": "2020-01-02T03:04:05Z"},
		{"name": "b.yaml", "error": "tables/b.yaml: the file is gone", "loaded": ""},
	})
	for _, form := range []string{"table", "json"} {
		var out, errs bytes.Buffer
		r := &run{
			env:  Env{Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }},
			open: func(context.Context) (editor, error) { return &remote{caller: d}, nil },
		}
		if status := r.run(context.Background(), []string{"list", "-o", form}); status != 0 {
			t.Fatalf("exit status %d: %s", status, &errs)
		}
		at := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC).Local().Format(time.DateTime)
		want := "warning: tables/a.yaml: line 3, column 5: unknown key; \"x\" (the rows of " + at + " are in force)\n" +
			"warning: tables/b.yaml: the file is gone (the rows of before are in force)\n"
		if errs.String() != want {
			t.Errorf("got %q, want %q", &errs, want)
		}
		var rows []map[string]any
		if form == "json" && (json.Unmarshal(out.Bytes(), &rows) != nil || len(rows) != 1) {
			t.Errorf("got %s", &out)
		}
	}
}

func TestSinceWhenRowsAreInForce(t *testing.T) {
	now := time.Date(2024, 5, 6, 12, 30, 0, 0, time.UTC)
	for _, c := range []struct{ loaded, want string }{
		{"2024-05-06T12:03:04Z", "the rows of 12:03:04 are in force"},
		{"2024-05-05T12:03:04Z", "the rows of 2024-05-05 12:03:04 are in force"},
		{"", "the rows of before are in force"},
	} {
		if got := inForce(c.loaded, now); got != c.want {
			t.Errorf("%q: got %s, want %s", c.loaded, got, c.want)
		}
	}
}
