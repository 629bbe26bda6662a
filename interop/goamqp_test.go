//go:build heavy

package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// needAStore are the integration tests of go-amqp that send, wait for accepted, and attach a receiver afterwards. A router keeps no
// messages: it says accepted when a receiver has said so, and there is none yet.
var needAStore = map[string]string{
	"TestIntegrationRoundTrip_Buffered":  "3 messages are sent before the receiver attaches",
	"TestReceiverModeFirst":              "all messages are sent before the receiver attaches",
	"TestSenderExactlyOnce":              "the message is sent before the receiver attaches",
	"TestReceivingLotsOfSettledMessages": "20 messages are sent before the receiver attaches",
	"TestSenderNullValue":                "the message is sent before the receiver attaches",
	"TestDrainingLink":                   "the message is to be accepted before the receiver, which is there, gives any credit",
}

// go-amqp's own integration tests, which are made for brokers, pass against a router: all but those that need a store.
func TestIntegrationTestsOfGoAMQP(t *testing.T) {
	program, names := buildGoAMQP(t)
	for name := range needAStore {
		if !slices.Contains(names, name) {
			t.Errorf("%s is left out, and is no test of this version", name)
		}
	}
	// 100 senders send there with no receiver at all; nobody looks at what becomes of the messages.
	table := rows("TestMultipleSendersSharedSession", "null")
	file := filepath.Join(t.TempDir(), "nobody.routes")
	if err := os.WriteFile(file, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFortress(t, "PLAIN, ANONYMOUS", "tables: ["+file+"]\n")
	f.userAdd(t, "s3cret", "gopher")
	eventually(t, "the new user can log in", func() bool {
		p := start(t, "routectl", routectlProgram, "--url", f.at("gopher"), "--ca", f.path("ca.crt"), "send", "--settled", "x", "y")
		return p.wait() != 3
	})
	for name, url := range map[string]string{
		"TCP": startRouter(t, "plain", table).url(), "TLS and ANONYMOUS": f.at(""), "TLS and PLAIN": f.at("gopher"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runGoAMQP(t, program, url, f.path("ca.crt"), names)
		})
	}
}

// buildGoAMQP builds the tests of the go-amqp module that this one uses, from a copy of its source, and gives their names.
func buildGoAMQP(t *testing.T) (program string, names []string) {
	t.Helper()
	where, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/Azure/go-amqp").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(strings.TrimSpace(string(where)))); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "integration_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	program = filepath.Join(dir, "integration.test")
	build := exec.Command("go", "test", "-mod=mod", "-c", "-o", program, ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the tests of go-amqp: %v\n%s", err, out)
	}
	return program, names
}

// runGoAMQP runs them, but those that need a store, and fails where one does not pass.
func runGoAMQP(t *testing.T, program, url, ca string, names []string) {
	t.Helper()
	skip := "^(" + strings.Join(sortedKeys(needAStore), "|") + ")$"
	cmd := exec.CommandContext(t.Context(), program, "-test.v", "-test.timeout=3m", "-test.run=^("+strings.Join(names, "|")+")$", "-test.skip="+skip)
	cmd.Dir = filepath.Dir(program)
	cmd.Env = append(os.Environ(), "AMQP_BROKER_ADDR="+url, "SSL_CERT_FILE="+ca)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("the tests of go-amqp: %v\n%s", err, out)
	}
	passed := 0
	for _, name := range names {
		if _, ok := needAStore[name]; ok {
			continue
		}
		if !strings.Contains(string(out), fmt.Sprintf("--- PASS: %s (", name)) {
			t.Errorf("%s has not passed", name)
			continue
		}
		passed++
	}
	t.Logf("%d passed, %d need a store", passed, len(needAStore))
}
