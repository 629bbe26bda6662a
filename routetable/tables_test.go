package routetable_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/fingerpost/fingerpost/routetable"
)

// Every example table says what some addresses must pick, and that holds; nothing in it is suspicious.
func TestExampleTables(t *testing.T) {
	names, err := filepath.Glob("../tables/*.yaml")
	if err != nil || len(names) < 5 {
		t.Fatalf("got %d tables, %v", len(names), err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := routetable.ParseFile(name, text)
		if err != nil {
			t.Error(err)
			continue
		}
		tb := routetable.New()
		if _, err := tb.LoadFile(f, routetable.LoadReplace); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(f.Expect) == 0 {
			t.Errorf("%s: expects nothing", name)
		}
		for _, failure := range routetable.CheckExpect(tb.Snapshot(), f.Expect) {
			t.Errorf("%s: line %d: %s", name, failure.Expect.Line, failure.Msg)
		}
		for _, w := range tb.Snapshot().Lint() {
			t.Errorf("%s: %s", name, w)
		}
	}
}

// The seed's table is the same in both forms.
func TestSeedTableInBothForms(t *testing.T) {
	var forms [2]bytes.Buffer
	for i, name := range []string{"../tables/seed.yaml", "../tables/seed.routes"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := routetable.ParseFile(name, text)
		if err != nil {
			t.Fatal(err)
		}
		f.Expect = nil
		tb := routetable.New()
		if _, err := tb.LoadFile(f, routetable.LoadReplace); err != nil {
			t.Fatal(err)
		}
		if err := tb.Snapshot().File(false).WriteArrow(&forms[i]); err != nil {
			t.Fatal(err)
		}
	}
	if forms[0].String() != forms[1].String() {
		t.Errorf("YAML gives\n%s\narrows give\n%s", &forms[0], &forms[1])
	}
}
