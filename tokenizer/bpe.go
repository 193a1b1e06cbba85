package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// model turns a word into token ids.
type model interface {
	// encode appends the ids of word, which is not empty, to ids. w is scratch memory
	// that belongs to the caller's goroutine.
	encode(ids []int32, word string, w *scratch) []int32
}

// bpe is byte pair encoding: a word starts as single characters or bytes, and the pair
// of neighbours with the lowest merge rank is merged, again and again, until no merge
// applies.
type bpe struct {
	vocab  *vocab
	merges map[pair]merge

	bytes      *[256]int32      // byte-level: the id of each byte; nil: words are characters
	wordTokens map[string]int32 // words that are tokens, merges or not; nil: merges decide

	unknown     int32       // id of the unknown token, -1 if there is none
	fuseUnknown bool        // neighbouring unknown characters are one unknown token
	byteTokens  *[256]int32 // ids of "<0x00>" ...; nil without byte fallback
	prefix      string      // of characters that do not start a word
	suffix      string      // of the character that ends a word
	splitAt     string      // words start at this letter; "" if a token could cross
}

// pair is two neighbouring symbols, the left one in the upper half.
type pair uint64

func pairOf(left, right int32) pair { return pair(uint32(left))<<32 | pair(uint32(right)) }

// merge is the token that a pair becomes. Lower ranks are merged first.
type merge struct{ rank, id int32 }

// spaceLetter is how SentencePiece writes a space.
const spaceLetter = "▁"

func parseBPE(file *modelFile) (*bpe, *vocab) {
	if dropout := valueOr(file.Dropout, 0); dropout != 0 {
		panic(failf("BPE dropout %g makes encoding random; set it to null", dropout))
	}
	v := parseVocab(string(file.Vocab))
	m := &bpe{
		vocab: v, unknown: -1, fuseUnknown: file.FuseUnknown,
		prefix: valueOr(file.Prefix, ""), suffix: valueOr(file.Suffix, ""),
	}
	if id, ok := v.ids[valueOr(file.Unknown, "")]; ok && file.Unknown != nil {
		m.unknown = id
	}
	if file.Fallback {
		m.byteTokens = v.byteIDs()
	}
	if file.IgnoreMerges {
		m.wordTokens = v.ids
	}
	within("merges", func() { m.parseMerges(string(file.Merges)) })
	m.splitBefore(spaceLetter)
	return m, v
}

// parseMerges reads ["a b", ...] or [["a", "b"], ...], in the order of their ranks.
func (m *bpe) parseMerges(array string) {
	m.merges = make(map[pair]merge, len(array)/16) // an estimate of their number
	rank := int32(0)
	for value := range elements(array) {
		left, right := mergeSides(value)
		if rank == maxTokens {
			panic(failf("more than %d", maxTokens))
		}
		a, okA := m.vocab.ids[left]
		b, okB := m.vocab.ids[right]
		joined, okJoined := m.vocab.ids[left+strings.TrimPrefix(right, m.prefix)]
		if !okA || !okB || !okJoined {
			panic(failf("merge %d of %s and %s names a token that is not in the vocabulary",
				rank, excerpt(left), excerpt(right)))
		}
		m.merges[pairOf(a, b)] = merge{rank, joined}
		rank++
	}
}

func mergeSides(value string) (left, right string) {
	if strings.HasPrefix(value, `"`) {
		both := jsonString(value)
		left, right, ok := strings.Cut(both, " ")
		if !ok || strings.Contains(right, " ") {
			panic(failf("merge %s is not two tokens with a space between", excerpt(both)))
		}
		return left, right
	}
	sides := slices.Collect(elements(value))
	if len(sides) != 2 {
		panic(failf("merge %s has %d tokens, not 2", excerpt(value), len(sides)))
	}
	return jsonString(sides[0]), jsonString(sides[1])
}

// useBytes makes the model work on bytes, in place of a last pre-tokenizing step that
// writes each byte as a letter. It reports whether the vocabulary allows that.
func (m *bpe) useBytes() bool {
	var bytes [256]int32
	for b := range bytes {
		id, ok := m.vocab.ids[string(byteLetter[b])]
		if !ok || m.prefix != "" || m.suffix != "" {
			return false
		}
		bytes[b] = id
	}
	m.bytes, m.splitAt = &bytes, ""
	if m.wordTokens != nil {
		m.wordTokens = make(map[string]int32, len(m.vocab.ids))
		for token, id := range m.vocab.ids {
			if text, ok := fromLetters(token); ok {
				m.wordTokens[text] = id
			}
		}
	}
	return true
}

// splitBefore makes words start at the given letter, which stands for a space, if no
// merge crosses such a place: if none joins the letter to something on its left but
// itself. Models with such a letter have no other pre-tokenizing; without the split a
// whole book would be one word.
func (m *bpe) splitBefore(letter string) {
	if _, ok := m.vocab.ids[letter]; !ok || m.prefix != "" || m.suffix != "" || m.wordTokens != nil {
		return
	}
	for p := range m.merges {
		left, right := m.vocab.tokens[p>>32], m.vocab.tokens[uint32(p)]
		if strings.HasPrefix(right, letter) && !strings.HasSuffix(left, letter) {
			return
		}
	}
	m.splitAt = letter
}

// beforeLetter splits a piece before every run of a letter, so that short and frequent
// words are found in the cache instead of being encoded again.
type beforeLetter string

func (letter beforeLetter) split(p piece, each func(piece)) {
	for s := p.text; s != ""; {
		n := len(s) - len(strings.TrimLeft(s, string(letter)))
		if i := strings.Index(s[n:], string(letter)); i >= 0 {
			n += i
		} else {
			n = len(s)
		}
		each(piece{text: s[:n]})
		s = s[n:]
	}
}

func (m *bpe) encode(ids []int32, word string, w *scratch) []int32 {
	if m.wordTokens != nil {
		if id, ok := m.wordTokens[word]; ok {
			return append(ids, id)
		}
	}
	w.symbols = m.symbols(slices.Grow(w.symbols[:0], len(word)), word)
	return append(ids, m.join(w.symbols, w)...)
}

// symbols appends the ids of the characters or bytes of word.
func (m *bpe) symbols(ids []int32, word string) []int32 {
	if m.bytes != nil {
		for i := 0; i < len(word); i++ {
			ids = append(ids, m.bytes[word[i]])
		}
		return ids
	}
	unknown := false // the last symbol is the unknown token
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		character := word[i : i+n]
		if i > 0 { // the vocabulary marks where in a word a character is
			character = m.prefix + character
		}
		if i += n; i == len(word) {
			character += m.suffix
		}
		if id, ok := m.vocab.ids[character]; ok {
			ids, unknown = append(ids, id), false
		} else if bytes, ok := appendBytes(ids, character, m.byteTokens); ok {
			ids, unknown = bytes, false
		} else if m.unknown < 0 {
			panic(failf("character %q is not in the vocabulary, which has no unknown token", character))
		} else if !unknown || !m.fuseUnknown {
			ids, unknown = append(ids, m.unknown), true
		}
	}
	return ids
}

// appendBytes appends the byte token of every byte of s. It returns false if one is
// missing, or all are (nil).
func appendBytes(ids []int32, s string, tokens *[256]int32) ([]int32, bool) {
	if tokens == nil {
		return ids, false
	}
	before := len(ids)
	for i := 0; i < len(s); i++ {
		id := tokens[s[i]]
		if id < 0 {
			return ids[:before], false
		}
		ids = append(ids, id)
	}
	return ids, true
}
