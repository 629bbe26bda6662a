package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/fingerpost/fingerpost"

// floors is the drawing of ARCHITECTURE.md: imports go down only, never up or sideways.
var floors = map[string]int{
	"cmd/router": 7, "cmd/routectl": 7,
	"internal/app": 6, "internal/ctl": 6,
	"internal/web":  5,
	"internal/mesh": 4, "internal/relay": 4, "internal/events": 4, "internal/components": 4, "internal/cluster": 4,
	"forwarder": 3, "messenger": 3, "internal/users": 3, "internal/load": 3, "messenger/relay": 3, "messenger/event": 3, "messenger/component": 3,
	"internal/admin": 2, "internal/amqp": 2, "internal/nats": 2, "internal/grpc": 2,
	"routetable": 1, "internal/amqp/engine": 1, "internal/websocket": 1,
	"internal/amqp/wire": 0, "internal/components/proto": 0, "internal/journal": 0, "internal/silent": 0, "internal/socket": 0,
}

// house are packages of tests and tools, which no product package may import.
var house = []string{"internal/house", "internal/house/certs", "internal/house/doorbench", "internal/house/journal", "internal/house/leaks", "internal/house/mix", "internal/house/testsum", "internal/house/tube", "interop"}

// dependencies tells which packages may use what is not in the standard library, by prefix of the import path.
var dependencies = map[string][]string{
	"github.com/fsnotify/fsnotify":        {"internal/app"},
	"github.com/gobwas/glob":              {"routetable"},
	"gopkg.in/yaml.v3":                    {"routetable", "internal/users", "internal/app", "internal/ctl", "internal/mesh", "internal/components"},
	"github.com/xdg-go/scram":             {"internal/amqp"},
	"github.com/gobwas/ws":                {"internal/websocket"},
	"github.com/nats-io":                  {"internal/nats"},
	"github.com/fxamacker/cbor/v2":        {"internal/mesh"},
	"golang.org/x/net":                    {"internal/grpc"},
	"google.golang.org/grpc":              {"messenger/component"},
	"google.golang.org/protobuf":          {"internal/components/proto"},
	"github.com/prometheus/client_golang": {"internal/web"},
	"github.com/Azure/go-amqp":            {"internal/ctl", "internal/house/doorbench"},
	"github.com/spf13/cobra":              {"cmd/router", "cmd/routectl", "internal/ctl"},
	"go.uber.org/goleak":                  {"internal/house/leaks"},
	"github.com/spf13/pflag":              {"cmd/router", "cmd/routectl", "internal/ctl"},
}

// entrances are dependencies that enter through one file, so that they can leave through it.
var entrances = map[string]string{
	"github.com/fsnotify/fsnotify":        "internal/app/watch.go",
	"github.com/xdg-go/scram":             "internal/amqp/scram.go",
	"github.com/prometheus/client_golang": "internal/web/metrics.go",
}

// testDependencies may be used by every test, and by nothing else; so may Azure/go-amqp, the independent client.
var testDependencies = []string{"google.golang.org/grpc", "golang.org/x/net/http2", "github.com/Azure/go-amqp", "go.uber.org/goleak", "pgregory.net/rapid"}

// pkg is a package as go list tells of it.
type pkg struct {
	ImportPath, Dir, Name, Doc         string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports []string
	Incomplete                         bool
	Error                              *struct{ Err string }
}

func (p *pkg) path() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

var list = sync.OnceValues(func() ([]*pkg, error) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Name,Doc,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports,Incomplete,Error", "./...")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []*pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(pkg)
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
})

func packages(t *testing.T) []*pkg {
	t.Helper()
	all, err := list()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 5 {
		t.Fatalf("go list gave %d packages: it did not look at the module", len(all))
	}
	return all
}

func TestImportsGoDownOnly(t *testing.T) {
	for _, p := range packages(t) {
		from, known := floors[p.path()]
		if !known {
			if !slices.Contains(house, p.path()) {
				t.Errorf("%s is on no floor: draw it in ARCHITECTURE.md and in the floors of this test", p.path())
			}
			continue
		}
		for _, imported := range slices.Concat(p.Imports, inside(p)) {
			to, ours := strings.CutPrefix(imported, module+"/")
			if !ours || to == p.path() {
				continue
			}
			floor, known := floors[to]
			switch {
			case !known:
				t.Errorf("%s imports %s, which is no package of the product", p.path(), to)
			case floor > from:
				t.Errorf("%s (floor %d) imports %s (floor %d): that runs up", p.path(), from, to, floor)
			case floor == from:
				t.Errorf("%s imports %s, both on floor %d: that runs sideways", p.path(), to, from)
			}
		}
	}
}

