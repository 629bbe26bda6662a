package admin_test

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

var anAdmin = admin.Caller{User: "boss", Role: admin.RoleAdmin}

func encode(t testing.TB, m wire.Message) []byte {
	t.Helper()
	b, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readTable(p wire.Properties) wire.Message {
	return wire.Message{Properties: &p, ApplicationProperties: wire.Map{
		{Key: "operation", Value: "READ"}, {Key: "type", Value: "table"}, {Key: "name", Value: "main"},
	}}
}

func TestCorrelationIDIsEchoedAsItCame(t *testing.T) {
	uuid := wire.UUID{1, 2, 3}
	for _, c := range []struct {
		name string
		p    wire.Properties
		want any
	}{
		{"the correlation id, if there is one", wire.Properties{CorrelationID: "c", MessageID: "m"}, "c"},
		{"else the message id", wire.Properties{MessageID: "m"}, "m"},
		{"a ulong", wire.Properties{MessageID: uint64(1) << 60}, uint64(1) << 60},
		{"a small ulong", wire.Properties{CorrelationID: uint64(0)}, uint64(0)},
		{"a uuid", wire.Properties{MessageID: uuid}, uuid},
		{"binary", wire.Properties{CorrelationID: []byte{0, 255}}, []byte{0, 255}},
		{"an empty string", wire.Properties{CorrelationID: ""}, ""},
		{"none", wire.Properties{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.p.ReplyTo, c.p.HasReplyTo = "back/here", true
			reply, to := newDoor().core.Handle(anAdmin, encode(t, readTable(c.p)))
			if to != "back/here" {
				t.Errorf("got reply to %q", to)
			}
			var m wire.Message
			if err := m.Parse(reply); err != nil {
				t.Fatal(err)
			}
			if got := m.Properties.CorrelationID; !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %#v, want %#v", got, c.want)
			}
		})
	}
}

func TestRequestWithoutReplyToIsDoneAndNotAnswered(t *testing.T) {
	d := newDoor()
	reply, to := d.core.Handle(anAdmin, encode(t, wire.Message{
		ApplicationProperties: wire.Map{{Key: "operation", Value: "ADD"}, {Key: "type", Value: "table"}, {Key: "name", Value: "main"}},
		HasValue:              true,
		Value:                 wire.Map{{Key: "pattern", Value: "A"}, {Key: "address", Value: "amqp://a"}},
	}))
	if reply != nil || to != "" {
		t.Errorf("got a reply of %d bytes to %q", len(reply), to)
	}
	if n := d.core.Table().Snapshot().Len(); n != 1 {
		t.Errorf("got %d rows, want 1", n)
	}
}

