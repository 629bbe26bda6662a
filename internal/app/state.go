package app

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// nodeID gives the id that the state directory keeps, and makes one for a new directory.
func nodeID(t *routetable.Table) (string, error) {
	text, err := t.ReadValue(admin.NodeValue)
	if errors.Is(err, fs.ErrNotExist) {
		id := forwarder.NewID()
		return id, t.WriteValue(admin.NodeValue, []byte(id+"\n"))
	}
	if err != nil {
		return "", err
	}
	id, err := admin.ParseNodeID(text)
	if err != nil {
		return "", fmt.Errorf("the state directory's value %q: %w", admin.NodeValue, err)
	}
	return id, nil
}
