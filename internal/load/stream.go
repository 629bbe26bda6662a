package load

// stream follows the sequence of one sender to one address at one receiver.
type stream struct {
	next uint64 // the sequence number after the highest that came
	seen uint64 // bit i: next-1-i came
}

// remembered is how many places behind the newest a message may come and still be told from a duplicate.
const remembered = 64

// take notes a message. One that comes more than 64 places late counts as a duplicate, and its place as lost.
func (s *stream) take(seq uint64) (fresh bool) {
	if seq >= s.next {
		shift := seq - s.next + 1
		s.seen = s.seen<<shift | 1 // a shift of 64 and more gives 0
		s.next = seq + 1
		return true
	}
	age := s.next - 1 - seq
	if age >= remembered || s.seen&(1<<age) != 0 {
		return false
	}
	s.seen |= 1 << age
	return true
}
