package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// model turns a word into token ids.
type model interface {
	// encode appends the ids of word, which is not empty, to ids. w is scratch memory
	// that belongs to the caller's goroutine.
	encode(ids []int32, word string, w *scratch) ([]int32, error)
	// splitWords splits a piece at places that no token can cross, so that short and
	// frequent words are found in the cache instead of being encoded again.
	splitWords(p piece, each func(piece) error) error
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

func parseBPE(file *modelFile) (*bpe, *vocab, error) {
	if dropout := valueOr(file.Dropout, 0); dropout != 0 {
		return nil, nil, fmt.Errorf("BPE dropout %g makes encoding random; set it to null", dropout)
	}
	v, err := parseVocab(string(file.Vocab))
	if err != nil {
		return nil, nil, fmt.Errorf("vocab: %w", err)
	}
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
	if err := m.parseMerges(string(file.Merges)); err != nil {
		return nil, nil, fmt.Errorf("merges: %w", err)
	}
	m.splitBefore(spaceLetter)
	return m, v, nil
}

// parseMerges reads ["a b", ...] or [["a", "b"], ...], in the order of their ranks.
func (m *bpe) parseMerges(array string) error {
	m.merges = make(map[pair]merge, len(array)/16) // an estimate of their number
	rank := int32(0)
	return eachElement(array, func(value string) error {
		left, right, err := mergeSides(value)
		if err != nil {
			return err
		}
		if rank == maxTokens {
			return fmt.Errorf("more than %d", maxTokens)
		}
		a, okA := m.vocab.ids[left]
		b, okB := m.vocab.ids[right]
		joined, okJoined := m.vocab.ids[left+strings.TrimPrefix(right, m.prefix)]
		if !okA || !okB || !okJoined {
			return fmt.Errorf("merge %d of %s and %s names a token that is not in the vocabulary",
				rank, excerpt(left), excerpt(right))
		}
		m.merges[pairOf(a, b)] = merge{rank, joined}
		rank++
		return nil
	})
}

func mergeSides(value string) (left, right string, err error) {
	if strings.HasPrefix(value, `"`) {
		both, err := jsonString(value)
		if err != nil {
			return "", "", err
		}
		left, right, ok := strings.Cut(both, " ")
		if !ok || strings.Contains(right, " ") {
			return "", "", fmt.Errorf("merge %s is not two tokens with a space between", excerpt(both))
		}
		return left, right, nil
	}
	var sides []string
	err = eachElement(value, func(side string) error {
		s, err := jsonString(side)
		sides = append(sides, s)
		return err
	})
	if err == nil && len(sides) != 2 {
		err = fmt.Errorf("merge %s has %d tokens, not 2", excerpt(value), len(sides))
	}
	if err != nil {
		return "", "", err
	}
	return sides[0], sides[1], nil
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

// splitBefore makes splitWords split before the given letter, which stands for a space,
// if no merge crosses such a place: if none joins the letter to something on its left
// but itself. Models with such a letter have no other pre-tokenizing; without the split
// a whole book would be one word.
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

func (m *bpe) splitWords(p piece, each func(piece) error) error {
	if m.splitAt == "" {
		return each(p)
	}
	for s := p.text; s != ""; {
		n := 0
		for strings.HasPrefix(s[n:], m.splitAt) {
			n += len(m.splitAt)
		}
		if i := strings.Index(s[n:], m.splitAt); i >= 0 {
			n += i
		} else {
			n = len(s)
		}
		if err := each(piece{text: s[:n]}); err != nil {
			return err
		}
		s = s[n:]
	}
	return nil
}

func (m *bpe) encode(ids []int32, word string, w *scratch) ([]int32, error) {
	if m.wordTokens != nil {
		if id, ok := m.wordTokens[word]; ok {
			return append(ids, id), nil
		}
	}
	symbols, err := m.symbols(slices.Grow(w.symbols[:0], len(word)), word)
	if err != nil {
		return ids, err
	}
	w.symbols = symbols
	return append(ids, m.join(symbols, w)...), nil
}

// symbols appends the ids of the characters or bytes of word.
func (m *bpe) symbols(ids []int32, word string) ([]int32, error) {
	if m.bytes != nil {
		for i := 0; i < len(word); i++ {
			ids = append(ids, m.bytes[word[i]])
		}
		return ids, nil
	}
	unknown := false // the last symbol is the unknown token
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		character := m.withAffixes(word[i:i+n], i == 0, i+n == len(word))
		i += n
		if id, ok := m.vocab.ids[character]; ok {
			ids, unknown = append(ids, id), false
		} else if bytes, ok := m.appendByteTokens(ids, character); ok {
			ids, unknown = bytes, false
		} else if m.unknown < 0 {
			return ids, fmt.Errorf("character %q is not in the vocabulary, which has no unknown token", character)
		} else if !unknown || !m.fuseUnknown {
			ids, unknown = append(ids, m.unknown), true
		}
	}
	return ids, nil
}

// withAffixes adds the prefix and suffix by which the vocabulary marks where in a word
// a character is.
func (m *bpe) withAffixes(character string, first, last bool) string {
	if !first {
		character = m.prefix + character
	}
	if last {
		character += m.suffix
	}
	return character
}

// appendByteTokens appends the byte tokens of a character that has no token itself, if
// the model has byte fallback.
func (m *bpe) appendByteTokens(ids []int32, character string) ([]int32, bool) {
	if m.byteTokens == nil {
		return ids, false
	}
	return appendBytes(ids, character, m.byteTokens)
}

// appendBytes appends the token of every byte of s. It returns false if one is missing.
func appendBytes(ids []int32, s string, tokens *[256]int32) ([]int32, bool) {
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
