//go:build unix

package components

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	own "github.com/fingerpost/fingerpost/internal/grpc"

	"github.com/fingerpost/fingerpost/internal/components/proto"
)

// cpu is the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// discard is a stream that takes what it is sent, in no time.
type discard struct{ owner own.Owner }

func (d *discard) Start(o own.Owner) { d.owner = o }
func (d *discard) Pause()            {}
func (d *discard) Resume()           {}

func (d *discard) Flush() {
	for _, ok := d.owner.Next(); ok; _, ok = d.owner.Next() {
		d.owner.Sent()
	}
	d.owner.Settle()
}

// What the broker itself does for an event from one component to another: read, routed by the table, through the node, written for the other. The streams are
// none: gRPC is not in it.
func BenchmarkComponentToComponent(b *testing.B) {
	x := startBroker(b, Options{})
	make := func(w who) *stream {
		s := newStream(x.b, &discard{})
		s.id = proto.Component{Type: typeKubeFox, App: w.app, Name: w.name, Hash: w.hash, ID: randomID()}
		s.key = s.id.Key()
		x.b.streams.put(s)
		x.must(x.b.join(s))
		s.begin()
		return s
	}
	from, to := make(frontend), make(backend)
	defer func() { from.end(errShutdown); to.end(errShutdown) }()
	defer x.b.leave(from)
	defer x.b.leave(to)
	e := &proto.Event{
		ID: proto.NewID(), ParentID: proto.NewID(), Type: typeHTTP, Category: proto.Request, CreateTime: 1 << 60, TTL: int64(time.Minute), ContentType: "text/plain", Content: []byte("hello"),
		HasContext: true, Context: proto.Context{Platform: "lab", Environment: "qa", Deployment: "hello-main"}, HasSource: true, Source: from.id,
		HasTarget: true, Target: proto.Component{Type: typeKubeFox, Name: "backend"},
		Values: []proto.Entry{{Key: "list", Value: []byte(`["a","b"]`)}, {Key: "map", Value: []byte(`{"k":["v","w"],"l":[]}`)}, {Key: "n", Value: []byte("1.5")}, {Key: "none", Value: []byte("null")}, {Key: "two", Value: []byte("2")}, {Key: "yes", Value: []byte("true")}},
	}
	m := e.Append(nil, proto.D4)
	in, f := x.b.newInlet(1000), NewFinder()
	b.ReportAllocs()
	start := cpu()
	n := 0
	for b.Loop() {
		for to.Busy() > 500 {
			runtime.Gosched()
		}
		if err := from.handleEvent(in, f, m); err != nil {
			b.Fatal(err)
		}
		in.flush()
		n++
	}
	b.ReportMetric(float64(cpu()-start)/float64(n), "cpu-ns/op")
}

// An HTTP request, a component, and the response, client and component in this process too; and the simplest that does the same: a handler that makes a unary
// gRPC call. What is reported is the processor time of all of it.
func BenchmarkRequest(b *testing.B) {
	b.Run("broker", func(b *testing.B) {
		x := startBroker(b, Options{})
		f := x.connect(frontend)
		f.handler = func(r *received) { f.respond(r, 200, "hello", nil) }
		benchGet(b, x.http+"/prod/hello")
	})
	b.Run("proxy and unary call", func(b *testing.B) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		s := grpc.NewServer(grpc.ForceServerCodecV2(frames{}))
		s.RegisterService(&grpc.ServiceDesc{ServiceName: "s", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "m",
			Handler: func(_ any, _ context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				var q frame
				if err := dec(&q); err != nil {
					return nil, err
				}
				return frame("hello"), nil
			}}}}, nil)
		go s.Serve(ln)
		defer s.Stop()
		conn, err := grpc.NewClient("passthrough:///"+ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(frames{})))
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		web, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		h := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q := MapRequest(r)
			e := (&Broker{o: Options{}.withDefaults()}).requestOf(&q, r)
			var answer frame
			if err := conn.Invoke(r.Context(), "/s/m", frame(e.Append(nil, proto.D4)), &answer); err != nil {
				w.WriteHeader(502)
				return
			}
			w.Write(answer)
		})}
		go h.Serve(web)
		defer h.Close()
		benchGet(b, "http://"+web.Addr().String()+"/prod/hello")
	})
}

// requestOf is the event of a request without a body.
func (b *Broker) requestOf(q *Request, r *http.Request) *proto.Event {
	b.now.Store(&situation{objects: &Objects{Platform: "lab"}, released: &released{}})
	return b.requestEvent(q, r, nil)
}

func benchGet(b *testing.B, url string) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	defer client.CloseIdleConnections()
	b.ReportAllocs()
	b.SetParallelism(8)
	start := cpu()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := client.Get(url)
			if err != nil {
				b.Error(err)
				return
			}
			if r.StatusCode != 200 {
				b.Error(fmt.Errorf("status %d", r.StatusCode))
			}
			io.Copy(io.Discard, r.Body)
			r.Body.Close()
		}
	})
	b.ReportMetric(float64(cpu()-start)/float64(b.N), "cpu-ns/op")
}
