package admin

import (
	"errors"
	"regexp"
	"strings"
)

// NodeValue is the name of the value that a state directory keeps beside the table: the id of the node.
const NodeValue = "node"

var nodePattern = regexp.MustCompile(`^[0-9a-f]{16}$`)

// ParseNodeID reads NodeValue: 64 bits in hexadecimal digits, and the end of the line.
func ParseNodeID(value []byte) (string, error) {
	id := strings.TrimSpace(string(value))
	if !nodePattern.MatchString(id) {
		return "", errors.New("it is not a node id of 16 hexadecimal digits: remove the file to get a new one")
	}
	return id, nil
}
