package events

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

var frames = []string{
	`{"op":"hello","name":"Mail","protocol":1}`,
	`{"op":"hello","name":"Mail","protocol":1,"restart":"router"}`,
	`{"op":"subscribe","ref":1,"type":"Order","direction":"request","from_time":"2026-07-01T12:00:00.5Z"}`,
	`{"op":"unsubscribe","ref":"x","type":"Order","direction":"response"}`,
	frameOf200,
	`{"op":"event","id":"1","type":"\u004frder","data":[1,-2.5e+3,true,false,null,"\"\\\u00e9"],"response":{"status":"OK","data":{}},"context":{}}`,
	` { "op" : "event" , "\u0069d" : "1" , "type" : "T" , "data" : { } , "response" : null } `,
	`{"op":"health","check":"7","status":"WARNING","exceptions":[{"type":"T","data":1,"error":"e","trace":""}],"vitals":{"rss":1}}`,
	`{"op":"event","id":"1","type":"T","data":01}`, `{"op":"event","id":"1","id":"2"}`, `{"op":`, `[]`, ``, `{} {}`, `{"a":1,}`, `{"a" 1}`, `{"a":"\x"}`,
	`{"a":.5}`, `{"a":1.}`, `{"a":-}`, `{"a":1e}`, `{"a":tru}`, `{"a":[1 2]}`, `{"a":[1,]}`, `{"a":{"b":1]}`, "{\"a\":\"\n\"}", `{"a":"\u12g4"}`, `{"a":[}`,
	`{"a":` + strings.Repeat("[", 513) + strings.Repeat("]", 513) + `}`,
	`{"a":` + strings.Repeat("[", 512) + strings.Repeat("]", 512) + `}`,
	`{"a":` + strings.Repeat(`{"b":`, 512) + "1" + strings.Repeat("}", 512) + `}`,
}

// FuzzFrame holds the reader of frames to encoding/json: what it takes is JSON, and has the members that encoding/json finds.
func FuzzFrame(f *testing.F) {
	for _, s := range frames {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) { checkFrame(t, b) })
}

func checkFrame(t *testing.T, b []byte) {
	var f frame
	err := f.parse(b)
	var all map[string]json.RawMessage
	want := json.Unmarshal(b, &all)
	if err == nil && want != nil {
		t.Fatalf("%q is taken, and is %v", b, want)
	}
	if err != nil {
		if want == nil && all != nil && !strings.Contains(err.Error(), "twice") && !deep(b) {
			t.Fatalf("%q is refused: %v", b, err)
		}
		return
	}
	for name, value := range all {
		if p := f.field([]byte(name)); p != nil && string(*p) != string(value) && !strings.Contains(string(b), `\`) {
			t.Fatalf("%q: %s is %q, want %q", b, name, *p, value)
		}
	}
	var e event
	if f.event(&e) != nil {
		return
	}
	k := newKind(string(e.typ), e.response)
	body := e.appendBody(nil)
	if len(body) != e.bodySize() {
		t.Fatalf("%q: a body of %d bytes, said to be %d", b, len(body), e.bodySize())
	}
	var s stamp
	out := s.appendEvent(nil, k.head, 1e18+1, body, "R", true)
	if !json.Valid(out) {
		t.Fatalf("%q becomes %q", b, out)
	}
}

// deep tells whether a text may be nested deeper than is taken.
func deep(b []byte) bool {
	return strings.Count(string(b), "[")+strings.Count(string(b), "{") > maxDepth
}

func TestFramesAsEncodingJSONReadsThem(t *testing.T) {
	for _, s := range frames {
		checkFrame(t, []byte(s))
	}
}

func TestWhichEventsAreResponses(t *testing.T) {
	for _, c := range []struct {
		response string
		want     bool
		bad      bool
	}{
		{`null`, false, false}, {`{"status":"NONE"}`, false, false}, {`{"status":"OK"}`, true, false}, {`{"data":{},"status":"FAILED"}`, true, false},
		{`{}`, false, true}, {`{"status":"DONE"}`, false, true}, {`{"status":1}`, false, true}, {`"OK"`, false, true}, {`[]`, false, true},
	} {
		var f frame
		var e event
		if err := f.parse([]byte(`{"id":"1","type":"T","response":` + c.response + `}`)); err != nil {
			t.Fatal(err)
		}
		if err := f.event(&e); e.response != c.want || (err != nil) != c.bad {
			t.Errorf("%s: response is %v, error %v", c.response, e.response, err)
		}
	}
}

func TestTimesGoThereAndBack(t *testing.T) {
	var s stamp
	for _, at := range []int64{0, 1, 999_999_999, 1e9, 1e18 + 5, 1e18 + 6, 1e18 - 1, time.Now().UnixNano()} {
		text := string(s.append(nil, at))
		if got, err := parseTime(text); err != nil || got != at {
			t.Errorf("%d is written %s and read as %d, %v", at, text, got, err)
		}
		if want := string(appendTime(nil, at)); want != `"`+text+`"` {
			t.Errorf("%s, want %s", text, want)
		}
	}
	for text, want := range map[string]int64{"9999-12-31T23:59:59.9999999Z": math.MaxInt64, "0001-01-01T00:00:00Z": 0, "1969-12-31T23:59:59Z": 0, "1970-01-01T00:00:00+01:00": 0} {
		if got, err := parseTime(text); got != want || err != nil {
			t.Errorf("%s is read as %d, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "yesterday", "2026-07-01", "2026-07-01T12:00:00", "1234567890"} {
		if _, err := parseTime(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

func TestReadingAnEventAllocatesNothing(t *testing.T) {
	var f frame
	var e event
	b := []byte(frameOf200)
	if n := testing.AllocsPerRun(100, func() {
		if f.parse(b) != nil || f.event(&e) != nil {
			t.Fatal("not read")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAMQPMessagesOfEventsAllocateNothing(t *testing.T) {
	var f frame
	var e event
	if f.parse([]byte(frameOf200)) != nil || f.event(&e) != nil {
		t.Fatal("not read")
	}
	r := &Router{}
	k := newKind("Order", false)
	rg := ring{window: 1e9, max: 1 << 20}
	rg.add(k, 1, 0, 0, e.bodySize(), e.appendBody)
	p := &linkReplay{v: rg.view(k, 0, 1)}
	var dst []byte
	if n := testing.AllocsPerRun(100, func() {
		r.message(k, &e, 1e18)
		dst = p.Append(dst[:0])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	var m wire.Message
	if err := m.Parse(dst); err != nil || m.Properties.MessageID != "0192f3a1-7c11-7b3e-9d2e-5a6f00112233" || len(m.Data) != 1 || !strings.HasSuffix(string(m.Data[0]), `"x":0},"replay":true}`) {
		t.Errorf("got %+v, %v", m, err)
	}
}

func BenchmarkParseEvent(b *testing.B) {
	var f frame
	var e event
	text := []byte(frameOf200)
	b.ReportAllocs()
	for b.Loop() {
		f.parse(text)
		f.event(&e)
	}
}
