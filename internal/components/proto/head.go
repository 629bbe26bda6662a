package proto

import "google.golang.org/protobuf/encoding/protowire"

// RequestHead is the Event of a MatchedEvent that AppendMatched wrote, where it is a request, but without params, values and content; and its id.
func RequestHead(msg []byte) (head []byte, id string) {
	event := EventOf(msg)
	if event == nil {
		return nil, ""
	}
	is, id := headOf(event)
	if is == 0 {
		return nil, ""
	}
	return event[:is], id
}

// headOf is how long the head of an Event is that is a request; 0 where it is none.
func headOf(event []byte) (size int, id string) {
	isRequest := false
	for size < len(event) {
		n, kind, tag := protowire.ConsumeTag(event[size:])
		if tag < 0 || n > 10 {
			break
		}
		value := protowire.ConsumeFieldValue(n, kind, event[size+tag:])
		if value < 0 {
			break
		}
		switch {
		case n == 1 && kind == protowire.BytesType:
			b, _ := protowire.ConsumeBytes(event[size+tag:])
			id = text(b)
		case n == 5 && kind == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(event[size+tag:])
			isRequest = Category(v) == Request
		}
		size += tag + value
	}
	if !isRequest || id == "" {
		return 0, ""
	}
	return size, id
}
