package wire

import "fmt"

// DecodeError says where input stops making sense. On a connection it is answered with [CondDecodeError].
type DecodeError struct {
	Offset int    // into the slice that was given to the function that failed
	What   string // what is wrong, for a person
	Short  bool   // the input ended too early: more bytes could make it right
}

func (e *DecodeError) Error() string { return fmt.Sprintf("%s at offset %d", e.What, e.Offset) }

// Error is an error that crosses the wire (AMQP 1.0 part 2, 2.8.14).
type Error struct {
	Condition   Symbol // mandatory
	Description string
	Info        Map
}

func (e *Error) Error() string {
	if e.Description == "" {
		return string(e.Condition)
	}
	return string(e.Condition) + ": " + e.Description
}
