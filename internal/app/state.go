package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"sync"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/routetable"
)

// The values that the state directory keeps beside the table.
const (
	nodeValue      = "node"
	hashesValue    = "table-files"
	intentionValue = "table-files-next"
)

var nodePattern = regexp.MustCompile(`^[0-9a-f]{16}$`)

// nodeID gives the id that the state directory keeps, and makes one for a new directory.
func nodeID(t *routetable.Table) (string, error) {
	text, err := t.ReadValue(nodeValue)
	if errors.Is(err, fs.ErrNotExist) {
		id := forwarder.NewID()
		return id, t.WriteValue(nodeValue, []byte(id+"\n"))
	}
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(text))
	if !nodePattern.MatchString(id) {
		return "", fmt.Errorf("the state directory's value %q is not a node id of 16 hexadecimal digits: remove the file to get a new one", nodeValue)
	}
	return id, nil
}

// hashes are the hashes of the table files' contents, kept in the state directory.
//
// Rows and hashes cannot be written in one step, and a load that a crash kept apart from its hashes would be done once more at the next start, over
// edits made since. So what a load is to set is written before it, with the revision then. Whether it was done is in the history.
type hashes struct {
	table *routetable.Table

	mu       sync.Mutex // guards what follows; held while it is written
	m        map[string][]byte
	unsaved  bool // m is not on disk
	intended map[string][]byte
}

// intention is a load that is about to be done.
type intention struct {
	Revision uint64            `json:"revision"` // before it
	Hashes   map[string][]byte `json:"hashes"`   // after it; null forgets the file
}

// readHashes reads what the state directory keeps.
func readHashes(t *routetable.Table) (*hashes, error) {
	h := &hashes{table: t, m: map[string][]byte{}}
	if err := readJSON(t, hashesValue, &h.m); err != nil {
		return nil, err
	}
	var last intention
	if err := readJSON(t, intentionValue, &last); err != nil {
		return nil, err
	}
	for _, r := range t.History(0, 0) {
		if r.Revision <= last.Revision {
			break
		}
		if strings.HasPrefix(r.From, fileOrigin) {
			h.set(last.Hashes)
			break
		}
	}
	return h, h.save()
}

// readJSON reads a value of the state directory; what is not there leaves v as it is.
func readJSON(t *routetable.Table, name string, v any) error {
	text, err := t.ReadValue(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return fmt.Errorf("the state directory's value %q: %w", name, err)
	}
	return nil
}

func writeJSON(t *routetable.Table, name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.WriteValue(name, text)
}

// set sets hashes; the caller holds the lock, or nobody else has h yet.
func (h *hashes) set(change map[string][]byte) {
	for name, hash := range change {
		h.unsaved = h.unsaved || !bytes.Equal(h.m[name], hash)
		if h.m[name] = hash; hash == nil {
			delete(h.m, name)
		}
	}
}

// save writes the hashes where the disk has others.
func (h *hashes) save() error {
	if !h.unsaved {
		return nil
	}
	err := writeJSON(h.table, hashesValue, h.m)
	h.unsaved = err != nil
	return err
}

// Get gives the hash of the content that a file had.
func (h *hashes) Get(name string) ([]byte, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hash, ok := h.m[name]
	return hash, ok
}

// Intend is called before a load.
func (h *hashes) Intend(change map[string][]byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.save(); err != nil { // the intention takes the place of the last one
		return err
	}
	h.intended = change
	return writeJSON(h.table, intentionValue, intention{h.table.Revision(), change})
}

// Done is called after it, where it succeeded.
func (h *hashes) Done() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set(h.intended)
	h.intended = nil
	return h.save()
}
