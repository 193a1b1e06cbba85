package tokenizer

import (
	"fmt"
	"strconv"
)

// Limits for files. Real vocabularies are far smaller: the largest known have 262,144
// tokens.
const (
	maxTokens = 1 << 22
	// maxIDSlack is how far an id may exceed the number of tokens. It limits the size of
	// the tables that ids index.
	maxIDSlack = 1 << 16
	// maxMatched is the length in bytes of the longest token that is searched for in
	// text. It limits the work per character.
	maxMatched = 1024
)

// vocab holds the model's tokens and the added ones. It does not change once the file
// is read.
type vocab struct {
	tokens  []string         // by id, "" where an id has no token
	shown   []string         // by id, as the decoder gets it
	special []bool           // by id
	ids     map[string]int32 // ids of the model's tokens
	added   map[string]int32 // ids of the added tokens that the model does not have
}

func newVocab() *vocab { return &vocab{ids: map[string]int32{}, added: map[string]int32{}} }

// id returns the id of a token, the model's or added.
func (v *vocab) id(token string) (int32, bool) {
	if id, ok := v.ids[token]; ok {
		return id, true
	}
	id, ok := v.added[token]
	return id, ok
}

// parseVocab reads {"token": id, ...}.
func parseVocab(object string) *vocab {
	v := newVocab()
	type entry struct {
		token string
		id    int64
	}
	var entries []entry
	within("vocab", func() {
		for token, value := range members(object) {
			id, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				panic(failf("token %s has id %s, which is not an integer", excerpt(token), excerpt(value)))
			}
			if len(entries) == maxTokens {
				panic(failf("more than %d tokens", maxTokens))
			}
			entries = append(entries, entry{token, id})
		}
	})
	v.ids = make(map[string]int32, len(entries))
	v.tokens = make([]string, 0, len(entries))
	for _, e := range entries {
		v.add(v.ids, e.token, e.id, len(entries))
	}
	return v
}

// add adds a token with its id to one of the two maps. count is the number of tokens in
// the file.
func (v *vocab) add(into map[string]int32, token string, id int64, count int) {
	if id < 0 || id >= int64(count)+maxIDSlack {
		panic(failf("token %s has id %d; with %d tokens ids go from 0 to %d",
			excerpt(token), id, count, count+maxIDSlack-1))
	}
	if old, ok := v.id(token); ok {
		panic(failf("token %s occurs twice, with ids %d and %d", excerpt(token), old, id))
	}
	v.grow(int(id) + 1)
	if v.has(int32(id)) {
		panic(failf("id %d belongs to two tokens, %s and %s", id, excerpt(v.tokens[id]), excerpt(token)))
	}
	v.tokens[id], v.shown[id] = token, token
	into[token] = int32(id)
}

func (v *vocab) grow(n int) {
	if missing := n - len(v.tokens); missing > 0 {
		v.tokens = append(v.tokens, make([]string, missing)...)
		v.shown = append(v.shown, make([]string, missing)...)
		v.special = append(v.special, make([]bool, missing)...)
	}
}

// has reports whether id is the id of a token.
func (v *vocab) has(id int32) bool {
	if id < 0 || int(id) >= len(v.tokens) {
		return false
	}
	if v.tokens[id] != "" {
		return true
	}
	empty, ok := v.ids[""]
	return ok && empty == id
}

// byteIDs returns the ids of the 256 tokens "<0x00>" to "<0xFF>", which stand for bytes
// that no other token covers. A byte without one has -1.
func (v *vocab) byteIDs() *[256]int32 {
	var ids [256]int32
	for b := range ids {
		ids[b] = -1
		if id, ok := v.ids[fmt.Sprintf("<0x%02X>", b)]; ok {
			ids[b] = id
		}
	}
	return &ids
}
