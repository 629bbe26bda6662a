//go:build soak

package interop

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/internal/house/certs"
)

// Three routers and clients of all kinds live with whatever can go wrong, for the time that SOAK says: connections are cut and held up, routers
// are killed, receivers are slow or gone, the table, its file, users and certificates change. In the end every message that was accepted is
// at its receivers, and the router that nobody killed is as small as it was.
func TestSoakChaos(t *testing.T) {
	span, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil {
		t.Fatalf("SOAK: %v: make soak SOAK=10m", err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	x := newChaos(t, rand.New(rand.NewPCG(seed, 0)))
	began := time.Now()
	settled := min(time.Minute, span/3) // from then on it does not grow
	var early vitals
	for round := 0; time.Since(began) < span && !t.Failed(); round++ {
		x.trouble(min(10*time.Second, span/6))
		x.foreigners(round)
		if early.goroutines == 0 && time.Since(began) > settled {
			early = x.vitals()
		}
		t.Logf("%v: %v, %s", time.Since(began).Round(time.Second), x.vitals(), x.progress(time.Since(began)))
	}
	x.finish(early)
}

// vitals is how large a process is.
type vitals struct{ residentKiB, goroutines, descriptors int }

func (v vitals) String() string {
	return fmt.Sprintf("%d MiB, %d goroutines, %d descriptors", v.residentKiB>>10, v.goroutines, v.descriptors)
}

// path is a way that messages go: who sends them, and who must have them.
type path struct {
	ship   *shipper
	all    bool // each place gets a copy; else one of them
	places []*resting
}

// resting is where messages end.
type resting struct {
	name   string
	server *rawServer // one of the two
	taker  *taker

	mu   sync.Mutex // guards what follows
	came []taken
}

func (r *resting) take(d *rawDelivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.came = append(r.came, takenOf(d))
}

func (r *resting) all() []taken {
	if r.taker != nil {
		return r.taker.all()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.came[:len(r.came):len(r.came)]
}

// chaos is what TestSoakChaos runs.
type chaos struct {
	t           *testing.T
	rnd         *rand.Rand
	dir         string
	ca          *certs.Authority
	edge        *router // lives all the time
	secure      string  // its address with TLS
	metrics     string
	middle, end *daemon
	cables      []*cable
	paths       map[string]*path
	slow        atomic.Int64 // Unix nanoseconds: until then takers are
	mischief    map[string]int

	ctx        context.Context // of takers
	leave      context.CancelFunc
	takers     sync.WaitGroup
	senders    sync.WaitGroup
	enough     chan struct{}
	failures   []error // of senders, when they are done
	failuresMu sync.Mutex
	logins     atomic.Int64
	taps       int
}

func newChaos(t *testing.T, rnd *rand.Rand) *chaos {
	x := &chaos{t: t, rnd: rnd, dir: t.TempDir(), ca: certs.New(t), paths: map[string]*path{}, mischief: map[string]int{}, enough: make(chan struct{})}
	x.ctx, x.leave = context.WithCancel(context.Background())
	t.Cleanup(x.leave)
	program := filepath.Join(x.dir, "router")
	build := exec.Command("go", "build", "-o", program, "./cmd/router") // without the race detector: it is measured
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the router: %v\n%s", err, out)
	}
	// End, middle and edge, each of which leads to the one before by a cable.
	x.end = startDaemon(t, routerProgram, "end", x.write("end.routes", ""))
	x.middle = startDaemon(t, routerProgram, "middle", x.write("middle.routes", rows("chain", "amqp://"+x.lay(x.end.addr)+"/chain", "fan", "amqp://"+x.lay(x.end.addr)+"/fan")))
	x.startEdge(program)
	x.wirePaths()
	return x
}

func (x *chaos) write(name, text string) string {
	writeFile(x.t, filepath.Join(x.dir, name), text)
	return filepath.Join(x.dir, name)
}

// lay leads a cable to an address, and gives its own.
func (x *chaos) lay(to string) string {
	c := layCable(x.t, to)
	x.cables = append(x.cables, c)
	return c.addr
}

func (x *chaos) listening(name string) *resting {
	r := &resting{name: name}
	r.server = listenRaw(x.t, func(d *rawDelivery) []byte {
		r.take(d)
		return composite(accepted)
	})
	r.server.forgets = true
	return r
}

func (x *chaos) attached(name, addr, from string) *resting {
	tk := newTaker(addr, from)
	tk.second = x.rnd.IntN(2) == 0
	tk.work = func(int) {
		if d := time.Until(time.Unix(0, x.slow.Load())); d > 0 {
			pause(x.ctx, d)
		}
	}
	x.takers.Go(func() { tk.take(x.ctx) })
	return &resting{name: name, taker: tk}
}

// startEdge runs the router that is measured.
func (x *chaos) startEdge(program string) {
	x.certificate()
	x.write("ca.crt", string(x.ca.PEM))
	f := &fortress{dir: x.dir}
	f.userAdd(x.t, "s3cret", "alice", "--send", "secure")
	x.write("edge.routes", rows("secure", "null"))
	config := x.write("edge.yaml", `name: edge
listeners:
  - {url: "amqp://127.0.0.1:0"}
  - {url: "amqps://127.0.0.1:0", tls: {cert: edge.crt, key: edge.key}, sasl: [SCRAM-SHA-256, PLAIN]}
users: users.yaml
http: {listen: "127.0.0.1:0"}
tables: [edge.routes]
limits: {deliveryTimeout: 15s}
`)
	p := start(x.t, "router edge", program, "--config", config)
	x.edge = &router{process: p}
	for range 3 {
		scheme, addr, _ := strings.Cut(strings.TrimPrefix(p.line(), "ready "), "://")
		switch scheme {
		case "amqp":
			x.edge.addr = addr
		case "amqps":
			x.secure = addr
		case "http":
			x.metrics = "http://" + strings.TrimSuffix(addr, "/") + "/metrics"
		}
	}
}

func (x *chaos) certificate() {
	cert, key := x.ca.Issue(x.t, "edge")
	x.write("edge.crt", string(cert))
	x.write("edge.key", string(key))
}

// wirePaths sets up rows, receivers and senders.
func (x *chaos) wirePaths() {
	one, two, three := x.listening("one"), x.listening("two"), x.listening("three")
	url := func(r *resting) string { return "amqp://" + x.lay(r.server.addr) }
	x.edge.ctl(x.t, "add", "chain", "amqp://"+x.lay(x.middle.addr)+"/chain")
	x.edge.ctl(x.t, "add", "fan", "amqp://"+x.lay(x.middle.addr)+"/fan")
	x.edge.ctl(x.t, "add", "fan", url(one))
	x.path("chain", true, 150, x.attached("the end of the chain", x.lay(x.end.addr), "chain"))
	x.path("fan", true, 150, one, x.attached("the far end of the fan", x.lay(x.end.addr), "fan"), x.attached("the near end of the fan", x.lay(x.edge.addr), "fan"))
	for _, r := range []*resting{two, three} {
		x.edge.ctl(x.t, "add", "share", url(r), "--pick", "any")
	}
	x.path("share", false, 300, two, three)
	four, five := x.listening("four"), x.listening("five")
	for _, r := range []*resting{four, five} {
		x.edge.ctl(x.t, "add", "first", url(r), "--pick", "first")
	}
	x.path("first", false, 150, four, five)
	six := x.listening("six")
	x.edge.ctl(x.t, "add", "loose", url(six))
	loose := x.path("loose", true, 500, six)
	loose.ship.message = func(n int) ([]byte, bool) { return numbered(n, 200), true }
	for name, p := range x.paths {
		x.senders.Go(func() {
			err := p.ship.ship(context.Background())
			x.failuresMu.Lock()
			defer x.failuresMu.Unlock()
			if err != nil {
				x.failures = append(x.failures, fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	x.senders.Go(x.loginAgainAndAgain)
}

// path makes a way of so many messages a second.
func (x *chaos) path(name string, all bool, rate int, places ...*resting) *path {
	for _, r := range places {
		if r.taker != nil {
			<-r.taker.up
		}
	}
	sizes := []int{100, 100, 100, 2000, 60_000, 100, 100, 300, 300, 100}
	p := &path{all: all, places: places}
	every := time.NewTicker(time.Second / time.Duration(rate))
	x.t.Cleanup(every.Stop)
	p.ship = &shipper{addr: x.lay(x.edge.addr), to: name, second: x.rnd.IntN(2) == 0, total: 1 << 40, window: 16, enough: x.enough,
		pace: func(int) { <-every.C },
		message: func(n int) ([]byte, bool) {
			if n%997 == 500 {
				return numbered(n, 4<<20), false
			}
			return numbered(n, sizes[n%len(sizes)]), false
		}}
	x.paths[name] = p
	return p
}

// loginAgainAndAgain connects with TLS, sends a little, and leaves.
func (x *chaos) loginAgainAndAgain() {
	every := time.NewTicker(200 * time.Millisecond)
	defer every.Stop()
	for !isDone(x.enough) {
		<-every.C
		if err := x.login(); err != nil {
			x.failuresMu.Lock()
			x.failures = append(x.failures, fmt.Errorf("a client with a password and TLS: %w", err))
			x.failuresMu.Unlock()
			return
		}
		x.logins.Add(1)
	}
}

func (x *chaos) login() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := amqp.Dial(ctx, "amqps://"+x.secure, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain("alice", "s3cret"), TLSConfig: &tls.Config{RootCAs: x.ca.Pool}})
	if err != nil {
		return err
	}
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	sender, err := session.NewSender(ctx, "secure", nil)
	if err != nil {
		return err
	}
	return sender.Send(ctx, amqp.NewMessage([]byte("x")), nil)
}

// trouble makes trouble for some time.
func (x *chaos) trouble(d time.Duration) {
	until := time.Now().Add(d)
	for time.Now().Before(until) {
		pause(x.ctx, time.Duration(100+x.rnd.IntN(900))*time.Millisecond)
		list := x.troubles()
		one := list[x.rnd.IntN(len(list))]
		x.mischief[one.name]++
		one.do()
	}
}

type trouble struct {
	name string
	do   func()
}

func (x *chaos) troubles() []trouble {
	c := x.cables[x.rnd.IntN(len(x.cables))]
	return []trouble{
		{"cut", c.cut}, {"cut", c.cut}, {"cut", c.cut},
		{"reset", func() { c.each((*strand).reset) }},
		{"swallow", func() { c.each(func(s *strand) { s.swallow(500 * time.Millisecond) }) }},
		{"trap", func() { x.trap(c) }}, {"trap", func() { x.trap(c) }}, {"trap", func() { x.trap(c) }},
		{"slow receivers", func() { x.slow.Store(time.Now().Add(2 * time.Second).UnixNano()) }},
		{"kill -9 in the middle", func() { x.again(x.middle) }},
		{"kill -9 at the end", func() { x.again(x.end) }},
		{"edit", x.edit},
		{"table file", func() {
			x.write("edge.routes", rows("secure", "null", fmt.Sprintf("other/%d", x.rnd.IntN(100)), "null"))
		}},
		{"users", x.users},
		{"certificate", x.certificate},
		{"SIGHUP", func() { x.edge.cmd.Process.Signal(syscall.SIGHUP) }},
	}
}

// each does harm to every strand of a cable.
func (c *cable) each(harm func(*strand)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.strands {
		harm(s)
	}
}

// trap sets a trap that springs at some frame to come.
func (x *chaos) trap(c *cable) {
	m := moments[x.rnd.IntN(len(moments))]
	c.set(&trap{up: x.rnd.IntN(2) == 0, code: m.code, more: m.more, at: m.at, nth: int32(1 + x.rnd.IntN(50)), spring: func(s *strand) { s.cut() }})
}

func (x *chaos) again(d *daemon) {
	d.kill()
	if err := d.start(); err != nil {
		x.t.Error(err)
	}
}

// edit changes rows that no path counts on.
func (x *chaos) edit() {
	tap := "amqp://127.0.0.1:9/tap"
	if x.taps++; x.taps%2 == 1 {
		x.edge.ctl(x.t, "add", "fan", tap, "--optional")
		x.edge.ctl(x.t, "add", "share", "null", "--optional")
		return
	}
	x.edge.ctl(x.t, "delete", "fan", tap)
	x.edge.ctl(x.t, "delete", "share", "null")
}

func (x *chaos) users() {
	f := &fortress{dir: x.dir}
	f.userAdd(x.t, "pw", fmt.Sprintf("user-%d", x.rnd.IntN(1_000_000_000)))
}

// foreigners has foreign clients send and receive.
func (x *chaos) foreigners(round int) {
	kind := allClients[round%len(allClients)]
	name := fmt.Sprintf("foreign/%d", round)
	b := batchOf{address: name, to: name, id: "m", count: 10, sizes: []int{100, 1 << 20}}
	ok := x.t.Run(kind, func(t *testing.T) {
		received := receiveBy(t, kind, x.edge.url(), b.address, b.count)
		sameOutcomes(t, kind, sendBy(t, kind, x.edge.url(), b), "accepted")
		sameMessages(t, kind, received(), b.want())
	})
	_ = ok
}

func (x *chaos) vitals() vitals {
	http.DefaultClient.CloseIdleConnections()
	return vitals{residentKiB(x.t, x.edge.cmd.Process.Pid), scrape(x.t, x.metrics, "go_goroutines "), scrape(x.t, x.metrics, "process_open_fds ")}
}

// progress tells how far the paths are, by what arrived.
func (x *chaos) progress(since time.Duration) string {
	var b strings.Builder
	for _, name := range sortedKeys(x.paths) {
		n := 0
		for _, r := range x.paths[name].places {
			n += len(r.all())
		}
		fmt.Fprintf(&b, "%s %.0f/s, ", name, float64(n)/since.Seconds())
	}
	fmt.Fprintf(&b, "%d logins", x.logins.Load())
	return b.String()
}

// finish lets everything come to rest, and accounts for it.
func (x *chaos) finish(early vitals) {
	for _, c := range x.cables {
		c.set(nil)
	}
	close(x.enough)
	x.senders.Wait()
	for _, err := range x.failures {
		x.t.Error(err)
	}
	for _, name := range sortedKeys(x.paths) {
		x.account(name, x.paths[name])
	}
	x.leave()
	x.takers.Wait()
	x.t.Logf("trouble: %v", x.mischief)
	x.flat(early)
}

// flat: what the edge holds is what it held before.
func (x *chaos) flat(early vitals) {
	var late vitals
	eventually(x.t, "the edge is as it was", func() bool {
		late = x.vitals()
		return late.goroutines <= early.goroutines+10 && late.descriptors <= early.descriptors+10
	})
	x.t.Logf("after a minute %v, at the end %v", early, late)
	if late.residentKiB > early.residentKiB*3/2+64<<10 {
		x.t.Errorf("the edge grew from %v to %v", early, late)
	}
}

// account holds what senders were told to what receivers have.
func (x *chaos) account(name string, p *path) {
	counts := map[string]int{}
	wrong, longest := 0, time.Duration(0)
	fail := func(format string, a ...any) {
		if wrong++; wrong <= 10 {
			x.t.Errorf(name+": "+format, a...)
		}
	}
	had := make([]map[int]int, len(p.places))
	for i, r := range p.places {
		had[i] = map[int]int{}
		first := map[int]taken{} // of those that do not say that they come again
		for _, m := range r.all() {
			if had[i][m.n]++; had[i][m.n] > 1 {
				counts["again"]++
			}
			switch f, ok := first[m.n]; {
			case m.again:
			case ok:
				fail("message %d came to %s at %v and again at %v, and does not say so", m.n, r.name, f.at, m.at)
			default:
				first[m.n] = m
				if had[i][m.n] > 1 { // it was behind a large one on a connection that broke, and is read when it was sent again by another
					counts["overtaken"]++
				}
			}
			if m.n >= len(p.ship.attempts) {
				fail("message %d was never sent, and is at %s", m.n, r.name)
			}
		}
	}
	for n := range p.ship.attempts {
		a := &p.ship.attempts[n]
		switch {
		case a.settled:
			counts["pre-settled"]++
		case a.cut:
			counts["no outcome"]++
		default:
			counts[a.outcome]++
		}
		longest = max(longest, a.ended.Sub(a.sent))
		if a.outcome == "accepted" {
			x.arrived(p, n, had, fail)
		} else if a.outcome != "" && a.outcome != "modified" && a.outcome != "released" {
			fail("message %d: %s", n, a.outcome)
		}
	}
	if p.ship.stalls > 0 {
		fail("its sender was left without a word for %v, %d times", patience, p.ship.stalls)
	}
	x.t.Logf("%s: %v, its sender was cut off %d times, an outcome took %v at most", name, counts, p.ship.cuts, longest.Round(time.Millisecond))
}

// arrived: an accepted message is where it belongs. Who attaches at the edge has it if they were there all the time: their row goes with them.
func (x *chaos) arrived(p *path, n int, had []map[int]int, fail func(string, ...any)) {
	some := 0
	for i, r := range p.places {
		some += had[i][n]
		mayMiss := r.taker != nil && len(p.places) > 1 && i == 2 && !r.taker.owes(&p.ship.attempts[n])
		if p.all && had[i][n] == 0 && !mayMiss {
			fail("message %d was accepted, and is not at %s", n, r.name)
		}
	}
	if some == 0 {
		fail("message %d was accepted, and is nowhere", n)
	}
}
