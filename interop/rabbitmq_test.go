//go:build heavy

package interop

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
)

// rabbit is a RabbitMQ broker with its plugin for AMQP 1.0, the user carrot (password s3cret) and the queues jobs, kept, small (it takes one
// message) and out. What is in out goes to the address FROM-RABBIT of a router, by RabbitMQ's shovel.
type rabbit struct {
	*process
	dir, addr, epmd string
}

const rabbitProgram = "/usr/lib/rabbitmq/bin/rabbitmq-server" // as whoever runs the test; the one on the path changes the user

// rabbitPatience is how long a broker may take to start on a loaded machine.
const rabbitPatience = 3 * time.Minute

// newRabbit makes a broker that listens on addr; start starts it.
func newRabbit(t *testing.T, addr, router string) *rabbit {
	t.Helper()
	b := &rabbit{dir: t.TempDir(), addr: addr, epmd: portOf(freeAddr(t))}
	t.Cleanup(func() {
		kill := exec.Command("epmd", "-port", b.epmd, "-kill") // Erlang's port mapper, of this broker alone
		if out, err := kill.CombinedOutput(); err != nil {
			t.Errorf("epmd: %v: %s", err, out)
		}
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(b.dir, "rabbit.log"))
			t.Logf("log of RabbitMQ:\n%s", log[max(0, len(log)-16<<10):])
		}
	})
	b.write(t, "plugins", "[rabbitmq_amqp1_0,rabbitmq_shovel].")
	b.write(t, "rabbitmq.conf", "load_definitions = "+b.path("definitions.json")+"\nlog.console = false\nlog.file = "+b.path("rabbit.log")+"\nlog.file.level = warning\n")
	b.write(t, "definitions.json", b.definitions(t, router))
	return b
}

func (b *rabbit) path(name string) string { return filepath.Join(b.dir, name) }

