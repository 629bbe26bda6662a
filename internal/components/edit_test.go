package components

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/components/proto"
	"github.com/fingerpost/fingerpost/routetable"
)

var ada = admin.Caller{User: "ada", Remote: "10.0.0.1:4711", Role: admin.RoleAdmin}

// edit puts objects and deletes others.
func (x *testBroker) edit(put string, deletes ...string) Edited {
	x.t.Helper()
	done, err := x.b.Edit(ada, Edit{Put: put, Delete: deletes})
	x.must(err)
	return done
}

// refused is why an edit is refused; it has to leave everything as it was.
func (x *testBroker) refused(put string, deletes ...string) string {
	x.t.Helper()
	generation, objects := x.core.Table().Generation(), fmt.Sprint(x.b.Objects())
	_, err := x.b.Edit(ada, Edit{Put: put, Delete: deletes})
	if err == nil {
		x.t.Fatalf("%s %v: was taken", put, deletes)
	}
	if x.core.Table().Generation() != generation || fmt.Sprint(x.b.Objects()) != objects {
		x.t.Errorf("%s %v: was refused, and changed something", put, deletes)
	}
	return err.Error()
}

// list is the objects in force that are no file's, and those that are in no force.
func (x *testBroker) list() string {
	var b strings.Builder
	for _, o := range x.b.Objects() {
		if o.Origin != "file" {
			fmt.Fprintf(&b, "%s over=%v %s", o.Name, o.Over, o.Why)
		}
	}
	return b.String()
}

const second = `
deployments:
  hello-next:
    app: hello
    version: v2
    components:
      frontend: {hash: aaaaaaaaaaaa, routes: [{id: 1, rule: "PathPrefix(` + "`/{{.Vars.subPath}}/{x}`" + `)"}], dependencies: {backend: {type: KubeFox}}}
      backend: {hash: bbbbbbbbbbbb, defaultHandler: true, envVarSchema: {who: {required: true}}}
`

