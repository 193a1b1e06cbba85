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

func (s *scanner) fail(format string, args ...any) error {
	return fmt.Errorf("at byte %d of the JSON: %s", s.pos, fmt.Sprintf(format, args...))
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

func (s *scanner) expect(c byte) error {
	if got := s.peek(); got != c {
		return s.fail("found %q where %q is needed", got, c)
	}
	s.pos++
	return nil
}

// end makes sure that nothing but white space follows.
func (s *scanner) end() error {
	if s.peek(); s.pos < len(s.data) {
		return s.fail("found more after the end")
	}
	return nil
}

// object reads {"key": value, ...}; value is called with the scanner at each value.
func (s *scanner) object(value func(key string) error) error {
	seen := map[string]bool{}
	return s.list('{', '}', func() error {
		key, err := s.str()
		if err != nil {
			return err
		}
		if seen[key] {
			return s.fail("the key %q is given twice", key)
		}
		seen[key] = true
		if err := s.expect(':'); err != nil {
			return err
		}
		return value(key)
	})
}

// list reads items separated by commas.
func (s *scanner) list(open, shut byte, item func() error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	if s.peek() == shut {
		s.pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if s.peek() != ',' {
			return s.expect(shut)
		}
		s.pos++
	}
}

// integers reads an array of at most limit integers.
func (s *scanner) integers(limit int) ([]int64, error) {
	out := []int64{}
	err := s.list('[', ']', func() error {
		if len(out) == limit {
			return s.fail("the list has more than %d numbers", limit)
		}
		n, err := s.integer()
		out = append(out, n)
		return err
	})
	return out, err
}

// integer reads an integer from 0 to 2^63-1, written plainly.
func (s *scanner) integer() (int64, error) {
	s.peek()
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	digits := s.data[start:s.pos]
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		return 0, s.fail("an integer is needed")
	}
	n, err := strconv.ParseUint(string(digits[:min(len(digits), 20)]), 10, 64)
	if err != nil || n > math.MaxInt64 {
		return 0, s.fail("the number %.20s is too large", digits)
	}
	return int64(n), nil
}

// str reads a string. The bytes are known to be valid UTF-8.
func (s *scanner) str() (string, error) {
	if err := s.expect('"'); err != nil {
		return "", err
	}
	var out []byte
	start := s.pos
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; {
		case c == '"':
			out = append(out, s.data[start:s.pos]...)
			s.pos++
			return string(out), nil
		case c < ' ':
			return "", s.fail("a string holds the control character %#02x", c)
		case c == '\\':
			out = append(out, s.data[start:s.pos]...)
			r, err := s.escape()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
			start = s.pos + 1
		}
	}
	return "", s.fail("a string does not end")
}

// escapes are the letters after a backslash that stand for one character.
var escapes = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads from the backslash to the last byte of the escape, where it stays.
func (s *scanner) escape() (rune, error) {
	s.pos++
	if s.pos == len(s.data) {
		return 0, s.fail("a string does not end")
	}
	if r, ok := escapes[s.data[s.pos]]; ok {
		return r, nil
	}
	r, ok := s.hex()
	if ok && utf16.IsSurrogate(r) {
		if !bytes.HasPrefix(s.data[s.pos+1:], []byte(`\u`)) {
			return 0, s.fail("half a surrogate pair")
		}
		s.pos += 2
		low, lowOK := s.hex()
		r, ok = utf16.DecodeRune(r, low), lowOK
		ok = ok && r != utf8.RuneError
	}
	if !ok {
		return 0, s.fail("a broken escape")
	}
	return r, nil
}

// hex reads uXXXX and stays on the last digit.
func (s *scanner) hex() (rune, bool) {
	if s.pos+4 >= len(s.data) || s.data[s.pos] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(s.data[s.pos+1:s.pos+5]), 16, 16)
	s.pos += 4
	return rune(n), err == nil
}

// skip passes over a value of any kind.
func (s *scanner) skip() error {
	var any json.RawMessage
	d := json.NewDecoder(bytes.NewReader(s.data[s.pos:]))
	if err := d.Decode(&any); err != nil {
		return s.fail("%v", err)
	}
	s.pos += int(d.InputOffset())
	return nil
}