func TestRequestsAreReadByKind(t *testing.T) {
	add := func(operation any, body any, hasValue bool) wire.Message {
		return wire.Message{
			Properties:            &wire.Properties{ReplyTo: "back", HasReplyTo: true},
			ApplicationProperties: wire.Map{{Key: "operation", Value: operation}, {Key: "type", Value: wire.Symbol("table")}, {Key: "name", Value: "main"}},
			HasValue:              hasValue, Value: body,
		}
	}
	for _, c := range []struct {
		name string
		m    wire.Message
		want int32
	}{
		{"symbols for strings", add(wire.Symbol("ADD"), wire.Map{{Key: wire.Symbol("pattern"), Value: wire.Symbol("A")}, {Key: "address", Value: "amqp://a"}}, true), 200},
		{"an operation in any case", add("aDd", wire.Map{{Key: "pattern", Value: "A"}, {Key: "address", Value: "amqp://a"}}, true), 200},
		{"a number of any width", add("ADD", wire.Map{{Key: "pattern", Value: "A"}, {Key: "address", Value: "amqp://a"}, {Key: "order", Value: int8(3)}, {Key: "weight", Value: uint64(4)}}, true), 200},
		{"a number as text, a boolean as text", add("ADD", wire.Map{{Key: "pattern", Value: "A"}, {Key: "address", Value: "amqp://a"}, {Key: "order", Value: "3"}, {Key: "optional", Value: "true"}}, true), 200},
		{"the table's own column names", add("ADD", wire.Map{{Key: "pattern", Value: "A"}, {Key: "address", Value: "amqp://a"}, {Key: "pick", Value: "any"}, {Key: "balance", Value: "hash"}, {Key: "hash-key", Value: "k"}}, true), 200},
		{"a described value", add("ADD", wire.Described{Descriptor: wire.Symbol("x"), Value: wire.Map{{Key: "pattern", Value: "A"}, {Key: "address", Value: "amqp://a"}}}, true), 200},
		{"no body where one is needed", add("ADD", nil, false), 400},
		{"a null body", add("CLEAR", nil, true), 200},
		{"no body", add("CLEAR", nil, false), 200},
		{"an empty body", add("CLEAR", wire.Map{}, true), 200},
		{"a number for a pattern", add("ADD", wire.Map{{Key: "pattern", Value: int32(7)}, {Key: "address", Value: "amqp://a"}}, true), 200},
		{"a list for a pattern", add("ADD", wire.Map{{Key: "pattern", Value: wire.List{"A"}}, {Key: "address", Value: "amqp://a"}}, true), 400},
		{"a pattern of bytes", add("ADD", wire.Map{{Key: "pattern", Value: []byte{'a', 0xff}}, {Key: "address", Value: "amqp://a"}}, true), 200},
		{"an operation that is a number", add(int32(3), nil, false), 501},
		{"an operation that is a list", add(wire.List{}, nil, false), 400},
		{"no operation", wire.Message{Properties: &wire.Properties{ReplyTo: "back", HasReplyTo: true}}, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			reply, _ := newDoor().core.Handle(anAdmin, encode(t, c.m))
			var m wire.Message
			if err := m.Parse(reply); err != nil {
				t.Fatal(err)
			}
			status, _ := m.ApplicationProperties.Get("statusCode")
			text, _ := m.ApplicationProperties.Get("statusDescription")
			if status != any(c.want) {
				t.Errorf("got %v %v, want %v", status, text, c.want)
			}
		})
	}
}

func TestEveryAnswerToAChangeCarriesTheRevision(t *testing.T) {
	core := newDoor().core
	for _, operation := range []string{"ADD", "INSERT", "SET", "REPLACE", "REPLACE-ALL", "DELETE-ROUTE", "DELETE-PATTERN", "CLEAR", "WITHDRAW", "APPLY", "LOAD-BEGIN", "LOAD-COMMIT", "LOAD-ABORT", "ROLLBACK"} {
		for _, caller := range []admin.Caller{anAdmin} {
			reply, _ := core.Handle(caller, encode(t, wire.Message{
				Properties:            &wire.Properties{ReplyTo: "back", HasReplyTo: true},
				ApplicationProperties: wire.Map{{Key: "operation", Value: operation}, {Key: "type", Value: "table"}, {Key: "name", Value: "main"}},
			}))
			var m wire.Message
			if err := m.Parse(reply); err != nil {
				t.Fatal(err)
			}
			if _, ok := m.ApplicationProperties.Get("revision"); !ok && operation != "ROLLBACK" {
				t.Errorf("%s: no revision in %v", operation, m.ApplicationProperties)
			}
		}
	}
}

func TestALoadIsItsCallers(t *testing.T) {
	d := newDoor()
	d.step(t, []string{"operator", "LOAD-BEGIN"}, "")
	reply, _ := d.core.Handle(admin.Caller{User: "mallory", Role: admin.RoleAdmin}, encode(t, wire.Message{
		Properties:            &wire.Properties{ReplyTo: "back", HasReplyTo: true},
		ApplicationProperties: wire.Map{{Key: "operation", Value: "LOAD-COMMIT"}, {Key: "session", Value: d.vars["$session"]}},
	}))
	var m wire.Message
	if err := m.Parse(reply); err != nil {
		t.Fatal(err)
	}
	if status, _ := m.ApplicationProperties.Get("statusCode"); status != any(int32(404)) {
		t.Errorf("got %v, want 404", status)
	}
}

