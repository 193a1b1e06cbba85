package safetensors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads the small part of JSON that headers and indexes use, strictly:
// encoding/json accepts duplicate keys and broken Unicode.
type scanner struct {
	data []byte
	pos  int
}

// scanError is what a scanner panics with; scan returns it.
type scanError struct{ error }

// scan reads a text with the given function, which must reach its end.
func scan(raw []byte, what string, read func(s *scanner)) (err error) {
	defer func() {
		switch problem := recover().(type) {
		case nil:
		case scanError:
			err = problem.error
		default:
			panic(problem)
		}
	}()
	if !utf8.Valid(raw) {
		return fmt.Errorf("the %s is not valid UTF-8", what)
	}
	s := &scanner{data: raw}
	read(s)
	if s.peek(); s.pos < len(s.data) {
		panic(s.fail("found more after the end"))
	}
	return nil
}

func (s *scanner) fail(format string, args ...any) scanError {
	return scanError{fmt.Errorf("at byte %d of the JSON: %s", s.pos, fmt.Sprintf(format, args...))}
}

// peek is the next byte after white space, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.pos < len(s.data); s.pos++ {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
		default:
			return s.data[s.pos]
		}
	}
	return 0
}

func (s *scanner) expect(c byte) {
	if got := s.peek(); got != c {
		panic(s.fail("found %q where %q is needed", got, c))
	}
	s.pos++
}

// object reads {"key": value, ...}; value is called with the scanner at each value.
func (s *scanner) object(value func(key string)) {
	seen := map[string]bool{}
	s.list('{', '}', func() {
		key := s.str()
		if seen[key] {
			panic(s.fail("the key %q is given twice", key))
		}
		seen[key] = true
		s.expect(':')
		value(key)
	})
}

// list reads items separated by commas.
func (s *scanner) list(open, shut byte, item func()) {
	s.expect(open)
	for first := true; s.peek() != shut; first = false {
		if !first {
			s.expect(',')
		}
		item()
		if next := s.peek(); next != ',' && next != shut {
			s.expect(shut)
		}
	}
	s.pos++
}

// integers reads an array of at most limit integers.
func (s *scanner) integers(limit int) []int64 {
	out := []int64{}
	s.list('[', ']', func() {
		if len(out) == limit {
			panic(s.fail("the list has more than %d numbers", limit))
		}
		out = append(out, s.integer())
	})
	return out
}

// integer reads an integer from 0 to 2^63-1, written plainly.
func (s *scanner) integer() int64 {
	s.peek()
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	digits := s.data[start:s.pos]
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		panic(s.fail("an integer is needed"))
	}
	n, err := strconv.ParseUint(string(digits[:min(len(digits), 20)]), 10, 64)
	if err != nil || n > math.MaxInt64 {
		panic(s.fail("the number %.20s is too large", digits))
	}
	return int64(n)
}

// str reads a string. The bytes are known to be valid UTF-8.
func (s *scanner) str() string {
	s.expect('"')
	var out []byte
	start := s.pos
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; {
		case c == '"':
			out = append(out, s.data[start:s.pos]...)
			s.pos++
			return string(out)
		case c < ' ':
			panic(s.fail("a string holds the control character %#02x", c))
		case c == '\\':
			out = append(out, s.data[start:s.pos]...)
			out = utf8.AppendRune(out, s.escape())
			start = s.pos + 1
		}
	}
	panic(s.fail("a string does not end"))
}

// escapes are the letters after a backslash that stand for one character.
var escapes = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads from the backslash to the last byte of the escape, where it stays.
func (s *scanner) escape() rune {
	s.pos++
	if s.pos == len(s.data) {
		panic(s.fail("a string does not end"))
	}
	if r, ok := escapes[s.data[s.pos]]; ok {
		return r
	}
	r := s.hex()
	if utf16.IsSurrogate(r) {
		if !bytes.HasPrefix(s.data[s.pos+1:], []byte(`\u`)) {
			panic(s.fail("half a surrogate pair"))
		}
		s.pos += 2
		if r = utf16.DecodeRune(r, s.hex()); r == utf8.RuneError {
			panic(s.fail("a broken escape"))
		}
	}
	return r
}

// hex reads uXXXX and stays on the last digit.
func (s *scanner) hex() rune {
	if s.pos+4 >= len(s.data) || s.data[s.pos] != 'u' {
		panic(s.fail("a broken escape"))
	}
	n, err := strconv.ParseUint(string(s.data[s.pos+1:s.pos+5]), 16, 16)
	if err != nil {
		panic(s.fail("a broken escape"))
	}
	s.pos += 4
	return rune(n)
}

// skip passes over a value of any kind.
func (s *scanner) skip() {
	var any json.RawMessage
	d := json.NewDecoder(bytes.NewReader(s.data[s.pos:]))
	if err := d.Decode(&any); err != nil {
		panic(s.fail("%v", err))
	}
	s.pos += int(d.InputOffset())
}
