package journal

import (
	"strings"
	"sync"
)

// Journal is what was logged. The zero value is empty.
type Journal struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write takes lines, from any goroutine.
func (j *Journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

// String is all that was logged so far.
func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// Has tells whether s was logged.
func (j *Journal) Has(s string) bool { return strings.Contains(j.String(), s) }