func (b *rabbit) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(b.path(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// definitions are what the broker begins with.
func (b *rabbit) definitions(t *testing.T, router string) string {
	type object = map[string]any
	salt := "salt"
	sum := sha256.Sum256([]byte(salt + "s3cret"))
	queue := func(name string, arguments object) object {
		return object{"name": name, "vhost": "/", "durable": true, "auto_delete": false, "arguments": arguments}
	}
	text, err := json.Marshal(object{
		"users": []object{{"name": "carrot", "password_hash": base64.StdEncoding.EncodeToString([]byte(salt + string(sum[:]))),
			"hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ""}},
		"vhosts":      []object{{"name": "/"}},
		"permissions": []object{{"user": "carrot", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}},
		"queues":      []object{queue("jobs", object{}), queue("kept", object{}), queue("out", object{}), queue("small", object{"x-max-length": 1, "x-overflow": "reject-publish"})},
		"parameters": []object{{"component": "shovel", "name": "out", "vhost": "/", "value": object{
			"src-protocol": "amqp091", "src-uri": "amqp://carrot:s3cret@" + b.addr, "src-queue": "out",
			"dest-protocol": "amqp10", "dest-uri": "amqp://" + router + "?sasl=anon", "dest-address": "FROM-RABBIT", "reconnect-delay": 1,
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// run starts the broker and waits until a client can log in.
func (b *rabbit) run(t *testing.T) {
	t.Helper()
	b.process = start(t, "rabbitmq", "/usr/bin/env", "HOME="+b.dir, "ERL_EPMD_PORT="+b.epmd, "RABBITMQ_NODENAME=fingerpost-"+portOf(b.addr)+"@localhost",
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1", "RABBITMQ_NODE_PORT="+portOf(b.addr), "RABBITMQ_DIST_PORT="+portOf(freeAddr(t)),
		"RABBITMQ_MNESIA_BASE="+b.path("mnesia"), "RABBITMQ_LOG_BASE="+b.path("log"), "RABBITMQ_ENABLED_PLUGINS_FILE="+b.path("plugins"),
		"RABBITMQ_CONFIG_FILE="+b.path("rabbitmq.conf"), "RABBITMQ_PID_FILE="+b.path("pid"), "RABBITMQ_CONF_ENV_FILE=/dev/null",
		"RABBITMQ_GENERATED_CONFIG_DIR="+b.path("generated"), "RABBITMQ_FEATURE_FLAGS_FILE="+b.path("features"), rabbitProgram)
	t.Cleanup(b.end)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(rabbitPatience); ; <-tick.C {
		conn, err := b.dial(t)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("RabbitMQ does not start: %v\n%s", err, b.log)
		}
	}
}

// end has the broker end in order, which takes it a while.
func (b *rabbit) end() {
	b.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-b.ended:
	case <-time.After(rabbitPatience):
		b.t.Errorf("RabbitMQ did not end within %v of SIGTERM", rabbitPatience)
	}
}

// crash ends the broker at once.
func (b *rabbit) crash(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(b.path("pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.wait()
}

func (b *rabbit) dial(t *testing.T) (*amqp.Conn, error) {
	return amqp.Dial(within(t), "amqp://"+b.addr, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain("carrot", "s3cret")})
}

func (b *rabbit) session(t *testing.T) *amqp.Session {
	t.Helper()
	conn, err := b.dial(t)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s, err := conn.NewSession(within(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// take receives from a queue and accepts, until enough says that it is enough. Each link has its first credit alone: RabbitMQ 3 loses
// count of what it is given later.
func (b *rabbit) take(t *testing.T, queue string, enough func(*amqp.Message) bool) {
	t.Helper()
	for had := 0; !b.takeSome(t, queue, had, enough); had += someCredit {
	}
}

const someCredit = 500

func (b *rabbit) takeSome(t *testing.T, queue string, had int, enough func(*amqp.Message) bool) bool {
	t.Helper()
	conn, err := b.dial(t)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s, err := conn.NewSession(within(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := s.NewReceiver(within(t), "/amq/queue/"+queue, &amqp.ReceiverOptions{Credit: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := receiver.IssueCredit(someCredit); err != nil {
		t.Fatal(err)
	}
	for n := range someCredit {
		m, err := receiver.Receive(within(t), nil)
		if err != nil {
			t.Fatalf("queue %s: after %d messages: %v", queue, had+n, err)
		}
		if err := receiver.AcceptMessage(within(t), m); err != nil {
			t.Fatal(err)
		}
		if enough(m) {
			return true
		}
	}
	return false
}

// A broker as the next hop, by a login of the configuration, and as one that sends.
func TestRabbitMQ(t *testing.T) {
	addr := freeAddr(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"r.routes": rows("JOBS", "amqp://"+addr+"//amq/queue/jobs", "KEPT", "amqp://"+addr+"//amq/queue/kept", "SMALL", "amqp://"+addr+"//amq/queue/small", "NO-SUCH", "amqp://"+addr+"//exchange/no-such/key"),
		"password": "s3cret\n",
		"r.yaml": "tables: [r.routes]\nlisteners: [{url: \"amqp://127.0.0.1:0\"}]\nlimits: {deliveryTimeout: 10s}\n" +
			"hops: [{url: \"amqp://" + addr + "\", user: carrot, passwordFile: password}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, "router", routerProgram, "--config", filepath.Join(dir, "r.yaml"))
	r := &router{process: p, addr: strings.TrimPrefix(p.line(), "ready amqp://")}
	b := newRabbit(t, addr, r.addr)
	b.run(t)

	t.Run("messages of every client arrive in a queue", func(t *testing.T) { rabbitTakesFromAll(t, r, b) })
	t.Run("outcomes come back", func(t *testing.T) { rabbitOutcomes(t, r) })
	t.Run("its shovel sends", func(t *testing.T) { rabbitSends(t, r, b) })
	t.Run("it restarts under load", func(t *testing.T) { rabbitRestarts(t, r, b) })
}

func rabbitTakesFromAll(t *testing.T, r *router, b *rabbit) {
	var want, have []got
	for _, kind := range allClients {
		batch := batchOf{address: "JOBS", to: "JOBS", id: kind, count: 12, sizes: []int{0, 10, 5_000, 200_000}}
		sameOutcomes(t, kind, sendBy(t, kind, r.url(), batch), "accepted")
		want = append(want, batch.want()...)
	}
	b.take(t, "jobs", func(m *amqp.Message) bool { have = append(have, gotOf(m)); return len(have) >= len(want) })
	sameMessages(t, "the queue", have, want)
}

// RabbitMQ 3 breaks of a message that its queue is too full for, and the connection with it: it is sent again until its time is over, and
// the sender told. A link that RabbitMQ refuses, by the end of its session, is tried until the message's time is over, and
// does not hold the others up.
func rabbitOutcomes(t *testing.T, r *router) {
	session := dialGo(t, r.url())
	told := func(name string) (string, time.Duration) {
		s, err := session.NewSender(within(t), name, nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		return sendOne(t, s, amqp.NewMessage([]byte("x"))), time.Since(began)
	}
	if got, _ := told("SMALL"); got != "accepted" {
		t.Errorf("the first message of a small queue: %s", got)
	}
	if got, _ := told("SMALL"); got != "modified" && got != "released" && got != "rejected" {
		t.Errorf("a message to a full queue: %s", got)
	}
	lost := make(chan string, 1)
	go func() {
		got, _ := told("NO-SUCH")
		lost <- got
	}()
	for i := 0; ; i++ {
		select {
		case got := <-lost:
			if got != "released" {
				t.Errorf("a message to an exchange that there is not: %s", got)
			}
			if i < 3 {
				t.Errorf("meanwhile %d others went by", i)
			}
			return
		default:
			if got, took := told("JOBS"); got != "accepted" {
				t.Errorf("another message: %s after %v", got, took)
			}
		}
	}
}

func rabbitSends(t *testing.T, r *router, b *rabbit) {
	const count = 20
	receiver, err := dialGo(t, r.url()).NewReceiver(within(t), "FROM-RABBIT", &amqp.ReceiverOptions{Credit: 50})
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.session(t).NewSender(within(t), "/amq/queue/out", nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range count {
		if got := sendOne(t, out, amqp.NewMessage(bodyOf(n, 10+n))); got != "accepted" {
			t.Fatalf("RabbitMQ: %s", got)
		}
	}
	seen := map[string]bool{}
	for len(seen) < count {
		m, err := receiver.Receive(within(t), nil)
		if err != nil {
			t.Fatalf("after %d messages: %v", len(seen), err)
		}
		if err := receiver.AcceptMessage(within(t), m); err != nil {
			t.Fatal(err)
		}
		seen[shaOf(m.GetData())] = true
	}
	for n := range count {
		if !seen[shaOf(bodyOf(n, 10+n))] {
			t.Errorf("message %d did not come", n)
		}
	}
}

// steady sends numbered durable messages to a name, 200 a second, until stop, and counts what became of them.
type steady struct {
	mu       sync.Mutex
	accepted map[int]bool
	outcomes map[string]int
}

func (s *steady) run(ctx context.Context, t *testing.T, url, name string) {
	sender, err := dialGo(t, url).NewSender(within(t), name, nil)
	if err != nil {
		t.Error(err)
		return
	}
	var wait sync.WaitGroup
	defer wait.Wait()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m := amqp.NewMessage([]byte(strconv.Itoa(n)))
		m.Header = &amqp.MessageHeader{Durable: true}
		sending, cancel := context.WithTimeout(context.Background(), 2*rabbitPatience)
		receipt, err := sender.SendWithReceipt(sending, m, nil)
		if err != nil {
			cancel()
			t.Errorf("send: %v", err)
			return
		}
		wait.Go(func() {
			defer cancel()
			state, err := receipt.Wait(sending)
			s.mu.Lock()
			defer s.mu.Unlock()
			if err != nil {
				t.Errorf("message %d: %v", n, err)
				return
			}
			o := stateInWords(state)
			s.outcomes[o]++
			if o == "accepted" {
				s.accepted[n] = true
			}
		})
	}
}

// The broker restarts, and crashes, in the middle. What was accepted is in its queue.
func rabbitRestarts(t *testing.T, r *router, b *rabbit) {
	s := &steady{accepted: map[int]bool{}, outcomes: map[string]int{}}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run(ctx, t, r.url(), "KEPT")
	}()
	defer func() { stop(); <-done }()
	some := func() {
		s.mu.Lock()
		had := s.outcomes["accepted"]
		s.mu.Unlock()
		eventually(t, "messages are accepted", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.outcomes["accepted"] > had+200
		})
	}
	some()
	b.end()
	b.run(t)
	some()
	b.crash(t)
	b.run(t)
	some()
	stop()
	<-done
	left := len(s.accepted)
	total := 0
	b.take(t, "kept", func(m *amqp.Message) bool {
		total++
		n, err := strconv.Atoi(string(m.GetData()))
		if err != nil {
			t.Fatalf("got %q", m.GetData())
		}
		if s.accepted[n] {
			s.accepted[n] = false
			left--
		}
		return left == 0
	})
	t.Logf("outcomes %v; %d messages taken from the queue", fmt.Sprint(s.outcomes), total)
}
