package tokenizer

import "unicode/utf8"

// wordPiece takes the longest token that a word starts with, then the longest that
// continues it, and so on. If it gets stuck, the whole word is unknown.
type wordPiece struct {
	unknown   int32
	starts    *trie // tokens a word may start with
	continues *trie // tokens within a word, without their prefix
	maxChars  int   // characters of a word that is tried at all
}

func parseWordPiece(file *modelFile) (*wordPiece, *vocab) {
	v := parseVocab(string(file.Vocab))
	unknown, ok := v.ids[valueOr(file.Unknown, "[UNK]")]
	if !ok {
		panic(failf("unknown token %s is not in the vocabulary", excerpt(valueOr(file.Unknown, "[UNK]"))))
	}
	return &wordPiece{
		unknown: unknown, maxChars: valueOr(file.MaxChars, 100),
		starts: v.trie(""), continues: v.trie(valueOr(file.Prefix, "##")),
	}, v
}

func (m *wordPiece) encode(ids []int32, word string, _ *scratch) []int32 {
	before := len(ids)
	if utf8.RuneCountInString(word) > m.maxChars {
		return append(ids, m.unknown)
	}
	tokens := m.starts
	for word != "" {
		longest, found := 0, int32(0)
		tokens.walk(word, func(id int32, length int) { longest, found = length, id })
		if longest == 0 {
			return append(ids[:before], m.unknown)
		}
		ids, word = append(ids, found), word[longest:]
		tokens = m.continues
	}
	return ids
}