func TestEdits(t *testing.T) {
	x := startBroker(t, Options{})
	if d := x.edit(second); d.Revision != 1 || len(d.Objects) != 1 || d.Objects[0].Name != "deployment/hello-next" || len(d.Added)+len(d.Removed) == 0 {
		t.Errorf("got %+v", d)
	}
	if d := x.edit(second); d.Revision != 1 || d.Note != "deployment/hello-next is so already" {
		t.Errorf("again: got %+v", d)
	}
	if d, err := x.b.Edit(ada, Edit{Put: "releases: {qa: {hello: {appDeployment: hello-next}}}", DryRun: true}); err != nil || d.Revision != 1 || len(d.Objects) != 1 {
		t.Errorf("dry run: got %+v, %v", d, err)
	}
	x.edit("releases: {qa: {hello: {appDeployment: hello-next}}}")
	h := x.core.Table().History(0, 0)
	if len(h) != 2 || h[0].Command != "component release qa hello=hello-next" || h[0].Objects != 1 || h[0].Added != 0 || h[0].User != "ada" || h[0].From != "10.0.0.1:4711" {
		t.Errorf("history: %+v", h)
	}
	if got := x.list(); got != "deployment/hello-next over=false release/qa/hello over=false " {
		t.Errorf("got %s", got)
	}
	if d := x.edit("", "release/qa/hello", "release/qa/none"); d.Revision != 3 || d.Note != "there is no release/qa/none" {
		t.Errorf("got %+v", d)
	}
	one := uint64(1)
	if _, err := x.b.Edit(ada, Edit{Delete: []string{"deployment/hello-next"}, IfRevision: &one}); err == nil || !strings.Contains(err.Error(), "at revision 3, not 1") {
		t.Errorf("at another revision: got %v", err)
	}
	for _, c := range []struct {
		name string
		who  admin.Caller
		put  string
		want string
	}{
		{"a viewer", admin.Caller{User: "v", Role: admin.RoleViewer}, "releases: {}", "needs role operator"},
		{"an operator", admin.Caller{User: "o", Role: admin.RoleOperator}, "environments: {e: {secrets: {s: {file: /etc/passwd}}}}", "needs role admin"},
		{"an operator and where secrets go", admin.Caller{User: "o", Role: admin.RoleOperator}, "httpAdapters: {a: {url: 'http://b', headers: {X: '{{.Secrets.pw}}'}}}", "needs role admin"},
		{"an operator and where a manifest's go", admin.Caller{User: "o", Role: admin.RoleOperator}, "manifests: {m: {httpAdapters: {a: {url: 'http://b/{{.Secrets.pw}}'}}}}", "needs role admin"},
		{"an operator and identities", admin.Caller{User: "o", Role: admin.RoleOperator}, "components: [{name: n, hash: h}]", "needs role admin"},
	} {
		if _, err := x.b.Edit(c.who, Edit{Put: c.put}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
	for put, want := range map[string]string{
		"platform: lab": "platform: it is the file's",
		"colour: red":   "colour",
		"components: [{name: n, hash: h}, {name: n, hash: h, token: {env: X}}]": "n@h is there twice",
		"a: [":                "yaml",
		"environments: {e: }": "environments.e: empty",
		"environments: {e: {secrets: {s: hidden}}}":                                                      "write {file: NAME} or {env: NAME}",
		"components: [{name: n, hash: h, token: hidden}]":                                                "write {file: NAME} or {env: NAME}",
		"virtualEnvironments: {v: {environment: none}}":                                                  "EnvironmentNotFound VirtualEnvironment v $.spec.environment",
		"virtualEnvironments: {v: {manifest: m}}":                                                        "there is no manifest",
		"releases: {none: {a: {appDeployment: b}}}":                                                      "there is no virtual environment",
		"releases: {prod: {hello: {appDeployment: none}}}":                                               "ReleaseInvalid VirtualEnvironment prod $.spec.release.apps.hello: AppDeployment \"none\" not found",
		"environments: {prod: {vars: {subPath: prod, n: 4}}}":                                            "VarNotFound AppDeployment hello-main $.spec.components.backend.envVarSchema.who",
		"deployments: {d: {app: a, components: {c: {hash: h, dependencies: {x: {type: HTTPAdapter}}}}}}": "DependencyNotFound AppDeployment d $.spec.components.c.dependencies.x",
		"deployments: {d: {app: a, components: {c: {hash: h, routes: [{id: 0, rule: 'Pth(\"a\")'}]}}}}":  "ParseError AppDeployment d $.spec.components.c.routes[0]",
		"deployments: {d: {app: a, components: {c: {}}}}":                                                "deployments.d.components.c.hash: missing",
		"deployments: {hello-main: {app: hello, components: {}, available: false}}":                      "ReleaseInvalid",
	} {
		if got := x.refused(put); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", put, got, want)
		}
	}
	if got := x.refused("", "deployment/hello-main"); !strings.Contains(got, "is the file's") {
		t.Errorf("an object of the file: %s", got)
	}
	x.edit("releases: {prod: {hello: {appDeployment: hello-next}}}")
	if got := x.refused("", "deployment/hello-next"); !strings.Contains(got, "ReleaseInvalid") {
		t.Errorf("a deployment that is released: %s", got)
	}
}

// The file is read again, and what operators put stays; it lies over the file's until it is deleted.
func TestFileAndOperators(t *testing.T) {
	x := startBroker(t, Options{})
	x.hello(proto.D4)
	x.edit("environments: {prod: {vars: {who: Operators, subPath: prod}}, extra: {vars: {a: 1}}}\nvirtualEnvironments: {extra: {environment: extra}}")
	x.must(x.b.Use(objects(t, strings.Replace(lab, "Universe", "World", 1))))
	if got := x.get("/prod/hello"); got != "201 Hello Operators!" {
		t.Errorf("got %s", got)
	}
	if got := x.list(); got != "environment/extra over=false environment/prod over=true virtualEnvironment/extra over=false " {
		t.Errorf("got %s", got)
	}
	if d := x.edit("", "environment/prod"); d.Note != "the file's environment/prod is in force again" {
		t.Errorf("got %+v", d)
	}
	if got := x.get("/prod/hello"); got != "201 Hello World!" {
		t.Errorf("got %s", got)
	}
	x.edit("virtualEnvironments: {prod: {environment: prod}}\nreleases: {prod: {hello: {appDeployment: hello-main}}}")
	x.edit("", "virtualEnvironment/prod")
	without := strings.Replace(lab, "  prod: {environment: prod, vars: {n: 4}, release: {hello: {appDeployment: hello-main}}}\n", "", 1)
	if err := x.b.Use(objects(t, without)); err == nil || !strings.Contains(err.Error(), "release/prod/hello, which an operator put") {
		t.Errorf("a file that does not go with a release: %v", err)
	}
	if got := x.get("/prod/hello"); got != "201 Hello World!" {
		t.Errorf("after the refusal: %s", got)
	}
	// A file that was changed while the router was away is used as far as it goes.
	o, left := layer(objects(t, without), x.core.Table().Snapshot().Objects())
	if o.VirtualEnvironments["extra"] == nil || len(left) != 1 || left["release/prod/hello"] == nil {
		t.Errorf("got %v, left %v", slices.Collect(maps.Keys(o.VirtualEnvironments)), left)
	}
}

// A rollback of the table brings the objects and their routes back.
func TestRollbackOfObjects(t *testing.T) {
	x := startBroker(t, Options{})
	x.hello(proto.D4)
	x.edit("environments: {prod: {vars: {who: One, subPath: prod}}}")
	x.edit("environments: {prod: {vars: {who: Two, subPath: two}}}")
	if got := x.get("/two/hello"); got != "201 Hello Two!" {
		t.Fatalf("got %s", got)
	}
	if _, err := x.core.Rollback(ada, 1, nil); err != nil {
		t.Fatal(err)
	}
	x.until("the first is back", func() bool { return x.get("/prod/hello") == "201 Hello One!" })
	if got := x.get("/two/hello"); got != "404 route not found" {
		t.Errorf("got %s", got)
	}
}

// What an object shows has no secret of the file in it, and is what can be put again.
func TestObjectsShowNoSecrets(t *testing.T) {
	x := startBroker(t, Options{})
	x.edit("environments: {e: &e {vars: {v: [1]}, secrets: {s: {file: pw.txt}}}, f: *e}")
	for _, o := range x.b.Objects() {
		if strings.Contains(o.Text, "hidden") || strings.Contains(o.Text, "-token") {
			t.Errorf("%s shows a secret: %s", o.Name, o.Text)
		}
		if o.Origin != "file" && !strings.Contains(o.Text, "{file: pw.txt}") && !strings.Contains(o.Text, "file: pw.txt") {
			t.Errorf("%s does not show where its secret is: %s", o.Name, o.Text)
		}
		part, err := Part(o.Name, o.Text)
		if err != nil {
			t.Fatal(err)
		}
		if texts, err := splitObjects([]byte(part)); err != nil || texts[o.Name] != o.Text {
			t.Errorf("%s: put again it is %q, %v, not %q", o.Name, texts[o.Name], err, o.Text)
		}
	}
}

// Secrets that are merged into others, and comments, are not shown either; nor are secrets in the wrong place, by what is said about that.
func TestSecretsInOddPlaces(t *testing.T) {
	texts, err := splitObjects([]byte("x: &x {pw: hidden}\nenvironments:\n  # hidden\n  e: {secrets: {<<: *x, b: hidden}} # hidden\n  f: {secrets: {<<: [*x, {<<: {c: hidden}}]}}\n"))
	for name, text := range texts {
		if strings.Contains(text, "hidden") {
			t.Errorf("%s shows a secret: %s", name, text)
		}
	}
	if err != nil || len(texts) != 2 {
		t.Errorf("%v, %v", texts, err)
	}
	for _, text := range []string{
		"environments: {e: {secrets: hidden}}", "components: [hidden]", "components: [{token: !!int hidden}]", "components: [{token: *hidden}]", "environments: {e: {secrets: {a: !!float 'hidden'}}}",
	} {
		if _, err := decodeObjects([]byte(text)); err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := splitObjects([]byte(text)); err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A token that is put takes the place of those of all pods.
func TestTokenOfAllPods(t *testing.T) {
	more := "adapters:\n  - {name: httpsrv, hash: debug, pod: pod-2, token: token-2}\n"
	x := startBroker(t, Options{Objects: objects(t, strings.Replace(lab, "adapters:\n", more, 1))})
	x.edit("adapters: [{name: httpsrv, hash: debug, token: {env: FINGERPOST_TEST_NO_SUCH}}]")
	for pod, token := range map[string]string{"pod-1": "adapter-token", "pod-2": "token-2"} {
		w := httpsrv
		w.pod, w.token = pod, token
		if err := x.begin(w).register(w); err == nil {
			t.Errorf("%s still comes in by %s", pod, token)
		}
	}
}

// What is released with a manifest has the manifest's variables and adapters, and no others.
func TestManifest(t *testing.T) {
	x := startBroker(t, Options{})
	x.hello(proto.D4)
	frozen := "manifests: {m1: {vars: {who: Frozen, subPath: prod, n: 1}, httpAdapters: {echo: {url: 'http://127.0.0.1:9'}}}}\n"
	if got := x.refused("manifests: {m1: {vars: {who: Frozen, subPath: prod}}}\nvirtualEnvironments: {prod: {environment: prod, manifest: m1, release: {hello: {appDeployment: hello-main}}}}"); !strings.Contains(got, "DependencyNotFound") {
		t.Errorf("a manifest without the adapter: %s", got)
	}
	x.edit(frozen + "virtualEnvironments: {prod: {environment: prod, manifest: m1, release: {hello: {appDeployment: hello-main}}}}")
	code, body, header := x.do("GET", "/prod/hello", "")
	if fmt.Sprint(code, body) != "201Hello Frozen!" || header.Get("Kubefox-Release-Manifest") != "m1" {
		t.Errorf("got %d %s %v", code, body, header)
	}
	if got := x.get("/prod/hello?kf-ve=prod&kf-dep=hello-main"); got != "201 Hello Universe!" {
		t.Errorf("by its names: %s", got)
	}
	if got := x.refused("", "manifest/m1"); !strings.Contains(got, "virtualEnvironment/prod needs what this takes away") {
		t.Errorf("a manifest in use: %s", got)
	}
}

// While a release moves to and fro, each request goes wholly by one or wholly by the other: what its route, its variables and what it calls say is of one
// deployment, and nothing gets lost in between. So do requests that name their context.
func TestReleaseSwapUnderLoad(t *testing.T) {
	version := func(v string) string {
		return fmt.Sprintf(`
environments: {prod: {vars: {who: %[1]s, subPath: prod}}}
deployments:
  hello-%[1]s:
    app: hello
    components:
      frontend: {hash: aaaaaaaaaaaa, routes: [{id: %[2]d, rule: "PathPrefix(`+"`/{{.Vars.subPath}}`"+`)"}], dependencies: {backend: {type: KubeFox}}, envVarSchema: {who: {required: true}}}
      backend: {hash: bbbbbbbbbbbb, defaultHandler: true}
releases: {prod: {hello: {appDeployment: hello-%[1]s}}}
`, v, len(v))
	}
	x := startBroker(t, Options{})
	f, b := x.connect(frontend), x.connect(backend)
	b.handler = func(r *received) { b.respond(r, 200, r.Context.Deployment, nil) }
	f.handler = func(r *received) {
		answer := f.request(f.child(&r.Event, "backend"))
		f.respond(r, 200, fmt.Sprintf("%d %s %s %s", r.route, r.env["who"], r.Context.Deployment, answer.Content), nil)
	}
	x.edit(version("a"))
	wants := map[string]bool{`200 1 "a" hello-a hello-a`: true, `200 2 "bb" hello-bb hello-bb`: true}
	var stop atomic.Bool
	var asked [2]atomic.Int64
	var load sync.WaitGroup
	for i := range 4 {
		load.Go(func() {
			for !stop.Load() {
				path, want := "/prod/x", wants
				if i%2 == 1 {
					path, want = "/x?kf-ve=qa&kf-dep=hello-main", map[string]bool{"404 route not found": true}
					path = "/qa/x/y?kf-ve=qa&kf-dep=hello-main"
					want = map[string]bool{`200 1 <nil> hello-main hello-main`: true, `200 1  hello-main hello-main`: true}
				}
				if got := x.get(path); !want[got] {
					t.Errorf("%s: got %s", path, got)
					return
				}
				asked[i%2].Add(1)
			}
		})
	}
	for i := range 40 {
		x.edit(version([]string{"bb", "a"}[i%2]))
	}
	x.until("requests of both kinds were asked", func() bool { return asked[0].Load() > 20 && asked[1].Load() > 20 })
	stop.Store(true)
	load.Wait()
	http.DefaultClient.CloseIdleConnections()
}

// Objects are there again in the next life of the router, at the same revision.
func TestObjectsAreKept(t *testing.T) {
	dir := t.TempDir()
	open := func() (*routetable.Table, *Broker) {
		table, err := routetable.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		x := startBrokerOn(t, table, Options{})
		return table, x.b
	}
	table, b := open()
	if _, err := b.Edit(ada, Edit{Put: second}); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(b.Objects())
	b.Close()
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	table, b = open()
	defer table.Close()
	if got := fmt.Sprint(b.Objects()); got != want || table.Revision() != 1 {
		t.Errorf("at revision %d got %s", table.Revision(), got)
	}
}

func FuzzEdit(f *testing.F) {
	f.Add(second)
	f.Add("environments: {e: &e {vars: {v: [1]}, secrets: {s: {file: pw.txt}}}, f: *e}")
	f.Add("environments: {prod: {<<: [{secrets: {a: b}}], secrets: }}")
	f.Add("components: [{name: n, hash: h, token: {env: x}}]\nreleases: {a: {b: {appDeployment: c}}}")
	f.Add("manifests: {m: {httpAdapters: {a: {url: x}}}}")
	file := objects(f, lab)
	f.Fuzz(func(t *testing.T, text string) {
		x := Edit{Put: text}
		puts, _, err := x.puts("")
		if err != nil {
			return
		}
		o, _ := layer(file, puts)
		s := &situation{file: file, held: puts, objects: o, released: o.release(o.bind)}
		problemWords(s.problems())
	})
}
