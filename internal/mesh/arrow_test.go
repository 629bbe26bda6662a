package mesh

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
)

// frames are streams that Apache's library for Go has written: every type that is known here, in two batches of three rows, and what becomes of them.
func arrowStream(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("../../testdata/rembus/arrow.hex")
	if err != nil {
		t.Fatal(err)
	}
	stream, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// A data frame is an array of its rows, wherever it stands; what is none is its bytes.
func TestDataFrames(t *testing.T) {
	item := appendBytes([]byte{0xd8, 80}, arrowStream(t))
	for _, item := range [][]byte{item, append([]byte{0x82, 1}, item...)} {
		text, err := appendJSON(nil, item)
		if err != nil {
			t.Fatal(err)
		}
		var got any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		rows := got.([]any)
		if item[0] == 0x82 {
			rows = rows[1].([]any)
		}
		want := map[int]string{
			1: `{"b":null,"bytes":"Af8=","d":"1942-08-16","d64":"2024-10-04","dict":null,"f16":1.5,"f32":1.1,"f64":null,"i64":null,"i8":null,"large":"","none":null,"t":null,"te\"xt":null,"u64":9223372036854775809}`,
			4: `{"b":true,"bytes":"BP8=","d":"1696-03-17","d64":"2024-10-04","dict":"red","f16":1.5,"f32":1.1,"f64":4.1,"i64":-4398046511104,"i8":-4,"large":"","none":null,"t":"2023-11-14T22:13:20.123","te\"xt":"é4\n","u64":9223372036854775812}`,
		}
		if len(rows) != 6 {
			t.Fatalf("%d rows: %s", len(rows), text)
		}
		for i, w := range want {
			var row any
			json.Unmarshal([]byte(w), &row)
			got, _ := json.Marshal(rows[i])
			wanted, _ := json.Marshal(row)
			if !bytes.Equal(got, wanted) {
				t.Errorf("row %d:\ngot  %s\nwant %s", i, got, wanted)
			}
		}
	}
	if text, err := appendJSON(nil, []byte{0xd8, 80, 0x44, 0xff, 0xff, 0xff, 0xff}); err != nil || string(text) != `"/////w=="` {
		t.Errorf("got %s, %v", text, err)
	}
}

// A data frame may be anything: what becomes of it is JSON, and bounded.
func FuzzDataFrames(f *testing.F) {
	stream := arrowStream(f)
	f.Add(stream)
	f.Add(stream[:len(stream)/2])
	f.Fuzz(func(t *testing.T, stream []byte) {
		text, err := appendRows(nil, stream)
		if err == nil && (!json.Valid(text) || len(text) > maxGrowth*len(stream)+maxGrowth) {
			t.Fatalf("%.200s: %d bytes of %d", text, len(text), len(stream))
		}
	})
}