// inside are the imports of tests that are part of the package, without those of the house. Tests outside of it (package x_test) may look around.
func inside(p *pkg) []string {
	return slices.DeleteFunc(slices.Clone(p.TestImports), func(i string) bool { return slices.Contains(house, strings.TrimPrefix(i, module+"/")) })
}

func TestDependenciesStayWhereTheyBelong(t *testing.T) {
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			name, found := dependency(imported)
			if !found {
				continue
			}
			if name == "" {
				t.Errorf("%s imports %s, which nobody may: a new dependency is a decision, add it to the table of this test", p.path(), imported)
			} else if !slices.Contains(dependencies[name], p.path()) {
				t.Errorf("%s imports %s, which is for %s only", p.path(), imported, strings.Join(dependencies[name], ", "))
			}
		}
		for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
			name, found := dependency(imported)
			if !found || slices.ContainsFunc(testDependencies, func(d string) bool { return under(imported, d) }) {
				continue
			}
			if name == "" || !slices.Contains(dependencies[name], p.path()) && !slices.Contains(house, p.path()) {
				t.Errorf("a test of %s imports %s, which is for %s only", p.path(), imported, strings.Join(dependencies[name], ", "))
			}
		}
	}
}

func TestDependenciesEnterByOneFile(t *testing.T) {
	for _, p := range packages(t) {
		for _, file := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range f.Imports {
				name, _ := dependency(strings.Trim(i.Path.Value, `"`))
				if only := entrances[name]; only != "" && p.path()+"/"+file != only {
					t.Errorf("%s/%s imports %s, which enters by %s only", p.path(), file, name, only)
				}
			}
		}
	}
}

// dependency names the table's entry for an import that is neither ours nor of the standard library; an import without
// an entry is found with no name.
func dependency(imported string) (name string, found bool) {
	first, _, _ := strings.Cut(imported, "/")
	if !strings.Contains(first, ".") || under(imported, module) {
		return "", false
	}
	for d := range dependencies {
		if under(imported, d) {
			return d, true
		}
	}
	return "", true
}

func under(path, prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range packages(t) {
		if p.Name == "main" {
			if p.Doc == "" {
				t.Errorf("%s has no package comment", p.path())
			}
			continue
		}
		text, err := os.ReadFile(filepath.Join(p.Dir, "doc.go"))
		if err != nil {
			t.Errorf("%s has no doc.go", p.path())
		} else if !bytes.Contains(text, []byte("// Package "+p.Name+" ")) {
			t.Errorf("%s/doc.go has no comment that begins with: Package %s", p.path(), p.Name)
		}
	}
}

// The floors of ARCHITECTURE.md are those of this test, and every package of the product stands on its floor there.
func TestTheDrawingIsTheCode(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string]int{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		var floor int
		if len(cells) < 3 {
			continue
		}
		if _, err := fmt.Sscanf(strings.TrimSpace(cells[1]), "%d", &floor); err != nil {
			continue
		}
		for i, word := range strings.Split(cells[2], "`") {
			if i%2 == 1 {
				drawn[word] = floor
			}
		}
	}
	if len(drawn) == 0 {
		t.Fatal("ARCHITECTURE.md has no table of floors")
	}
	for path, floor := range drawn {
		if want, ok := floors[path]; !ok || want != floor {
			t.Errorf("ARCHITECTURE.md draws %s on floor %d, this test on %d", path, floor, want)
		}
	}
	exists := map[string]bool{}
	for _, p := range packages(t) {
		exists[p.path()] = true
		if _, ok := floors[p.path()]; ok {
			if _, ok := drawn[p.path()]; !ok {
				t.Errorf("ARCHITECTURE.md does not draw %s", p.path())
			}
		}
	}
	for path := range drawn {
		if !exists[path] {
			t.Errorf("ARCHITECTURE.md draws %s, which is not there", path)
		}
	}
}
