package mesh

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestJSONIsReadAsTheCBORThatItMeans(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"identity of rembus.python", `{"jsonrpc":"2.0","id":7,"method":"__identity__","params":{"type":0,"cid":"foo"}}`, `830048070000000000000063666f6f`},
		{"identity of Rembus.jl", `{"jsonrpc":"2.0","id":"7","method":"__identity__","params":{"__type__":0,"cid":"foo","meta":{"ws":9}}}`, `840048070000000000000063666f6fa162777309`},
		{"publish", `{"jsonrpc":"2.0","method":"news","params":["x"]}`, `8301646e657773816178`},
		{"publish of nothing", `{"jsonrpc":"2.0","method":"news"}`, `8301646e657773f6`},
		{"publish with QoS 1", `{"jsonrpc":"2.0","id":7,"method":"news","params":{"type":16,"data":["x"]}}`, `8411480700000000000000646e657773816178`},
		{"publish with QoS 2", `{"jsonrpc":"2.0","id":7,"method":"news","params":{"__type__":48,"data":[1,-1,1.5,true,null]}}`, `841831480700000000000000646e657773850120fb3ff8000000000000f5f6`},
		{"rpc", `{"jsonrpc":"2.0","id":7,"method":"add","params":[1,2]}`, `850248070000000000000063616464f6820102`},
		{"rpc with names", `{"jsonrpc":"2.0","id":7,"method":"add","params":{"x":1}}`, `850248070000000000000063616464f6a1617801`},
		{"rpc without arguments", `{"jsonrpc":"2.0","id":7,"method":"add"}`, `850248070000000000000063616464f6f6`},
		{"direct rpc", `{"jsonrpc":"2.0","id":7,"method":"a/b/add","params":[]}`, `85024807000000000000006361646463612f6280`},
		{"an argument whose name is type", `{"jsonrpc":"2.0","id":7,"method":"add","params":{"type":"x"}}`, `850248070000000000000063616464f6a164747970656178`},
		{"arguments that are written in another case", `{"jsonrpc":"2.0","id":7,"method":"add","params":{"Type":3,"__TYPE__":0}}`, `850248070000000000000063616464f6a2645479706503685f5f545950455f5f00`},
		{"admin", `{"jsonrpc":"2.0","id":7,"method":"add","params":{"type":3,"cmd":"expose"}}`, `840348070000000000000063616464a163636d64666578706f7365`},
		{"attestation", `{"jsonrpc":"2.0","id":7,"method":"foo","params":{"type":11,"signature":"AAEC"}}`, `840b48070000000000000063666f6f43000102`},
		{"register", `{"jsonrpc":"2.0","id":7,"method":"foo","params":{"type":10,"pin":"1","key_val":"AAEC","key_type":2}}`, `860a48070000000000000063666f6f61314300010202`},
		{"unregister", `{"jsonrpc":"2.0","id":7,"method":"__unregister__","params":{"type":9}}`, `8209480700000000000000`},
		{"a response", `{"jsonrpc":"2.0","id":7,"result":{"type":4,"sts":0,"data":[3]}}`, `840448070000000000000000` + `8103`},
		{"an exception", `{"jsonrpc":"2.0","id":7,"error":{"__type__":4,"sts":40,"data":"no"}}`, `8404480700000000000000` + `1828` + `626e6f`},
		{"an ack", `{"jsonrpc":"2.0","id":"7","result":{"type":5}}`, `8205480700000000000000`},
		{"an id of text", `{"jsonrpc":"2.0","id":"abc","result":{"type":6}}`, `820643616263`},
		{"an id of another length", `{"jsonrpc":"2.0","id":"x:0102","result":{"type":6}}`, `8206420102`},
		{"big numbers", `{"jsonrpc":"2.0","method":"n","params":[18446744073709551615,-9223372036854775808,18446744073709551616,-18446744073709551617]}`,
			`8301616e841bffffffffffffffff3b7fffffffffffffffc249010000000000000000c349010000000000000000`},
		{"nested", `{"jsonrpc":"2.0","method":"n","params":[{"a":[[],{}],"b":{"c":1}}]}`, `8301616e81a261618280a06162a1616301`},
	} {
		var f Frame
		if err := ParseJSON([]byte(c.text), &f); err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if got := hex.EncodeToString(AppendFrame(nil, &f)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	for _, v := range vectors(t).Vectors {
		if v.Text != "" && ParseJSON([]byte(v.Text), new(Frame)) != nil {
			t.Errorf("%s is not read", v.Name)
		}
	}
}

func TestJSONThatIsNoMessage(t *testing.T) {
	for _, text := range []string{
		``, `[]`, `7`, `"x"`, `{`, `{}`, `{"id":7}`, `{"method":"x"} {}`, `{"id":7,"result":{"type":999}}`, `{"id":7,"result":7}`, `{"result":{"type":4,"sts":0}}`,
		`{"id":7,"result":{"type":4}}`, `{"id":7,"method":"x","params":"text"}`, `{"id":7,"method":"x","params":7}`, `{"id":1.5,"method":"x"}`, `{"id":-1,"method":"x"}`,
		`{"id":"a text of more than sixteen bytes","method":"x"}`, `{"id":7,"method":"x","params":{"type":12}}`, `{"method":"x","params":{"type":0,"cid":"y"}}`,
		`{"id":7,"method":"x","params":{"type":11,"signature":"*"}}`, `{"id":7,"method":"x","params":[1e999]}`,
		`{"id":7,"method":"x","params":{"__type__":256,"cid":"y"}}`, `{"id":7,"method":"x","params":{"__type__":259,"cmd":"subscribe"}}`, `{"id":7,"result":{"__type__":260,"sts":0}}`,
		`{"method":"x","params":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`,
	} {
		var fe *FrameError
		var f Frame
		if err := ParseJSON([]byte(text), &f); !errors.As(err, &fe) {
			t.Errorf("%.60s: %v, %+v", text, err, f)
		}
	}
}

func TestCBORIsWrittenAsJSON(t *testing.T) {
	for _, c := range []struct{ hex, want string }{
		{"83010203", `[1,2,3]`}, {"20", `-1`}, {"3bffffffffffffffff", `-18446744073709551616`}, {"f93c00", `1`}, {"f97c00", `null`}, {"f97e00", `null`}, {"f98001", `-5.960464477539063e-08`},
		{"fa3f8ccccd", `1.100000023841858`}, {"fb3ff199999999999a", `1.1`}, {"f7", `null`}, {"f5", `true`}, {"f4", `false`}, {"6161", `"a"`}, {"44deadbeef", `"3q2+7w=="`},
		{"a16161f6", `{"a":null}`}, {"a101f6", `{"1":null}`}, {"a18001", `{"[]":1}`}, {"bf616101ff", `{"a":1}`}, {"9f01ff", `[1]`}, {"7f61616162ff", `"ab"`}, {"5f4101ff", `"AQ=="`},
		{"c249010000000000000000", `18446744073709551616`}, {"c349010000000000000000", `-18446744073709551617`}, {"d85044ffffffff", `"/////w=="`},
		{"63220a5c", `"\"\u000a\\"`}, {"63e282ac", `"€"`},
	} {
		got, err := appendJSON(nil, unhex(t, c.hex))
		if err != nil || string(got) != c.want || !json.Valid(got) {
			t.Errorf("%s: got %s, %v, want %s", c.hex, got, err, c.want)
		}
	}
	if _, err := appendJSON(nil, append([]byte{0xc2, 0x59, 1, 1}, make([]byte, 257)...)); err == nil {
		t.Error("an integer of 257 bytes is written")
	}
}

func TestMessagesAreWrittenAsJSON(t *testing.T) {
	for _, c := range []struct{ hex, want string }{
		{"8301646e657773816178", `{"jsonrpc":"2.0","method":"news","params":["x"]}`},
		{"8411480700000000000000646e657773816178", `{"jsonrpc":"2.0","id":"7","method":"news","params":{"__type__":16,"type":16,"data":["x"]}}`},
		{"850248070000000000000063616464f6820102", `{"jsonrpc":"2.0","id":"7","method":"add","params":[1,2]}`},
		{"840448070000000000000000" + "8103", `{"jsonrpc":"2.0","id":"7","result":{"__type__":4,"type":4,"sts":0,"data":[3]}}`},
		{"8404480700000000000000182a61" + "61", `{"jsonrpc":"2.0","id":"7","error":{"__type__":4,"type":4,"sts":42,"data":"a"}}`},
		{"8205480700000000000000", `{"jsonrpc":"2.0","id":"7","result":{"__type__":5,"type":5}}`},
		{"840348070000000000000063616464a163636d64666578706f7365", `{"jsonrpc":"2.0","id":"7","method":"add","params":{"__type__":3,"type":3,"cmd":"expose"}}`},
		{"8205420102", `{"jsonrpc":"2.0","id":"x:0102","result":{"__type__":5,"type":5}}`},
	} {
		var f, back Frame
		if err := ParseFrame(unhex(t, c.hex), &f); err != nil {
			t.Fatal(err)
		}
		got, err := AppendJSON(nil, &f, false)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.hex, got, err, c.want)
		}
		if err := ParseJSON(got, &back); err != nil || hex.EncodeToString(AppendFrame(nil, &back)) != c.hex {
			t.Errorf("%s: read again as %x, %v", got, AppendFrame(nil, &back), err)
		}
	}
}

// What came with an id of a kind is answered with one of that kind.
func TestIDsOfJSONGoBackAsTheyCame(t *testing.T) {
	for _, id := range []string{`7`, `"7"`, `18446744073709551615`, `"18446744073709551615"`, `"abc"`, `"007"`, `"x:0102"`} {
		v, ok, err := parseJSONID(json.RawMessage(id))
		if got := string(appendJSONID(nil, v, false)); err != nil || !ok || got != id {
			t.Errorf("%s comes back as %s (%v)", id, got, err)
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, v := range vectors(f).Vectors {
		if v.Text != "" {
			f.Add([]byte(v.Text))
		}
	}
	f.Add([]byte(`{"id":"x:01","error":{"__type__":4,"sts":40,"data":[1.5,{"a":null}]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var fr Frame
		if ParseJSON(b, &fr) != nil {
			return
		}
		if out := AppendFrame(nil, &fr); ParseFrame(out, new(Frame)) != nil && json.Valid(b) {
			t.Fatalf("%s is read, and written as %x, which is not", b, out)
		}
		if out, err := AppendJSON(nil, &fr, true); err == nil && !json.Valid(out) {
			t.Fatalf("%s is written as %s", b, out)
		}
	})
}
