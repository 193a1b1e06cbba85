package tokenizer

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The byte-level alphabet of GPT-2 gives every byte a printable letter, so that
// vocabularies of bytes can be written as text. A byte that is a printable Latin-1
// character is its own letter. The others get the letters from U+0100 on; the space is
// 'Ġ'.
var (
	byteLetter [256]rune
	letterByte = map[rune]byte{}
)

func init() {
	next := rune(0x100)
	for b := range byteLetter {
		r := rune(b)
		if b <= ' ' || 0x7f <= b && b <= 0xa0 || b == 0xad {
			r = next
			next++
		}
		byteLetter[b] = r
		letterByte[r] = byte(b)
	}
}

// toLetters writes each byte of s as its letter.
func toLetters(s string) string {
	var b strings.Builder
	b.Grow(2 * len(s))
	for i := 0; i < len(s); i++ {
		b.WriteRune(byteLetter[s[i]])
	}
	return b.String()
}

// fromLetters is the inverse of toLetters. It returns false if s has other characters.
func fromLetters(s string) (string, bool) {
	out := make([]byte, 0, len(s))
	for _, r := range s {
		b, ok := letterByte[r]
		if !ok {
			return "", false
		}
		out = append(out, b)
	}
	return string(out), true
}

// byteLevel is the last step of byte-level pre-tokenizing: it writes text as letters. A
// byte-level BPE that follows reads bytes instead, and this step is dropped.
type byteLevel struct{}

func (byteLevel) split(p piece, each func(piece)) {
	p.text = toLetters(p.text)
	each(p)
}

// prefixSpace starts every piece with a space.
type prefixSpace struct{}

func (prefixSpace) split(p piece, each func(piece)) {
	if !strings.HasPrefix(p.text, " ") {
		p.text = " " + p.text
	}
	each(p)
}

// byteLevelFile are the settings of ByteLevel in the file.
type byteLevelFile struct {
	AddPrefixSpace bool `json:"add_prefix_space"`
	UseRegex       bool `json:"use_regex"`
}

func (f byteLevelFile) steps() (steps []preTokenizer) {
	if f.AddPrefixSpace {
		steps = append(steps, prefixSpace{})
	}
	if f.UseRegex {
		steps = append(steps, scanner(scanGPT2))
	}
	return append(steps, byteLevel{})
}

// withPrefixSpace has ByteLevel, alone or in a sequence, put a space before texts or not.
func withPrefixSpace(raw json.RawMessage, on bool) json.RawMessage {
	var step map[string]json.RawMessage
	var list []json.RawMessage
	check(json.Unmarshal(raw, &step))
	switch {
	case string(step["type"]) == `"ByteLevel"`:
		step["add_prefix_space"] = json.RawMessage(strconv.FormatBool(on))
	case json.Unmarshal(step["pretokenizers"], &list) == nil:
		for i := range list {
			list[i] = withPrefixSpace(list[i], on)
		}
		step["pretokenizers"], _ = json.Marshal(list) // it was JSON
	default:
		return raw
	}
	raw, _ = json.Marshal(step) // it was JSON
	return raw
}

// validUTF8 returns bytes as text with U+FFFD for every part that is not UTF-8. A part
// is as long as it could begin a character, so a truncated character is one U+FFFD and
// not several.
func validUTF8(bytes []byte) string {
	if utf8.Valid(bytes) {
		return string(bytes)
	}
	var b strings.Builder
	for len(bytes) > 0 {
		r, n := utf8.DecodeRune(bytes)
		if r == utf8.RuneError && n == 1 {
			n = brokenLen(bytes)
		}
		b.WriteRune(r)
		bytes = bytes[n:]
	}
	return b.String()
}

// brokenLen is how many bytes at the start of b begin a character that b then
// fails to finish.
func brokenLen(b []byte) int {
	low, high, more := byte(0x80), byte(0xbf), 0
	switch c := b[0]; {
	case 0xc2 <= c && c <= 0xdf:
		more = 1
	case 0xe0 <= c && c <= 0xef:
		more = 2
	case 0xf0 <= c && c <= 0xf4:
		more = 3
	}
	switch b[0] { // the second byte has narrower bounds after these
	case 0xe0:
		low = 0xa0
	case 0xed:
		high = 0x9f
	case 0xf0:
		low = 0x90
	case 0xf4:
		high = 0x8f
	}
	n := 1
	for n <= more && n < len(b) && low <= b[n] && b[n] <= high {
		low, high = 0x80, 0xbf
		n++
	}
	return n
}
