package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// wordPiece takes the longest token a word starts with, then the longest that
// continues it, and so on. A word that cannot be finished is unknown as a whole.
type wordPiece struct {
	unknown   int32
	starts    *trie // tokens a word may start with
	continues *trie // tokens within a word, without their prefix
	most      int   // characters of a word that is tried at all
}

func parseWordPiece(raw json.RawMessage) (*wordPiece, *vocab, error) {
	file := struct {
		Unknown string          `json:"unk_token"`
		Prefix  string          `json:"continuing_subword_prefix"`
		Most    int             `json:"max_input_chars_per_word"`
		Vocab   json.RawMessage `json:"vocab"`
	}{Unknown: "[UNK]", Prefix: "##", Most: 100}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, nil, err
	}
	v, err := parseVocab(string(file.Vocab))
	if err != nil {
		return nil, nil, fmt.Errorf("vocab: %w", err)
	}
	m := &wordPiece{most: file.Most}
	var ok bool
	if m.unknown, ok = v.ids[file.Unknown]; !ok {
		return nil, nil, fmt.Errorf("unknown token %s is not in the vocabulary", excerpt(file.Unknown))
	}
	var all, rest []string
	var allIDs, restIDs []int32
	for id, token := range v.tokens {
		if len(token) > maxMatched {
			return nil, nil, fmt.Errorf("vocab: token %d is %d bytes long, at most %d are supported", id, len(token), maxMatched)
		}
		if token == "" {
			continue
		}
		all, allIDs = append(all, token), append(allIDs, int32(id))
		if tail, ok := strings.CutPrefix(token, file.Prefix); ok && tail != "" {
			rest, restIDs = append(rest, tail), append(restIDs, int32(id))
		}
	}
	m.starts, m.continues = newTrie(all, allIDs), newTrie(rest, restIDs)
	return m, v, nil
}

func (m *wordPiece) words(p piece, each func(piece) error) error { return each(p) }

func (m *wordPiece) encode(ids []int32, word string, _ *scratch) ([]int32, error) {
	before := len(ids)
	if utf8.RuneCountInString(word) > m.most {
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