func TestInternalErrorsStayInside(t *testing.T) {
	d := newDoor()
	d.core.Register(&broken{})
	got := d.step(t, []string{"admin", "DELETE", "type=broken", "name=x"}, "")
	if want := "500 internal error\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

type broken struct{}

func (*broken) Type() string         { return "broken" }
func (*broken) Attributes() []string { return nil }
func (*broken) List() []admin.Entity { return []admin.Entity{nil, {"name": "x"}} }
func (*broken) Delete(string) error  { return bytes.ErrTooLarge }

// Roles: what each may do, by command.
func TestRoleMatrix(t *testing.T) {
	f := &routetable.File{}
	for _, c := range []struct {
		cmd   admin.Command
		needs admin.Role
	}{
		{admin.Add{Route: routetable.NewRoute("A", "amqp://a")}, admin.RoleOperator},
		{admin.Insert{Route: routetable.NewRoute("B", "amqp://b"), Before: true, Anchor: "Z"}, admin.RoleOperator},
		{admin.Set{Route: routetable.NewRoute("Z", "amqp://z"), Columns: routetable.ColNote}, admin.RoleOperator},
		{admin.Replace{Route: routetable.NewRoute("C", "amqp://c")}, admin.RoleOperator},
		{admin.ReplaceAll{Pattern: "D", Addresses: []string{"amqp://d"}}, admin.RoleOperator},
		{admin.Delete{Pattern: "E", Address: "amqp://e"}, admin.RoleOperator},
		{admin.DeletePattern{Pattern: "E"}, admin.RoleOperator},
		{admin.Clear{}, admin.RoleOperator},
		{admin.Load{File: f}, admin.RoleOperator},
		{admin.Apply{}, admin.RoleOperator},
		{admin.Withdraw{Origin: "operator"}, admin.RoleOperator},
		{admin.Withdraw{Origin: "link:7"}, admin.RoleNone},
		{admin.Subscribe{Pattern: "X", Address: "link:7", Origin: "link:7"}, admin.RoleNone},
	} {
		for _, role := range []admin.Role{admin.RoleNone, admin.RoleViewer, admin.RoleOperator, admin.RoleAdmin} {
			core := newDoor().core
			if _, err := core.Table().Add("Z", "amqp://z"); err != nil {
				t.Fatal(err)
			}
			_, err := core.Do(admin.Caller{User: "u", Role: role}, c.cmd)
			var refused *admin.Error
			forbidden := asError(err, &refused) && refused.Status == admin.StatusForbidden
			if forbidden != (role < c.needs) {
				t.Errorf("%T by %v: got %v, needs %v", c.cmd, role, err, c.needs)
			}
		}
	}
}

func asError(err error, to **admin.Error) bool {
	e, ok := err.(*admin.Error)
	*to = e
	return ok
}

// FuzzHandle: no bytes make the door panic, and what it answers is a message.
func FuzzHandle(f *testing.F) {
	back := &wire.Properties{ReplyTo: "back", HasReplyTo: true, MessageID: "1"}
	for _, operation := range []string{"CREATE", "READ", "UPDATE", "DELETE", "QUERY", "GET-TYPES", "GET-ATTRIBUTES", "ADD", "INSERT", "SET", "REPLACE-ALL", "APPLY", "EXPLAIN", "STORE", "LINT", "TEST", "LOAD-BEGIN", "LOAD-CHUNK", "LOAD-COMMIT", "WITHDRAW"} {
		f.Add(encode(f, wire.Message{
			Properties: back,
			ApplicationProperties: wire.Map{
				{Key: "operation", Value: operation}, {Key: "type", Value: "route"}, {Key: "name", Value: "x"},
				{Key: "entityType", Value: "route"}, {Key: "offset", Value: uint32(0)}, {Key: "count", Value: int64(10)},
			},
			HasValue: true,
			Value: wire.Map{
				{Key: "pattern", Value: "a/*"}, {Key: "address", Value: "amqp://$1"}, {Key: "before", Value: "b"},
				{Key: "addresses", Value: wire.List{"amqp://c", nil}}, {Key: "expect", Value: wire.List{wire.Map{{Key: "address", Value: "a"}}}},
				{Key: "ops", Value: wire.List{wire.Map{{Key: "operation", Value: "clear"}}}}, {Key: "text", Value: "a --> b\n"},
				{Key: "properties", Value: wire.Map{{Key: "k", Value: true}}}, {Key: "origin", Value: "operator"},
			},
		}))
	}
	f.Add([]byte{})
	f.Add([]byte{0, 0x53, 0x77, 0x45})
	f.Fuzz(func(t *testing.T, message []byte) {
		d := newDoor()
		reply, to := d.core.Handle(anAdmin, message)
		if (reply == nil) != (to == "") {
			t.Fatalf("a reply of %d bytes to %q", len(reply), to)
		}
		if reply == nil {
			return
		}
		var m wire.Message
		if err := m.Parse(reply); err != nil {
			t.Fatalf("the reply is no message: %v", err)
		}
		if _, ok := m.ApplicationProperties.Get("statusCode"); !ok {
			t.Fatal("the reply has no status")
		}
	})
}

// TestAnswerAll answers requests at once as they are answered one by one: in their order, and each sees what those before it did.
func TestAnswerAll(t *testing.T) {
	add := func(pattern, address string) wire.Map {
		return wire.Map{{Key: "pattern", Value: pattern}, {Key: "address", Value: address}}
	}
	requests := []struct {
		operation string
		arguments wire.Map
	}{
		{"ADD", add("A", "amqp://h1")},
		{"ADD", add("A", "amqp://h1")},
		{"ADD", add("B", "")},
		{"ADD", append(add("C", "amqp://h2"), wire.KV{Key: "dryRun", Value: true})},
		{"EXPLAIN", wire.Map{{Key: "address", Value: "A"}}},
		{"REPLACE", add("A", "amqp://h3")},
		{"HISTORY", nil},
		{"NONSENSE", nil},
		{"ROLLBACK", wire.Map{{Key: "revision", Value: uint64(1)}}},
		{"DELETE-PATTERN", wire.Map{{Key: "pattern", Value: "A"}}},
		{"SET", append(add("A", "amqp://h1"), wire.KV{Key: "note", Value: "gone"})},
	}
	var messages [][]byte
	for _, q := range requests {
		messages = append(messages, encode(t, wire.Message{
			Properties:            &wire.Properties{MessageID: "id", ReplyTo: "back", HasReplyTo: true},
			ApplicationProperties: wire.Map{{Key: "operation", Value: q.operation}, {Key: "type", Value: "table"}, {Key: "name", Value: "main"}},
			HasValue:              true, Value: q.arguments,
		}))
	}
	text := func(r admin.Reply) string {
		var m wire.Message
		if err := m.Parse(r.Message); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(m.ApplicationProperties, m.Value)
	}
	now := admin.Options{Now: func() time.Time { return time.Unix(1, 0) }}
	var got, want []string
	one := admin.New(routetable.New(), now)
	for _, m := range messages {
		want = append(want, text(one.Answer(anAdmin, m)))
	}
	admin.New(routetable.New(), now).AnswerAll(anAdmin, messages, func(r admin.Reply) { got = append(got, text(r)) })
	if len(got) != len(want) {
		t.Fatalf("got %d replies to %d requests", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s: got %s, want %s", requests[i].operation, got[i], want[i])
		}
	}
}
