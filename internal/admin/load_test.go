package admin

import (
	"bytes"
	"testing"
	"time"
)

func TestLoadsAreBounded(t *testing.T) {
	var l loads
	now := time.Now()
	id, err := l.begin(now, "u", "replace", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.chunk(now, "u", id, make([]byte, maxChunkBytes+1)); err == nil || err.Error() != "LOAD-CHUNK: 1048577 bytes: at most 1048576 in one chunk" {
		t.Errorf("a chunk that is too large: got %v", err)
	}
	chunk := bytes.Repeat([]byte{'#'}, maxChunkBytes)
	for range maxLoadBytes / maxChunkBytes {
		if _, err := l.chunk(now, "u", id, chunk); err != nil {
			t.Fatal(err)
		}
	}
	if l.bytes != maxLoadBytes {
		t.Errorf("got %d bytes held, want %d", l.bytes, maxLoadBytes)
	}
	if _, err := l.chunk(now, "u", id, []byte("#")); err == nil || err.Error() != "LOAD-CHUNK: the table is over 256 MiB: the load is dropped" {
		t.Errorf("a load that is too large: got %v", err)
	}
	if l.bytes != 0 || len(l.m) != 0 {
		t.Errorf("got %d bytes in %d loads after the drop", l.bytes, len(l.m))
	}
}

func TestIdleLoadsGo(t *testing.T) {
	var l loads
	now := time.Now()
	old, _ := l.begin(now, "u", "replace", "", nil)
	young, _ := l.begin(now, "u", "replace", "", nil)
	now = now.Add(maxLoadIdle)
	if _, err := l.chunk(now, "u", young, []byte("#")); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Second)
	if _, err := l.take(now, "u", old); err == nil {
		t.Error("an idle load was taken")
	}
	if x, err := l.take(now, "u", young); err != nil || string(x.text) != "#" {
		t.Errorf("got %v, %v", x, err)
	}
	if l.bytes != 0 {
		t.Errorf("got %d bytes held", l.bytes)
	}
}

func TestAnIdleLoadGivesItsPlaceUp(t *testing.T) {
	var l loads
	now := time.Now()
	ids := make([]string, maxLoads)
	for i := range ids {
		ids[i], _ = l.begin(now.Add(time.Duration(i)*time.Second), "u", "replace", "", nil)
	}
	now = now.Add(spareLoadIdle)
	if _, err := l.begin(now, "u", "replace", "", nil); err == nil {
		t.Error("a load that was not idle for long gave its place up")
	}
	now = now.Add(time.Second)
	if _, err := l.begin(now, "v", "replace", "", nil); err != nil {
		t.Error(err)
	}
	if _, err := l.find(now, "u", ids[0]); err == nil {
		t.Error("the load that was idle for the longest is under way")
	}
	for _, id := range ids[1:] {
		if _, err := l.find(now, "u", id); err != nil {
			t.Error(err)
		}
	}
}
