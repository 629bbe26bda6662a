package components

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const lab = `
platform: lab
adapters:
  - {name: httpsrv, type: HTTPAdapter, hash: debug, pod: pod-1, token: adapter-token}
environments:
  qa:   {policy: testing, vars: {who: World, subPath: qa, n: 3}, secrets: {key: {env: FINGERPOST_TEST_NO_SUCH}, pw: hidden}}
  prod: {policy: testing, vars: {who: Universe, subPath: prod}}
virtualEnvironments:
  qa:   {environment: qa}
  prod: {environment: prod, vars: {n: 4}, release: {hello: {appDeployment: hello-main}}}
deployments:
  hello-main:
    app: hello
    components:
      frontend:
        {type: KubeFox, hash: aaaaaaaaaaaa, routes: [{id: 0, rule: "All() && Path(` + "`/{{.Vars.subPath}}/hello`" + `)"}, {id: 1, rule: "PathPrefix(` + "`/{{.Vars.subPath}}/{x}`" + `)"}],
         dependencies: {backend: {type: KubeFox}, echo: {type: HTTPAdapter}}, envVarSchema: {subPath: {required: true}}}
      backend: {type: KubeFox, hash: bbbbbbbbbbbb, defaultHandler: true, envVarSchema: {who: {required: true}, n: {type: Number}}}
httpAdapters:
  echo: {url: "http://127.0.0.1:9000/base", headers: {X-A: "{{.Vars.who}}"}, followRedirects: Never}
components:
  - {app: hello, name: frontend, hash: aaaaaaaaaaaa, token: frontend-token}
  - {app: hello, name: backend, hash: bbbbbbbbbbbb, token: backend-token}
`

func objects(t testing.TB, text string) *Objects {
	t.Helper()
	o, err := ParseObjects([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestObjects(t *testing.T) {
	o := objects(t, lab)
	b, err := o.bind(contextKey{environment: "qa", deployment: "hello-main"})
	if err != nil || len(b.problems) > 0 || b.invalid != nil {
		t.Fatalf("%v, %s, %v", err, problemText(b.problems), b.invalid)
	}
	if got := fmt.Sprintf("%s %s", b.env["backend"][0], b.env["backend"][1]); got != `{n 3} {who "World"}` {
		t.Errorf("env of the backend: %s", got)
	}
	if len(b.routes) != 2 || b.routes[0].Resolved != "All() && Path(`/qa/hello`)" || b.routes[0].target.Address() != "hello/frontend@aaaaaaa" {
		t.Errorf("routes: %+v", b.routes)
	}
	r := o.release(o.bind)
	if len(r.problems) > 0 || len(r.rows) != 2 || r.rows[0].Pattern != "web://prod/hello" || r.rows[1].Pattern != "web://prod/%*" {
		t.Errorf("released: %s, %+v", problemText(r.problems), r.rows)
	}
	if text := fmt.Sprintf("%v %+v %#v", o.Environments["qa"], o.Environments["qa"], o.Components[0].Token); strings.Contains(text, "hidden") || strings.Contains(text, "-token") {
		t.Errorf("a secret is shown: %s", text)
	}
	for _, pair := range [][2]string{{"none", "hello-main"}, {"qa", "none"}} {
		if _, err := o.bind(contextKey{environment: pair[0], deployment: pair[1]}); err == nil || !strings.Contains(err.Error(), `"none" not found`) {
			t.Errorf("%v: got %v", pair, err)
		}
	}
}

func TestObjectsRefused(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"platform: lab", "", "platform: missing"},
		{"platform: lab", "platform: lab\ncolour: red", "colour"},
		{"app: hello\n", "version: v1\n", "deployments.hello-main.app: missing"},
		{"hash: bbbbbbbbbbbb, defaultHandler", "defaultHandler", "components.backend.hash: missing"},
		{"hash: bbbbbbbbbbbb, defaultHandler", "hash: $1, defaultHandler", "components.backend.hash: \"$1\": write letters"},
		{"hash: bbbbbbbbbbbb, defaultHandler", "hash: v1.222.3, defaultHandler", "components.backend.hash: \"v1.222.3\": write letters"},
		{"type: KubeFox, hash: bbbbbbbbbbbb, def", "type: Kubefox, hash: bbbbbbbbbbbb, def", `components.backend.type: "Kubefox": write KubeFox`},
		{"type: HTTPAdapter, hash: debug", "type: HttpAdapter, hash: debug", `adapters[0].type: "HttpAdapter": write`},
		{"app: hello\n", "app: '-'\n", `deployments.hello-main.app: "-": write letters`},
		{"      backend: {type", "      FRONT/end: {hash: c}\n      End: {hash: c}\n      backend: {type", `deployments.hello-main.components.FRONT/end: it has the name of End: both are "end"`},
		{"hash: debug,", "hash: a b,", "adapters[0].hash: \"a b\": write letters"},
		{"who: World,", "who: {a: 1},", "environments.qa.vars.who"},
		{"followRedirects: Never", "followRedirects: Now", "httpAdapters.echo.followRedirects"},
		{"policy: testing, vars: {who: Universe", "policy: tasting, vars: {who: Universe", "environments.prod.policy"},
		{"token: adapter-token", "token: {url: x}", "a secret: write"},
		{"hash: debug,", "hash: debug, dialect: D9,", "adapters[0].dialect"},
		{"httpAdapters:\n", "---\nhttpAdapters:\n", "more than one document"},
	} {
		text := strings.Replace(lab, c.from, c.to, 1)
		if text == lab {
			t.Fatalf("%q is not in the file", c.from)
		}
		if _, err := ParseObjects([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.to, err, c.want)
		}
	}
}

func TestProblems(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"a variable of a schema", "who: World,", "", "VarNotFound AppDeployment hello-main $.spec.components.backend.envVarSchema.who; VarNotFound HTTPAdapter echo $.spec.headers.X-A"},
		{"a variable of routes", "subPath: qa,", "", "VarNotFound AppDeployment hello-main $.spec.components.frontend.envVarSchema.subPath; " +
			"VarNotFound AppDeployment hello-main $.spec.components.frontend.routes[0].subPath; VarNotFound AppDeployment hello-main $.spec.components.frontend.routes[1].subPath"},
		{"a type", "n: 3", "n: [a]", "VarWrongType AppDeployment hello-main $.spec.components.backend.envVarSchema.n"},
		{"any type is a text", "who: World", "who: 7", ""},
		{"a component", "{backend: {type: KubeFox}", "{database: {type: KubeFox}", "DependencyNotFound AppDeployment hello-main $.spec.components.frontend.dependencies.database"},
		{"an adapter", "echo: {type: HTTPAdapter}", "other: {type: HTTPAdapter}", "DependencyNotFound AppDeployment hello-main $.spec.components.frontend.dependencies.other"},
		{"a type of dependency", "echo: {type: HTTPAdapter}", "echo: {type: DBAdapter}", "DependencyInvalid AppDeployment hello-main $.spec.components.frontend.dependencies.echo"},
		{"a template", "{{.Vars.who}}", "{{.Vars.who", "ParseError HTTPAdapter echo $.spec.headers.X-A"},
		{"a secret in a template", "{{.Vars.who}}", "{{.Secrets.pw}}{{.Secrets.none}}", "VarNotFound HTTPAdapter echo $.spec.headers.X-A"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := objects(t, strings.Replace(lab, c.from, c.to, 1)).bind(contextKey{environment: "qa", deployment: "hello-main"})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range b.problems {
				got = append(got, fmt.Sprintf("%s %s %s %s", p.Type, p.Causes[0].Kind, p.Causes[0].Name, p.Causes[0].Path))
			}
			if text := strings.Join(got, "; "); text != c.want {
				t.Errorf("got  %s\nwant %s", text, c.want)
			}
			if text := problemText(b.problems); c.want != "" && (!strings.Contains(text, "path: $.spec.") || !strings.Contains(text, "type: "+b.problems[0].Type)) {
				t.Errorf("as YAML: %s", text)
			}
		})
	}
}

