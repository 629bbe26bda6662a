package journal

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// valuePrefix keeps the names of values apart from all other files.
const damagedMark = ".damaged-"
const valuePrefix = "value."

// valueFile is the file of a value; the name of a value is letters, digits and "-".
func (j *Journal) valueFile(name string) (string, error) {
	return valuePrefix + name, checkValueName(name)
}

func checkValueName(name string) error {
	odd := func(c rune) bool {
		return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	}
	if name == "" || strings.ContainsFunc(name, odd) {
		return fmt.Errorf("%q is no name of a value", name)
	}
	return nil
}

// ReadValue reads what WriteValue wrote under the name; the error is os.ErrNotExist where nothing was.
func (j *Journal) ReadValue(name string) ([]byte, error) {
	file, err := j.valueFile(name)
	if err != nil {
		return nil, err
	}
	b, err := load(j.disk, join(j.dir, file))
	if err != nil {
		return nil, fmt.Errorf("read value %s: %w", name, err)
	}
	return b, nil
}

// WriteValue keeps a small value in a file of its own, durably: a crash leaves the old value or the new one. For one goroutine at a time
// for each name.
func (j *Journal) WriteValue(name string, value []byte) error {
	file, err := j.valueFile(name)
	if err != nil {
		return err
	}
	if err := j.gone(); err != nil {
		return fmt.Errorf("write value %s: %w", name, err)
	}
	if _, err := place(j.disk, j.dir, file, write(bytes.NewReader(value))); err != nil {
		return fmt.Errorf("write value %s: %w", name, err)
	}
	return nil
}

// write fills a file with what r gives.
func write(r io.Reader) func(f file) error {
	return func(f file) error {
		_, err := io.Copy(io.NewOffsetWriter(f, 0), r)
		return err
	}
}
