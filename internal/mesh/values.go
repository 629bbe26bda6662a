package mesh

import (
	"github.com/fxamacker/cbor/v2"
)

// command is the map of an admin message, as far as it is known here.
type command struct {
	Cmd         *string  `cbor:"cmd"`
	LookBack    *float64 `cbor:"msg_from"` // nanoseconds
	Status      *bool    `cbor:"status"`
	CID         string   `cbor:"cid"`
	Exposers    []string `cbor:"exposers"`
	Subscribers []string `cbor:"subscribers"`
	Marks       []uint64 `cbor:"rmark"` // of routers that have handled it
	Touched     []string `cbor:"touch"` // names of links that it went by
}

// maxListed is how many topics a map or an answer may list.
const maxListed = 1 << 17

// values decodes what has structure. A length is checked against what came before anything is made for it.
var values = func() cbor.DecMode {
	mode, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, MaxNestedLevels: 16, MaxArrayElements: maxListed, MaxMapPairs: 1024,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return mode
}()

// parseCommand reads the map of an admin message.
func parseCommand(item []byte) (c command, err error) {
	err = values.Unmarshal(item, &c)
	return c, err
}

// parseExports reads the data of an identity's answer: what the peer exposes or can reach, and what it subscribes to. Null is nothing.
func parseExports(item []byte) (exposed, subscribed []string, err error) {
	if len(item) == 0 || isNull(item) {
		return nil, nil, nil
	}
	var lists [][]string
	if err := values.Unmarshal(item, &lists); err != nil {
		return nil, nil, err
	}
	if len(lists) > 0 {
		exposed = lists[0]
	}
	if len(lists) > 1 {
		subscribed = lists[1]
	}
	return exposed, subscribed, nil
}

// isRouterMeta tells whether the map of ports that came with an identity names any: then who sent it listens, and passes on.
func isRouterMeta(item []byte) bool {
	h, err := readHead(item)
	return err == nil && h.major == majorMap && (h.arg > 0 || h.indef && len(item) > 2)
}
