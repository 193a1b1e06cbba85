package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// class is the kind of a character, as far as the scanners distinguish them.
type class uint8

const (
	end    class = iota // no character: the text is over
	letter              // \p{L}
	number              // \p{N}
	space               // \s
	other               // everything else
)

// Letters and numbers that Unicode 15.1 and 16.0 added to what package unicode
// knows. The reference tokenizer knows them, so the scanners do too.
var (
	newLetters = &unicode.RangeTable{
		R16: []unicode.Range16{{0x1c89, 0x1c8a, 1}, {0xa7cb, 0xa7cd, 1}, {0xa7da, 0xa7dc, 1}},
		R32: []unicode.Range32{
			{0x105c0, 0x105f3, 1}, {0x10d4a, 0x10d65, 1}, {0x10d6f, 0x10d85, 1}, {0x10ec2, 0x10ec4, 1},
			{0x11380, 0x11389, 1}, {0x1138b, 0x1138b, 1}, {0x1138e, 0x1138e, 1}, {0x11390, 0x113b5, 1},
			{0x113b7, 0x113b7, 1}, {0x113d1, 0x113d1, 1}, {0x113d3, 0x113d3, 1}, {0x11bc0, 0x11be0, 1},
			{0x13460, 0x143fa, 1}, {0x16100, 0x1611d, 1}, {0x16d40, 0x16d6c, 1}, {0x18cff, 0x18cff, 1},
			{0x1e5d0, 0x1e5ed, 1}, {0x1e5f0, 0x1e5f0, 1}, {0x2ebf0, 0x2ee5d, 1},
		},
	}
	newNumbers = &unicode.RangeTable{
		R32: []unicode.Range32{
			{0x10d40, 0x10d49, 1}, {0x116d0, 0x116e3, 1}, {0x11bf0, 0x11bf9, 1}, {0x16130, 0x16139, 1},
			{0x16d70, 0x16d79, 1}, {0x1ccf0, 0x1ccf9, 1}, {0x1e5f1, 0x1e5fa, 1},
		},
	}
)

func isNumber(r rune) bool { return unicode.In(r, unicode.N, newNumbers) }

func classOf(r rune) class {
	switch {
	case unicode.In(r, unicode.L, newLetters):
		return letter
	case isNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

// asciiClass and planeClass are tables of classOf for the most frequent characters: ASCII,
// and those up to U+FFFF.
var (
	asciiClass [utf8.RuneSelf]class

	planeClass = sync.OnceValue(func() *[1 << 16]class {
		table := new([1 << 16]class)
		for r := range table {
			table[r] = classOf(rune(r))
		}
		return table
	})
)

func init() {
	for r := range asciiClass {
		asciiClass[r] = classOf(rune(r))
	}
}

// classAt returns the class and the length in bytes of the first character of s.
func classAt(s string) (class, int) {
	if s == "" {
		return end, 0
	}
	if c := s[0]; c < utf8.RuneSelf {
		return asciiClass[c], 1
	}
	r, n := utf8.DecodeRuneInString(s)
	if r <= 0xffff {
		return planeClass()[r], n
	}
	return classOf(r), n
}

// runLen returns the length in bytes of the characters of one class at the start of s.
func runLen(s string, is class) int {
	i := 0
	for i < len(s) {
		if c := s[i]; c < utf8.RuneSelf {
			if asciiClass[c] != is {
				break
			}
			i++
			continue
		}
		got, n := classAt(s[i:])
		if got != is {
			break
		}
		i += n
	}
	return i
}
