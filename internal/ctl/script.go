package ctl

import (
	"fmt"
	"strconv"
	"strings"
)

// splitWords splits one line of an apply file.
//
//	line    = { word } [ comment ]
//	comment = "#" at the start of the line or after a blank, to the end
//	word    = anything without a blank; where it, or what follows its "=", begins with a quote, up to the closing one:
//	          "…" a Go string with its escapes, '…' verbatim
//
// A backslash outside of "…" is itself, since patterns use it.
func splitWords(line string) ([]string, error) {
	var words []string
	i := 0
	for {
		for i < len(line) && (line[i] == ' ' || line[i] == '\t' || line[i] == '\r') {
			i++
		}
		if i == len(line) || line[i] == '#' {
			return words, nil
		}
		var w strings.Builder
		for start := i; i < len(line) && line[i] != ' ' && line[i] != '\t' && line[i] != '\r'; {
			if (line[i] != '"' && line[i] != '\'') || (i > start && line[i-1] != '=') {
				w.WriteByte(line[i])
				i++
				continue
			}
			text, n, err := quoted(line[i:])
			if err != nil {
				return nil, fmt.Errorf("column %d: %w", i+1, err)
			}
			w.WriteString(text)
			i += n
		}
		words = append(words, w.String())
	}
}

// quoted reads the quoted text at the start of s and says how long it is with its quotes.
func quoted(s string) (text string, n int, err error) {
	if s[0] == '\'' {
		end := strings.IndexByte(s[1:], '\'')
		if end < 0 {
			return "", 0, fmt.Errorf("a quote is not closed")
		}
		return s[1 : 1+end], end + 2, nil
	}
	prefix, err := strconv.QuotedPrefix(s)
	if err != nil {
		return "", 0, fmt.Errorf("a quoted text is not closed, or has a bad escape")
	}
	text, err = strconv.Unquote(prefix)
	return text, len(prefix), err
}
