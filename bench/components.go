package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/context/attribute_context"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/fingerpost/fingerpost/messenger/component"
)

// componentGoal is the CPU time of the router for a request from one component to another and its response, in ns.
const componentGoal = 15e3

// ttl of a request, with the router as with the peer.
const ttl = time.Minute

// parts are the programs of which the measurement of components consists: this one again, with the name of a part and an address as its arguments.
var parts = map[string]func(address string){
	"part-proxy": partProxy, "part-server": partServer, "part-components": partComponents,
}

// lab is what the router of the measurement is told: two components, and that one is released.
const lab = `
platform: lab
environments: {prod: {vars: {}}}
virtualEnvironments: {prod: {environment: prod, release: {hello: {appDeployment: main}}}}
deployments:
  main:
    app: hello
    components:
      frontend: {hash: aaaaaaa, routes: [{id: 0, rule: "Path('/hello')"}, {id: 1, rule: "Path('/calls/{n}')"}], dependencies: {backend: {type: KubeFox}}}
      backend: {hash: bbbbbbb, defaultHandler: true}
components:
  - {app: hello, name: frontend, hash: aaaaaaa, token: t}
  - {app: hello, name: backend, hash: bbbbbbb, token: t}
`

// measureComponents has a router bring HTTP requests to a component and its responses back, and beside it the simplest Go program that does the
// same: a handler that makes a unary gRPC call. What counts is the CPU time of the router and of that program; client and component are others.
func measureComponents(s settings) []line {
	dir, err := os.MkdirTemp(s.dir, "bench")
	check(err)
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "router")
	build := exec.Command("go", "build", "-o", program, "./cmd/router")
	build.Dir, build.Stderr = "..", os.Stderr
	check(build.Run())
	check(os.WriteFile(filepath.Join(dir, "components.yaml"), []byte(strings.ReplaceAll(lab, "'", "`")), 0o600))
	config := "components: {file: components.yaml, grpc: 127.0.0.1:0, genesis: 127.0.0.1:0}\nnats: off\nlisteners: [{url: \"amqp://127.0.0.1:0\"}]\n"
	check(os.WriteFile(filepath.Join(dir, "router.yaml"), []byte(config), 0o600))

	router := startPart(program, "--config", filepath.Join(dir, "router.yaml"))
	defer router.end()
	grpcAt, webAt := router.ready("ready grpc://"), router.ready("ready genesis+http://")
	components := startPart(os.Args[0], "part-components", grpcAt)
	defer components.end()
	components.ready("ready")
	server := startPart(os.Args[0], "part-server", "127.0.0.1:0")
	defer server.end()
	proxy := startPart(os.Args[0], "part-proxy", server.ready("ready "))
	defer proxy.end()
	proxyAt := proxy.ready("ready ")

	count := int(s.turn.Milliseconds()) * 20
	var lines []line
	for _, clients := range []int{1, 8, 64} {
		turn := func(p *part, at string) func() float64 {
			get(at, "/hello", 200, clients)
			return func() float64 {
				start := p.cpu()
				get(at, "/hello", count, clients)
				return float64(p.cpu()-start) / float64(count)
			}
		}
		took := interleave(s.count, turn(router, webAt), turn(proxy, proxyAt))
		l := newLine(fmt.Sprintf("HTTP request, component, response: CPU of the router, %d clients", clients), ns, took[0]).against("handler and unary call", took[1])
		lines = append(lines, l.note("%s", verdict(2*l.Value <= median(took[1]))))
	}
	for _, clients := range []int{1, 8, 64} {
		call := func() float64 {
			start := router.cpu()
			calls := 10 * count / clients // for each of the requests
			get(webAt, fmt.Sprintf("/calls/%d", calls), clients, clients)
			return float64(router.cpu()-start) / float64(calls*clients)
		}
		call()
		lines = append(lines, newLine(fmt.Sprintf("component to component and back: CPU of the router, %d at a time", clients), ns, interleave(s.count, call)[0]).atMost(componentGoal))
	}
	return lines
}

// part is a running program.
type part struct {
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Scanner
}

func startPart(program string, args ...string) *part {
	cmd := exec.Command(program, args...)
	in, err := cmd.StdinPipe()
	check(err)
	out, err := cmd.StdoutPipe()
	check(err)
	check(cmd.Start())
	return &part{cmd, in, bufio.NewScanner(out)}
}

