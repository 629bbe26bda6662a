package routetable

import (
	"cmp"
	"math/bits"
	"slices"
)

// hmap is a persistent multimap from hashes to the slots of rows. It does not keep the keys: two of 32 bits may share a hash, and whoever
// asks looks at the rows. The slots of one hash stand together, so that a name with ten thousand rows costs its neighbours nothing.
//
// It is a linear hash table: it grows by one bucket at a time, so no edit pays for all. A bucket is one sorted list of words without
// pointers, hash<<32 | slot.
type hmap struct {
	buckets parray[bucket]
	n       int // words
}

type bucket struct {
	words []uint64
	owner owner // of words
}

// bucketLoad is the mean number of words in a bucket.
const bucketLoad = 20

// bucketOf is the place of a hash among n buckets.
func bucketOf(hash uint32, n int) int {
	mask := uint32(1)<<bits.Len32(uint32(n-1)) - 1
	i := int(hash & mask)
	if i >= n {
		i = int(hash & (mask >> 1))
	}
	return i
}

// get returns the words of a hash. They are shared: do not write to them.
func (m *hmap) get(hash uint32) []uint64 {
	if m.n == 0 {
		return nil
	}
	return wordsOf(m.bucket(hash), hash)
}

// bucket returns the words of the bucket of a hash, where the map is not empty.
func (m *hmap) bucket(hash uint32) []uint64 { return m.buckets.at(bucketOf(hash, m.buckets.n)).words }

// wordsOf returns the words of a hash among those of its bucket.
func wordsOf(words []uint64, hash uint32) []uint64 {
	from := search(words, uint64(hash)<<32)
	to := from
	for to < len(words) && uint32(words[to]>>32) == hash {
		if to++; to-from == 2*bucketLoad { // they are many: most of a long bucket
			n, _ := slices.BinarySearchFunc(words[to:], hash, func(w uint64, hash uint32) int { return cmp.Compare(w>>32, uint64(hash)+1) })
			to += n
			break
		}
	}
	return words[from:to:to]
}

// search returns the place of the first word that is not less than w.
func search(words []uint64, w uint64) int {
	// Hashes are spread evenly: the place is near where the hash says, but where many words have one hash.
	n := len(words)
	i := int(w >> 32 * uint64(n) >> 32)
	if i < n && words[i] < w {
		for end := min(i+6, n); i < end; i++ {
			if words[i] >= w {
				return i
			}
		}
	} else {
		for end := max(i-6, 0); i > end; i-- {
			if words[i-1] < w {
				return i
			}
		}
	}
	if i == 0 || i == n && words[n-1] < w {
		return i
	}
	lo, hi := 0, n
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if words[mid] < w {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// add files a slot under a hash, and reports whether it was not there already.
func (m *hmap) add(hash uint32, slot uint32, o owner) bool {
	if m.n >= bucketLoad*m.buckets.n {
		m.grow(o)
	}
	w := uint64(hash)<<32 | uint64(slot)
	b := m.own(bucketOf(hash, m.buckets.n), o)
	i := search(b.words, w)
	if i < len(b.words) && b.words[i] == w {
		return false
	}
	b.words = slices.Insert(b.words, i, w)
	m.n++
	return true
}

// remove takes a slot from under a hash and reports whether it was there.
func (m *hmap) remove(hash uint32, slot uint32, o owner) bool {
	if m.n == 0 {
		return false
	}
	w := uint64(hash)<<32 | uint64(slot)
	at := bucketOf(hash, m.buckets.n)
	words := m.buckets.at(at).words
	i := search(words, w)
	if i == len(words) || words[i] != w {
		return false
	}
	b := m.own(at, o)
	b.words = slices.Delete(b.words, i, i+1)
	m.n--
	return true
}

// reserve makes as many buckets as more words ask for.
func (m *hmap) reserve(more int, o owner) {
	for m.n+more > bucketLoad*m.buckets.n {
		m.grow(o)
	}
}

// own makes a bucket writable, with room for a few words.
func (m *hmap) own(at int, o owner) *bucket {
	b := m.buckets.edit(at, o)
	if b.owner != o {
		room := 4
		if m.n < bucketLoad/2*m.buckets.n { // there is more to come
			room = bucketLoad + 4
		}
		b.words = append(make([]uint64, 0, len(b.words)+room), b.words...)
		b.owner = o
	}
	if len(b.words) == cap(b.words) {
		b.words = append(make([]uint64, 0, len(b.words)+max(8, len(b.words)/4)), b.words...)
	}
	return b
}

// grow adds a bucket and moves to it what is its own.
func (m *hmap) grow(o owner) {
	n := m.buckets.n
	m.buckets.edit(n, o)
	if m.n == 0 {
		return
	}
	mask := 1
	for mask < n+1 {
		mask <<= 1
	}
	from := n - mask/2 // bucket n was a part of this one
	old := m.buckets.at(from).words
	var stay, move []uint64
	for _, w := range old {
		if bucketOf(uint32(w>>32), n+1) == n {
			move = append(move, w)
		} else {
			stay = append(stay, w)
		}
	}
	if len(move) == 0 {
		return
	}
	*m.buckets.edit(from, o) = bucket{stay, o}
	*m.buckets.edit(n, o) = bucket{move, o}
}
