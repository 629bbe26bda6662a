package socket

import (
	"math/bits"
	"sync"
)

// Buffers of powers of two are used again, from 4 KiB to 64 MiB.
const (
	leastBits = 12
	mostBits  = 26
)

var buffers [mostBits - leastBits + 1]sync.Pool

// class gives the pool of buffers of at least n bytes, and their size in bits; pool is nil where buffers of that size are not kept.
func class(n int) (pool *sync.Pool, size int) {
	size = max(bits.Len(uint(max(n, 1)-1)), leastBits)
	if size > mostBits {
		return nil, size
	}
	return &buffers[size-leastBits], size
}

// Get gives a buffer of n bytes or more.
func Get(n int) *[]byte {
	pool, size := class(n)
	if pool == nil {
		b := make([]byte, n)
		return &b
	}
	if b, ok := pool.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 1<<size)
	return &b
}

// Put takes a buffer of Get back. Nothing may use it any more.
func Put(b *[]byte) {
	if pool, size := class(len(*b)); pool != nil && len(*b) == 1<<size {
		pool.Put(b)
	}
}
