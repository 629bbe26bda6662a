package silent_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/house/leaks"
	"github.com/fingerpost/fingerpost/internal/silent"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// A client that opened a connection and sends nothing does not hold up the end; a request that is being answered is.
func TestASilentConnectionDoesNotHoldUpTheEnd(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	seen := make(chan struct{}, 2)
	s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-answer
	})}
	silent.Close(s)
	count := s.ConnState
	s.ConnState = func(nc net.Conn, state http.ConnState) {
		count(nc, state)
		if state == http.StateNew {
			seen <- struct{}{}
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve(ln) }()
	mute, busy := dial(t, ln), dial(t, ln)
	<-seen
	<-seen
	if _, err := busy.Write([]byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	<-asked
	began := time.Now()
	over := make(chan error)
	go func() { over <- s.Shutdown(context.Background()) }()
	mute.SetReadDeadline(began.Add(3 * time.Second))
	if _, err := mute.Read(make([]byte, 1)); err == nil || time.Since(began) > 2*time.Second {
		t.Errorf("the silent one: got %v after %v", err, time.Since(began))
	}
	close(answer)
	if r, err := http.ReadResponse(bufio.NewReader(busy), nil); err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("the request: got %v, %v", r, err)
	}
	if err := <-over; err != nil || time.Since(began) > 3*time.Second {
		t.Errorf("the end: got %v after %v", err, time.Since(began))
	}
	<-served
}

func dial(t *testing.T, ln net.Listener) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc
}
