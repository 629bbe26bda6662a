package app

import (
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

	mu sync.Mutex // guards m; held while it is written
	m  map[string][]byte
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

// Get gives the hash of the content that a file had.
func (h *hashes) Get(name string) ([]byte, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hash, ok := h.m[name]
	return hash, ok
}

// Set keeps a hash; nil forgets the file.
func (h *hashes) Set(name string, hash []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.m[name] = hash
	if hash == nil {
		delete(h.m, name)
	}
	text, err := json.Marshal(h.m)
	if err != nil {
		return err
	}
	return h.table.WriteValue(hashesValue, text)
}
