package mesh

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
)

// The ids of QoS 2 publishes that a named twin has sent and not yet said ack2 to are kept in a file of its name, hexadecimal, one a line: written when its
// connection ends and when the router does, read when the twin is known again.

const maxAckFile = maxSeen * (2*maxID + 1)

func (m *Mesh) ackFile(name string) string {
	return filepath.Join(m.o.Acks, url.PathEscape(name))
}

// parseAcks reads a file of ids.
func parseAcks(b []byte) ([]ID, error) {
	if len(b) > maxAckFile {
		return nil, errors.New("too long")
	}
	var ids []ID
	for n := 1; len(b) > 0; n++ {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		var raw [maxID]byte
		if !ended || len(line) > 2*maxID {
			return nil, fmt.Errorf("line %d is no id", n)
		}
		size, err := hex.Decode(raw[:], line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		id, _ := MakeID(raw[:size])
		ids = append(ids, id)
		b = rest
	}
	return ids, nil
}

func appendAcks(b []byte, ids []ID) []byte {
	for _, id := range ids {
		b = append(hex.AppendEncode(b, id.Bytes()), '\n')
	}
	return b
}

// loadAcks has a new twin know what it sent before.
func (m *Mesh) loadAcks(t *twin) {
	if m.o.Acks == "" || !t.named {
		return
	}
	name := m.ackFile(t.name)
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var text []byte
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxAckFile) {
		err = errors.New("not a file of ids")
	}
	if err == nil {
		text, err = os.ReadFile(name)
	}
	var ids []ID
	if err == nil {
		ids, err = parseAcks(text)
	}
	if err != nil {
		m.o.Log.Error("the ids that a component has sent cannot be read", "component", t.name, "file", name, "error", err)
		return
	}
	for _, id := range ids {
		t.in.take(id)
	}
	t.in.dirty = false
}

// saveAcks keeps what a twin has sent, where it is not kept already.
func (m *Mesh) saveAcks(t *twin) {
	if m.o.Acks == "" || !t.named {
		return
	}
	t.mu.Lock()
	dirty, ids := t.in.dirty, t.in.ids()
	t.in.dirty = false
	t.mu.Unlock()
	if !dirty {
		return
	}
	name := m.ackFile(t.name)
	var err error
	if len(ids) == 0 {
		if err = os.Remove(name); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	} else if err = os.MkdirAll(m.o.Acks, 0o700); err == nil {
		err = writeFile(name, appendAcks(nil, ids))
	}
	if err != nil {
		m.o.Log.Error("the ids that a component has sent cannot be kept", "component", t.name, "file", name, "error", err)
	}
}
