package tokenizer

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"
)

// The vocabulary and the merges make up nearly all of a tokenizer.json. The functions in
// this file read them in place instead of decoding them into maps: that is several times
// faster, tokens share the memory of the file's text, and a duplicate key is seen instead
// of overwritten. encoding/json has already found the text valid; unexpected text is
// still an error.

// members returns every "key": value of a JSON object, in order.
func members(object string) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		eachItem(object, '{', '}', func(rest string) (string, bool) {
			key, rest := cutValue(rest)
			name := jsonString(key)
			rest = skipSpace(rest)
			if rest == "" || rest[0] != ':' {
				panic(failf("no colon after key %q", name))
			}
			value, rest := cutValue(skipSpace(rest[1:]))
			return rest, yield(name, value)
		})
	}
}

// elements returns every element of a JSON array, in order.
func elements(array string) iter.Seq[string] {
	return func(yield func(value string) bool) {
		eachItem(array, '[', ']', func(rest string) (string, bool) {
			value, rest := cutValue(rest)
			return rest, yield(value)
		})
	}
}

// eachItem reads the comma-separated items between open and shut. item reads one and
// returns what follows it, and whether to go on.
func eachItem(s string, open, shut byte, item func(rest string) (string, bool)) {
	s = skipSpace(s)
	if s == "" || s[0] != open {
		panic(failf("expected %q, found %s", open, excerpt(s)))
	}
	s = skipSpace(s[1:])
	for s != "" && s[0] != shut {
		rest, more := item(s)
		if !more {
			return
		}
		s = skipSpace(rest)
		if s != "" && s[0] == ',' {
			s = skipSpace(s[1:])
		} else if s == "" || s[0] != shut {
			panic(failf("expected ',' or %q, found %s", shut, excerpt(s)))
		}
	}
	if s == "" {
		panic(failf("no closing %q", shut))
	}
}

// cutValue splits s after the JSON value that it begins with.
func cutValue(s string) (value, rest string) {
	n := 0
	switch {
	case s == "":
	case s[0] == '"':
		n = stringLen(s)
	case s[0] == '[' || s[0] == '{':
		n = nestedLen(s)
	default:
		if n = strings.IndexAny(s, ",]} \t\r\n"); n < 0 {
			n = len(s)
		}
	}
	if n == 0 {
		panic(failf("no JSON value at %s", excerpt(s)))
	}
	return s[:n], s[n:]
}

// stringLen returns the length of the quoted string that s begins with, 0 if it has no
// end.
func stringLen(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

// nestedLen returns the length of the array or object that s begins with, 0 if it has
// no end.
func nestedLen(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			n := stringLen(s[i:])
			if n == 0 {
				return 0
			}
			i += n - 1
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// jsonString reads a quoted string. The result shares the memory of raw if there are no
// escapes.
func jsonString(raw string) string {
	if len(raw) >= 2 && raw[0] == '"' && strings.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	var s string
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		panic(failf("%s is not a string", excerpt(raw)))
	}
	return s
}

func skipSpace(s string) string { return strings.TrimLeft(s, " \t\r\n") }

// excerpt quotes and shortens text of a file for an error.
func excerpt(s string) string {
	const most = 40
	if len(s) > most {
		return fmt.Sprintf("%.*q...", most, s)
	}
	return fmt.Sprintf("%q", s)
}
