package events

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/house/leaks"
	"github.com/fingerpost/fingerpost/internal/websocket"
	"github.com/fingerpost/fingerpost/routetable"
)

// asRouter in the environment makes the test program a router of its own, whose cost can be told from that of its clients.
const asRouter = "EVENTS_TEST_ROUTER"

func TestMain(m *testing.M) {
	if os.Getenv(asRouter) != "" {
		beRouter()
		return
	}
	leaks.Main(m)
}

func beRouter() {
	r := New(admin.New(routetable.New(), admin.Options{}), Options{ID: "R", WindowBytes: 32 << 20}) // soon full, as after a while
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(ln.Addr())
	go http.Serve(ln, r.Handler())
	io.Copy(io.Discard, os.Stdin)
}

// separate starts a router of its own.
func separate(b testing.TB) (address string, cpu func() time.Duration) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asRouter+"=1")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line), func() time.Duration {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		if err != nil {
			b.Skip(err)
		}
		f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		u, _ := strconv.Atoi(string(f[11]))
		s, _ := strconv.Atoi(string(f[12]))
		return time.Duration(u+s) * 10 * time.Millisecond
	}
}

// client is a component over TCP that counts what it gets.
type client struct {
	ws  *websocket.Conn
	got atomic.Int64
}

func dialClient(b testing.TB, address, name string, subscriptions ...string) *client {
	ws, err := websocket.Dial(context.Background(), "ws://"+address+"/router/manager", websocket.DialOptions{})
	if err != nil {
		b.Fatal(err)
	}
	c := &client{ws: ws}
	b.Cleanup(func() { ws.Abort(io.EOF) })
	c.send(fmt.Sprintf(`{"op":"hello","name":%q}`, name))
	c.must(b)
	for _, s := range subscriptions {
		c.send(subscribe(s, `"now"`))
		c.must(b)
	}
	return c
}

func (c *client) send(f string) {
	c.ws.Lock()
	c.ws.Append(true, []byte(f))
	c.ws.Flush()
	c.ws.Unlock()
}

func (c *client) must(b testing.TB) {
	if _, _, err := c.ws.Next(); err != nil {
		b.Fatal(err)
	}
}

// count reads events until the connection ends.
func (c *client) count() {
	for {
		m, _, err := c.ws.Next()
		if err != nil {
			c.ws.End(0, "")
			return
		}
		if bytes.HasPrefix(m.Data, []byte(`{"op":"event"`)) {
			c.got.Add(1)
		}
	}
}

// BenchmarkCopy tells what a copy costs the router: one sender, 200-byte events. An op is an event.
func BenchmarkCopy(b *testing.B) {
	for _, subscribers := range []int{1, 16} {
		b.Run(fmt.Sprint(subscribers), func(b *testing.B) {
			address, cpu := separate(b)
			var reading sync.WaitGroup
			var all []*client
			for i := range subscribers {
				c := dialClient(b, address, fmt.Sprint("S", i), "req/Order")
				all = append(all, c)
				reading.Go(c.count)
			}
			sender := dialClient(b, address, "sender")
			reading.Go(sender.count)
			before := cpu()
			b.ResetTimer()
			for sent := 0; sent < b.N; {
				n := min(100, b.N-sent)
				sender.ws.Lock()
				for range n {
					sender.ws.Append(true, []byte(frameOf200))
				}
				sender.ws.Flush()
				sender.ws.Unlock()
				sent += n
				for _, c := range all {
					for c.got.Load() < int64(sent-1000) {
						time.Sleep(50 * time.Microsecond)
					}
				}
			}
			for _, c := range all {
				for c.got.Load() < int64(b.N) {
					time.Sleep(50 * time.Microsecond)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(cpu()-before)/float64(b.N*subscribers), "router-ns/copy")
			for _, c := range append(all, sender) {
				c.ws.Abort(io.EOF)
			}
			reading.Wait()
		})
	}
}

// BenchmarkStalled tells how long events take to three components, alone and beside one that reads nothing: the worst of a hundred, in microseconds.
func BenchmarkStalled(b *testing.B) {
	for _, name := range []string{"alone", "beside a stalled one"} {
		b.Run(name, func(b *testing.B) {
			address, _ := separate(b)
			if name != "alone" {
				dialClient(b, address, "stalled", "req/Order") // it is never read from
			}
			const frame = `{"op":"event","id":"%d","type":"Order","data":{"number":123456,"customer":"Ada Lovelace, London","lines":[{"sku":"A-1","n":2}]}}`
			var latencies []time.Duration
			var mu sync.Mutex
			var reading sync.WaitGroup
			var all []*client
			for i := range 3 {
				c := dialClient(b, address, fmt.Sprint("S", i), "req/Order")
				all = append(all, c)
				reading.Go(func() {
					for {
						m, _, err := c.ws.Next()
						if err != nil {
							c.ws.End(0, "")
							return
						}
						if _, rest, ok := bytes.Cut(m.Data, []byte(`"id":"`)); ok {
							at, _ := strconv.ParseInt(string(rest[:bytes.IndexByte(rest, '"')]), 10, 64)
							mu.Lock()
							latencies = append(latencies, time.Since(time.Unix(0, at)))
							mu.Unlock()
						}
					}
				})
			}
			sender := dialClient(b, address, "sender")
			reading.Go(sender.count)
			tick := time.NewTicker(500 * time.Microsecond)
			for b.Loop() {
				<-tick.C
				sender.send(fmt.Sprintf(frame, time.Now().UnixNano()))
			}
			tick.Stop()
			time.Sleep(50 * time.Millisecond)
			for _, c := range append(all, sender) {
				c.ws.Abort(io.EOF)
			}
			reading.Wait()
			slices.Sort(latencies)
			b.ReportMetric(float64(latencies[len(latencies)*99/100].Microseconds()), "p99-us")
			b.ReportMetric(float64(latencies[len(latencies)/2].Microseconds()), "p50-us")
		})
	}
}
