package interop

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// plainRouter starts a router that was built without the race detector, whose memory is what users see.
func plainRouter(t *testing.T, name, table string) *router {
	t.Helper()
	program := filepath.Join(t.TempDir(), "router")
	build := exec.Command("go", "build", "-o", program, "./cmd/router")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the router: %v\n%s", err, out)
	}
	raced := routerProgram
	routerProgram = program
	defer func() { routerProgram = raced }()
	return startRouter(t, name, table)
}

// peakMiB is the most memory that a process ever had resident.
func peakMiB(t *testing.T, p *process) (mib int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	if _, err := fmt.Sscan(rest, &mib); err != nil {
		t.Fatal(err)
	}
	return mib >> 10
}

// sendLong writes one delivery with a body of n bytes. Like a simple client it listens only while it may not send.
func (s *rawSender) sendLong(to string, n int) (id uint32, digest [32]byte, err error) {
	if err := s.pumpUntil("credit", func() bool { return s.credit > 0 }); err != nil {
		return 0, digest, err
	}
	id = s.next
	s.next++
	s.credit--
	s.count++
	hash, random := sha256.New(), rand.NewChaCha8([32]byte{1})
	part := join(composite(propertiesSection, null, null, str(to)), []byte{0, 0x53, dataSection, 0xb0}, binary.BigEndian.AppendUint32(nil, uint32(n)))
	buf := make([]byte, int(s.c.maxFrame)-64)
	fields := [][]byte{uint32v(s.handle), uint32v(id), binaryv(binary.BigEndian.AppendUint32(nil, id)), uint32v(0), boolean(false), boolean(true)}
	for {
		if err := s.pumpUntil("window", func() bool { return s.window > 0 }); err != nil {
			return 0, digest, err
		}
		hash.Write(part)
		if err := s.c.write(s.channel, composite(transfer, fields...), part); err != nil {
			return 0, digest, err
		}
		s.window--
		s.sent++
		if n == 0 {
			hash.Sum(digest[:0])
			return id, digest, nil
		}
		part = buf[:min(n, len(buf))]
		random.Read(part)
		n -= len(part)
		fields = [][]byte{uint32v(s.handle), null, null, null, null, boolean(n > 0)}
	}
}

// receiveLong reads one delivery and gives its digest. Where narrow is not 0, the receiver's session takes that many frames at a time.
func (r *rawReceiver) receiveLong(narrow uint32) (digest [32]byte, size int, err error) {
	hash := sha256.New()
	next, id := uint32(0), uint64(0)
	for {
		f, err := r.c.read(patience)
		if err != nil {
			return digest, size, err
		}
		if f.code != transfer {
			continue
		}
		if next++; narrow > 0 && next%narrow == 0 {
			r.c.write(0, composite(flow, uint32v(next), uint32v(narrow), uint32v(0), uint32v(1<<31-1)))
		}
		if f.at(1) != nil {
			id = f.number(1)
		}
		hash.Write(f.payload)
		size += len(f.payload)
		if f.flag(9) {
			return digest, size, fmt.Errorf("it was aborted after %d bytes", size)
		}
		if !f.flag(5) {
			hash.Sum(digest[:0])
			return digest, size, r.c.write(0, composite(disposition, boolean(true), uint32v(uint32(id)), uint32v(uint32(id)), boolean(true), composite(accepted)))
		}
	}
}

// A message that is much larger than the router's memory crosses it to three receivers, one of which takes it slowly. Its sender writes on
// while its session's window is narrowed.
func TestALargeMessageNeedsLittleMemory(t *testing.T) {
	r := plainRouter(t, "narrow", "")
	var waits []func() error
	digests := make([][32]byte, 3)
	for i, narrow := range []uint32{0, 0, 2} {
		rcv := newRawReceiver(t, r.addr, "films", 10)
		if narrow > 0 {
			rcv.c.write(0, composite(flow, uint32v(0), uint32v(narrow), uint32v(0), uint32v(1<<31-1)))
		}
		done := make(chan error, 1)
		go func() {
			var err error
			digests[i], _, err = rcv.receiveLong(narrow)
			done <- err
		}()
		waits = append(waits, func() error { return <-done })
	}
	s := newRawSender(t, r.addr, []byte("films"))
	idle := peakMiB(t, r.process)
	id, sent, err := s.sendLong("films", largeBody)
	if err != nil {
		t.Fatal(err)
	}
	for i, wait := range waits {
		if err := wait(); err != nil {
			t.Fatalf("receiver %d: %v", i, err)
		}
		if digests[i] != sent {
			t.Errorf("receiver %d got other bytes", i)
		}
	}
	if got, err := s.outcome(id); err != nil || got.String() != "accepted" {
		t.Errorf("the sender is told %v, %v", got, err)
	}
	peak := peakMiB(t, r.process)
	t.Logf("%d MiB crossed; the router had %d MiB idle, %d MiB at its peak", largeBody>>20, idle, peak)
	if peak-idle > 64 {
		t.Errorf("the router had %d MiB more than idle", peak-idle)
	}
}
