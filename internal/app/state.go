package app

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/routetable"
)

// nodeValue is the value that the state directory keeps beside the table.
const nodeValue = "node"

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
