package amqp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// A login of ours, after which go-amqp has the connection.
func TestLoginForAnotherClient(t *testing.T) {
	l := logins(t)
	for _, c := range []struct {
		offered, user, password string
		address                 string // where it seems to lead
		want                    error
	}{
		{"SCRAM-SHA-256", "alice", "s3crét", "router.example:5672", nil},
		{"PLAIN SCRAM-SHA-512", "alice", "s3crét", "router.example:5672", nil},
		{"PLAIN", "alice", "s3crét", "127.0.0.1:5672", nil},
		{"PLAIN", "alice", "s3crét", "router.example:5672", amqp.ErrInsecurePlain},
		{"SCRAM-SHA-1", "alice", "wrong", "router.example:5672", engine.ErrAuthentication},
	} {
		address, _ := serve(t, engine.Config{Mechanisms: mechanisms(t, l, strings.Fields(c.offered)...), RequireSASL: true})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		nc, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err = amqp.Login(ctx, nc, amqp.DialOptions{Address: c.address, User: c.user, Password: c.password, PLAIN: true}); !errors.Is(err, c.want) {
			t.Errorf("%s of %s as %s: got %v, want %v", c.offered, c.address, c.user, err, c.want)
		}
		if err == nil {
			conn, err := goamqp.NewConn(ctx, nc, nil)
			if err != nil {
				t.Errorf("%s: %v", c.offered, err)
			} else {
				conn.Close()
			}
		}
		nc.Close()
		cancel()
	}
}

func saslFrame(appendTo func([]byte) []byte) string {
	b, start := wire.BeginFrame(nil, wire.FrameSASL, 0)
	return string(wire.EndFrame(appendTo(b), start))
}

// A server that is content before it was told anything, or that begins anew, has proven nothing: neither client goes on.
func TestALoginCannotBeLeftOut(t *testing.T) {
	outcome := saslFrame((&wire.SASLOutcome{}).Append)
	offer := func(names ...wire.Symbol) string { return saslFrame((&wire.SASLMechanisms{Mechanisms: names}).Append) }
	for name, frames := range map[string]string{
		"an outcome at once": outcome,
		"another offer":      offer("SCRAM-SHA-1") + offer("PLAIN"),
		"a proof left out":   offer("SCRAM-SHA-1") + outcome,
		"a frame too large":  "\x00\x00\x10\x01\x02\x01\x00\x00",
		"no SASL frame":      "\x00\x00\x00\x08\x02\x00\x00\x00",
	} {
		said := "AMQP\x03\x01\x00\x00" + frames + "AMQP\x00\x01\x00\x00" + strings.Repeat("\x00\x00\x00\x08\x02\x00\x00\x00", 8)
		var hears bytes.Buffer
		o := amqp.DialOptions{Address: "127.0.0.1:5672", User: "alice", Password: "s3crét", PLAIN: true}
		if err := amqp.Login(context.Background(), saying(said, &hears), o); err == nil {
			t.Errorf("%s: the login is done", name)
		}
		if strings.Contains(hears.String(), o.Password) {
			t.Errorf("%s: the server has the password", name)
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			if nc, err := ln.Accept(); err == nil {
				io.WriteString(nc, said)
				nc.(*net.TCPConn).CloseWrite()
				io.Copy(&hears, nc)
				nc.Close()
			}
		}()
		o.Address = ln.Addr().String()
		if _, err := dial(t, o); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s, our own client: %v", name, err)
		}
		<-served
		if ln.Close(); strings.Contains(hears.String(), o.Password) || strings.Contains(hears.String(), "AMQP\x00\x01\x00\x00") {
			t.Errorf("%s, our own client: it goes on", name)
		}
	}
}

// saying is a server whose words are there from the beginning.
func saying(words string, hears io.Writer) net.Conn {
	return &speaker{Reader: strings.NewReader(words), Writer: hears}
}

type speaker struct {
	io.Reader
	io.Writer
	net.Conn
}

func (s *speaker) Read(p []byte) (int, error)  { return s.Reader.Read(p) }
func (s *speaker) Write(p []byte) (int, error) { return s.Writer.Write(p) }
func (s *speaker) SetDeadline(time.Time) error { return nil }

// FuzzHandover has a server say anything to a client that would show a password to nobody.
func FuzzHandover(f *testing.F) {
	header := "AMQP\x03\x01\x00\x00"
	f.Add([]byte(header + saslFrame((&wire.SASLMechanisms{Mechanisms: []wire.Symbol{"SCRAM-SHA-256", "PLAIN"}}).Append) +
		saslFrame((&wire.SASLChallenge{Challenge: []byte("r=x,s=c2FsdA==,i=4096")}).Append)))
	f.Add([]byte(header + saslFrame((&wire.SASLOutcome{AdditionalData: []byte("v=AAAA")}).Append)))
	f.Fuzz(func(t *testing.T, words []byte) {
		var hears bytes.Buffer
		nc := saying("", &hears)
		nc.(*speaker).Reader = iotest.OneByteReader(bytes.NewReader(words))
		err := amqp.Login(context.Background(), nc, amqp.DialOptions{Address: "router.example:5672", User: "alice", Password: "s3crét", PLAIN: true})
		if err == nil || strings.Contains(hears.String(), "s3crét") {
			t.Errorf("%q: got %v, and the server has %q", words, err, hears.String())
		}
	})
}