// An app that cannot be released is left out and told; equal rules are told, and the first environment by name has them.
func TestReleaseProblems(t *testing.T) {
	both := strings.Replace(lab, "qa:   {environment: qa}", "qa:   {environment: qa, release: {hello: {appDeployment: hello-main}}}", 1)
	for _, c := range []struct {
		name, from, to string
		rows           int
		want           []string
	}{
		{"two environments", "subPath: qa", "subPath: qa", 4, nil},
		{"one route in two environments", "subPath: qa", "subPath: prod", 4, []string{routeConflict, routeConflict}},
		{"not available", "app: hello", "app: hello\n    available: false", 0, []string{"ReleaseInvalid", "ReleaseInvalid"}},
		{"a bad rule", "PathPrefix", "PathSuffix", 0, []string{"ReleaseInvalid", "ReleaseInvalid"}},
		{"a stable environment without a version", "policy: testing, vars: {who: Universe", "policy: stable, vars: {who: Universe", 2, []string{"ReleaseInvalid"}},
		{"no deployment", "appDeployment: hello-main", "appDeployment: hello-none", 2, []string{"ReleaseInvalid"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := objects(t, strings.Replace(both, c.from, c.to, 1))
			r := o.release(o.bind)
			var got []string
			for _, p := range r.problems {
				got = append(got, p.Type)
			}
			if len(r.rows) != c.rows || !slices.Equal(got, c.want) {
				t.Errorf("%d rows, %s", len(r.rows), problemText(r.problems))
			}
		})
	}
}

func TestCleanName(t *testing.T) {
	for in, want := range map[string]string{"": "", "A_b": "a-b", "x/Y.z": "y-z", "--a--": "-a-", strings.Repeat("a", 70): strings.Repeat("a", 63), "é": ""} {
		if got := cleanName(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func FuzzObjects(f *testing.F) {
	f.Add(lab, "qa", "hello-main")
	f.Fuzz(func(t *testing.T, text, environment, deployment string) {
		o, err := ParseObjects([]byte(text))
		if err != nil {
			return
		}
		o.release(o.bind)
		if b, err := o.bind(contextKey{environment: environment, deployment: deployment}); err == nil {
			problemText(b.problems)
		}
	})
}
