package app

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/routetable"
)

// The values that the state directory keeps beside the table.
const (
	nodeValue   = "node"
	hashesValue = "table-files"
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
type hashes struct {
	table *routetable.Table

	mu sync.Mutex        // guards m; held while it is written
	m  map[string][]byte // each with the table's revision behind it, 8 bytes
}

// readHashes reads what the state directory keeps.
func readHashes(t *routetable.Table) (*hashes, error) {
	h := &hashes{table: t, m: map[string][]byte{}}
	text, err := t.ReadValue(hashesValue)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &h.m)
	}
	if err != nil {
		return nil, fmt.Errorf("the state directory's value %q: %w", hashesValue, err)
	}
	return h, nil
}

// Get gives the hash of the content that a file had. It is not there where the table is older than the hash: a repair took it back, maybe to
// before the file was loaded.
func (h *hashes) Get(name string) ([]byte, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept, ok := h.m[name]
	if !ok || len(kept) != sha256.Size+8 || binary.LittleEndian.Uint64(kept[sha256.Size:]) > h.table.Revision() {
		return nil, false
	}
	return kept[:sha256.Size], true
}

// Set keeps a hash; nil forgets the file.
func (h *hashes) Set(name string, hash []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.m[name] = binary.LittleEndian.AppendUint64(slices.Clone(hash), h.table.Revision())
	if hash == nil {
		delete(h.m, name)
	}
	text, err := json.Marshal(h.m)
	if err != nil {
		return err
	}
	return h.table.WriteValue(hashesValue, text)
}
