package tokenizer

import (
	"encoding/binary"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// precompiled is SentencePiece's compiled table of replacements: a double-array trie
// that maps UTF-8 to an offset into text, where the replacements end with a zero byte.
type precompiled struct {
	units []uint32
	text  string
}

func parsePrecompiled(raw json.RawMessage) *precompiled {
	table := parsed(raw, struct {
		Table []byte `json:"precompiled_charsmap"` // base64 in the file
	}{}).Table
	if len(table) < 4 {
		panic(failf("precompiled_charsmap has %d bytes, at least 4 are needed", len(table)))
	}
	size := int64(binary.LittleEndian.Uint32(table))
	if table = table[4:]; size%4 != 0 || size > int64(len(table)) {
		panic(failf("precompiled_charsmap says its trie has %d bytes, %d follow", size, len(table)))
	}
	n := &precompiled{units: make([]uint32, size/4), text: string(table[size:])}
	for i := range n.units {
		n.units[i] = binary.LittleEndian.Uint32(table[4*i:])
	}
	if !utf8.ValidString(n.text) {
		panic(failf("precompiled_charsmap: replacements are not valid UTF-8"))
	}
	return n
}

// normalize replaces a whole grapheme if it is shorter than 6 bytes and the table has
// an entry for it, and else each character by itself. It is odd, but what the models
// were trained with.
func (n *precompiled) normalize(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	eachGrapheme(s, func(grapheme string) {
		if len(grapheme) < 6 {
			if to, ok := n.lookup(grapheme); ok {
				b.WriteString(to)
				return
			}
		}
		for i, r := range grapheme {
			part := grapheme[i : i+utf8.RuneLen(r)]
			if to, ok := n.lookup(part); ok {
				part = to
			}
			b.WriteString(part)
		}
		checkGrowth(len(s), b.Len())
	})
	return b.String()
}

// lookup finds the replacement of the shortest prefix of s that has one.
func (n *precompiled) lookup(s string) (string, bool) {
	node := uint32(0)
	for i := -1; i < len(s); i++ {
		if i >= 0 {
			node ^= uint32(s[i])
		}
		if int64(node) >= int64(len(n.units)) {
			return "", false
		}
		unit := n.units[node]
		if i >= 0 && unit&(1<<31|0xff) != uint32(s[i]) {
			return "", false
		}
		node ^= unit >> 10 << (unit & (1 << 9) >> 6)
		if i >= 0 && unit>>8&1 == 1 {
			return n.replacement(node)
		}
	}
	return "", false
}

// replacement returns the text that the leaf at node points to.
func (n *precompiled) replacement(node uint32) (string, bool) {
	if int64(node) >= int64(len(n.units)) {
		return "", false
	}
	at := n.units[node] &^ (1 << 31)
	if int64(at) > int64(len(n.text)) {
		return "", false
	}
	to, _, _ := strings.Cut(n.text[at:], "\x00")
	return to, utf8.ValidString(to)
}

// eachGrapheme splits s into graphemes. Two ASCII characters never form one, except CR
// LF; the regex engine's \X decides about the others.
func eachGrapheme(s string, visit func(grapheme string)) {
	mayJoin := func(a, b byte) bool {
		return a >= utf8.RuneSelf || b >= utf8.RuneSelf || a == '\r' && b == '\n'
	}
	for len(s) > 0 {
		n := 1
		for n < len(s) && mayJoin(s[n-1], s[n]) {
			n++
		}
		part := s[:n]
		s = s[n:]
		if n == 1 {
			visit(part)
		} else {
			graphemes().find(part, func(start, end int) { visit(part[start:end]) })
		}
	}
}
