package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// wordPiece takes the longest token that a word starts with, then the longest that
// continues it, and so on. If it gets stuck, the whole word is unknown.
type wordPiece struct {
	unknown   int32
	starts    *trie // tokens a word may start with
	continues *trie // tokens within a word, without their prefix
	maxChars  int   // characters of a word that is tried at all
}

func parseWordPiece(file *modelFile) (*wordPiece, *vocab, error) {
	v, err := parseVocab(string(file.Vocab))
	if err != nil {
		return nil, nil, fmt.Errorf("vocab: %w", err)
	}
	m := &wordPiece{maxChars: valueOr(file.MaxChars, 100)}
	unknown, prefix := valueOr(file.Unknown, "[UNK]"), valueOr(file.Prefix, "##")
	var ok bool
	if m.unknown, ok = v.ids[unknown]; !ok {
		return nil, nil, fmt.Errorf("unknown token %s is not in the vocabulary", excerpt(unknown))
	}
	if m.starts, err = v.trie(""); err != nil {
		return nil, nil, err
	}
	m.continues, err = v.trie(prefix)
	return m, v, err
}

func (m *wordPiece) splitWords(p piece, each func(piece) error) error { return each(p) }

func (m *wordPiece) encode(ids []int32, word string, _ *scratch) ([]int32, error) {
	before := len(ids)
	if utf8.RuneCountInString(word) > m.maxChars {
		return append(ids, m.unknown), nil
	}
	tokens := m.starts
	for word != "" {
		longest, found := 0, int32(0)
		tokens.walk(word, func(id int32, length int) { longest, found = length, id })
		if longest == 0 {
			return append(ids[:before], m.unknown), nil
		}
		ids, word = append(ids, found), word[longest:]
		tokens = m.continues
	}
	return ids, nil
}
