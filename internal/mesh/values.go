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

	// Between routers of our kind.
	Kin  uint64     `cbor:"fingerpost"` // of setup and fingerpost: who says it
	Door []byte     `cbor:"amqp"`       // of setup: the key by which a connection for AMQP comes
	News []newsItem `cbor:"news"`       // of fingerpost
}

// newsItem is news on the wire.
type newsItem struct {
	_      struct{} `cbor:",toarray"`
	Origin uint64
	Number uint64
	Alive  bool
	Kind   uint8
	Name   string
}

// newsCommand is the command by which routers of our kind tell news.
const newsCommand = "fingerpost"

// newsOf gives the news of a command, without names that cannot be.
func newsOf(items []newsItem) []news {
	list := make([]news, 0, len(items))
	for _, i := range items {
		if thingKind(i.Kind) <= thingNode && badName(i.Name) == "" {
			list = append(list, news{i.Origin, thing{thingKind(i.Kind), i.Name}, version{i.Number, i.Alive}})
		}
	}
	return list
}

// appendNews appends the map of a command of news, that the router self tells.
func appendNews(b []byte, self uint64, list []news) []byte {
	b = appendText(appendText(appendHead(b, majorMap, 3), "cmd"), newsCommand)
	b = appendWide(appendText(b, "fingerpost"), self)
	b = appendHead(appendText(b, "news"), majorArray, uint64(len(list)))
	for _, n := range list {
		b = appendWide(append(b, majorArray<<5|5), n.origin)
		b = appendHead(b, majorUint, n.number)
		alive := byte(cborFalse)
		if n.alive {
			alive = cborTrue
		}
		b = appendText(append(b, alive, byte(n.kind)), n.name)
	}
	return b
}

// kinOf reads the answer of setup: who gives it, where that is one of our kind, and whether it takes AMQP.
func kinOf(item []byte) (mark uint64, door bool) {
	var c command
	if len(item) == 0 || item[0]>>5 != majorMap || values.Unmarshal(item, &c) != nil {
		return 0, false
	}
	return c.Kin, len(c.Door) == doorKeySize
}

// maxListed is how many topics a map or an answer may list.
const maxListed = 1 << 17

// values decodes what has structure. A length is checked against what came before anything is made for it.
var values = func() cbor.DecMode {
	mode, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, FieldNameMatching: cbor.FieldNameMatchingCaseSensitive, MaxNestedLevels: 16, MaxArrayElements: maxListed, MaxMapPairs: 1024,
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