// ready waits for a line and gives what follows the prefix.
func (p *part) ready(prefix string) string {
	for p.out.Scan() {
		if rest, ok := strings.CutPrefix(p.out.Text(), prefix); ok {
			return rest
		}
	}
	check(fmt.Errorf("%s ended before it was ready", p.cmd.Path))
	return ""
}

// cpu is the CPU time that the program has used, in ns.
func (p *part) cpu() int64 { return processTime(p.cmd.Process.Pid) }

func (p *part) end() {
	p.in.Close()
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// get makes requests over so many connections, the next on each when the last is answered.
func get(at, path string, requests, clients int) {
	var running sync.WaitGroup
	defer running.Wait()
	for i := range clients {
		n := requests / clients
		if i < requests%clients {
			n++
		}
		running.Go(func() {
			conn, err := net.Dial("tcp", at)
			check(err)
			defer conn.Close()
			r := bufio.NewReader(conn)
			request := []byte("GET " + path + " HTTP/1.1\r\nHost: lab\r\nUser-Agent: bench/1\r\nAccept: */*\r\nX-Trace: 6f0c\r\n\r\n")
			for range n {
				_, err := conn.Write(request)
				check(err)
				answer, err := http.ReadResponse(r, nil)
				check(err)
				body, err := io.ReadAll(answer.Body)
				check(err)
				if answer.StatusCode != 200 || string(body) != "hello" {
					check(fmt.Errorf("%s: status %d: %s", path, answer.StatusCode, body))
				}
			}
		})
	}
}

// whileRead waits for the end of standard input: of whoever started the part.
func whileRead() { io.Copy(io.Discard, os.Stdin) }

// partComponents is the two components: the frontend answers, or has the backend answer n requests, one after the other.
func partComponents(broker string) {
	connect := func(name, hash string, handle func(context.Context, *component.Component, *component.Request) (*component.Response, error)) {
		_, err := component.Connect(context.Background(), component.Options{Broker: broker, Platform: "lab", App: "hello", Name: name, Hash: hash, Token: "t", Handle: handle})
		check(err)
	}
	hello := &component.Response{ContentType: "text/plain", Content: []byte("hello")}
	connect("backend", "bbbbbbb", func(context.Context, *component.Component, *component.Request) (*component.Response, error) {
		return hello, nil
	})
	connect("frontend", "aaaaaaa", func(ctx context.Context, c *component.Component, r *component.Request) (*component.Response, error) {
		n := 0
		fmt.Sscanf(r.Params["n"], "%d", &n)
		for range n {
			if _, err := c.Call(ctx, r, "backend", &component.Request{Content: []byte("hello")}); err != nil {
				return nil, err
			}
		}
		return hello, nil
	})
	fmt.Println("ready")
	whileRead()
}

// partServer answers the unary call.
func partServer(address string) {
	ln, err := net.Listen("tcp", address)
	check(err)
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "bench", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "Hello",
		Handler: func(_ any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			if err := read(&attribute_context.AttributeContext_Request{}); err != nil {
				return nil, err
			}
			return wrapperspb.String("hello"), nil
		}}}}, nil)
	fmt.Println("ready " + ln.Addr().String())
	go s.Serve(ln)
	whileRead()
}

// partProxy is the peer: a handler that makes a message of a request, calls, and writes what comes back.
func partProxy(server string) {
	conn, err := grpc.NewClient("passthrough:///"+server, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := &attribute_context.AttributeContext_Request{
			Method: r.Method, Host: r.Host, Path: r.URL.Path, Query: r.URL.RawQuery, Scheme: "http", Headers: make(map[string]string, len(r.Header)),
		}
		for k, v := range r.Header {
			q.Headers[k] = strings.Join(v, ",")
		}
		ctx, cancel := context.WithTimeout(r.Context(), ttl)
		defer cancel()
		answer := &wrapperspb.StringValue{}
		if err := conn.Invoke(ctx, "/bench/Hello", q, answer); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, answer.Value)
	})
	fmt.Println("ready " + ln.Addr().String())
	go http.Serve(ln, h)
	whileRead()
}
