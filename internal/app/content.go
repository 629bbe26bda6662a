package app

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/fingerpost/fingerpost/routetable"
)

// maxTableBytes bounds a table file of either form. A table of a million rows is about 100 MB of arrow text.
const maxTableBytes = 512 << 20

// content is what a table file held.
type content struct {
	text    []byte
	hash    []byte      // SHA-256 of text
	info    os.FileInfo // before it was read
	at      time.Time   // when it was read
	settled bool        // it did not change meanwhile
}

// readContent reads a table file. One that is over a limit is refused by its size. The error names the file.
func readContent(path string) (content, error) {
	var c content
	// A FIFO would block the open.
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return c, fmt.Errorf("%s: not a regular file", path)
	}
	if err != nil {
		return c, fileError(path, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return c, fileError(path, err)
	}
	defer f.Close()
	c.at = time.Now()
	if c.info, err = f.Stat(); err != nil {
		return c, fileError(path, err)
	}
	if err := checkSize(f, path, c.info.Size()); err != nil {
		return c, err
	}
	var text bytes.Buffer
	text.Grow(int(c.info.Size()) + bytes.MinRead)
	n, err := text.ReadFrom(io.LimitReader(f, maxTableBytes+1))
	if err != nil {
		return c, fileError(path, err)
	}
	if n > maxTableBytes {
		return c, tooLarge(path)
	}
	after, err := f.Stat()
	if err != nil {
		return c, fileError(path, err)
	}
	c.settled = after.Size() == n && after.ModTime().Equal(c.info.ModTime())
	c.text = text.Bytes()
	sum := sha256.Sum256(c.text)
	c.hash = sum[:]
	return c, nil
}

// fileError says the reason of an error of the file system, after the path.
func fileError(path string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

func tooLarge(path string) error {
	return fmt.Errorf("%s: a table file is at most %d MiB", path, maxTableBytes>>20)
}

// headBytes is how much of a large file is looked at for its form.
const headBytes = 1 << 20

// checkSize refuses a file by its size, before it is read.
func checkSize(f io.ReaderAt, path string, size int64) error {
	if size > maxTableBytes {
		return tooLarge(path)
	}
	if size <= routetable.MaxYAMLBytes {
		return nil
	}
	head := make([]byte, headBytes)
	if _, err := f.ReadAt(head, 0); err != nil && err != io.EOF {
		return fileError(path, err)
	}
	if !bytes.Contains(head, []byte("-->")) {
		return fmt.Errorf("%s: a YAML table is at most %d MiB (use the arrow form)", path, routetable.MaxYAMLBytes>>20)
	}
	return nil
}
