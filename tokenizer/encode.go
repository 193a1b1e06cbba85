package tokenizer

import (
	"fmt"
	"hash/maphash"
	"unicode/utf8"
)

// scratch is what one goroutine needs while it encodes. A Tokenizer keeps a pool.
type scratch struct {
	cache wordCache

	symbols []int32 // bpe
	links   []link
	heap    mergeHeap
	best    []viterbiStep // unigram
}

// maxKept is how many elements of scratch memory wait for the next text; what a
// giant word needed is given back.
const maxScratch = 1 << 16

func (w *scratch) trim() {
	if cap(w.symbols) > maxScratch || cap(w.heap) > maxScratch || cap(w.best) > maxScratch {
		w.symbols, w.links, w.heap, w.best = nil, nil, nil, nil
	}
}

// maxText keeps places in a text within 32 bits.
const maxText = 1 << 30

// Encode turns text into ids. addSpecial puts the tokens around it that the model
// expects, such as <s>. Special tokens written out in the text become their ids
// either way. The text must be UTF-8.
func (t *Tokenizer) Encode(text string, addSpecial bool) ([]int32, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("encode: a text of %d bytes, at most %d are supported; cut it into documents", len(text), maxText)
	}
	if !t.anyBytes && !utf8.ValidString(text) {
		return nil, fmt.Errorf("encode: byte %d of the text is not UTF-8; clean it first, for instance with strings.ToValidUTF8", firstInvalid(text))
	}
	w := t.pool.Get().(*scratch)
	defer func() {
		w.trim()
		t.pool.Put(w)
	}()
	ids := make([]int32, 0, len(text)/4+8)
	if addSpecial {
		ids = append(ids, t.affixes.before...)
	}
	ids, err := t.encodeInto(ids, text, w)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	if addSpecial {
		ids = append(ids, t.affixes.after...)
	}
	return ids, nil
}

func firstInvalid(s string) int {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return i
			}
		}
	}
	return -1
}

// encodeInto leads text through the stages the package comment names.
func (t *Tokenizer) encodeInto(ids []int32, text string, w *scratch) ([]int32, error) {
	token := func(id int32) { ids = append(ids, id) }
	word := func(p piece) (err error) {
		ids, err = t.encodeWord(ids, p.text, w)
		return err
	}
	cut := chain(t.pre, func(p piece) error { return t.model.words(p, word) })
	err := t.original.cut(text, func(start, end int) error {
		part, err := t.norm.normalize(text[start:end])
		if err != nil {
			return err
		}
		return t.normalized.cut(part, func(from, to int) error {
			return cut(piece{part[from:to], start == 0 && from == 0})
		}, token)
	}, token)
	return ids, err
}

// encodeWord is the model behind the cache.
func (t *Tokenizer) encodeWord(ids []int32, word string, w *scratch) ([]int32, error) {
	slot := w.cache.slot(word)
	if slot == nil {
		return t.model.encode(ids, word, w)
	}
	if slot.holds(word) {
		return append(ids, slot.ids[:slot.count]...), nil
	}
	before := len(ids)
	ids, err := t.model.encode(ids, word, w)
	if err == nil {
		slot.store(word, ids[before:])
	}
	return ids, err
}

// wordCache remembers the ids of words. Every word has one slot it can be in, a
// cache line long, and takes it from the word before; so its memory is fixed,
// nothing in it is ever searched, and the garbage collector has nothing to follow.
type wordCache struct {
	seed  maphash.Seed
	slots []cacheSlot
}

const (
	cacheSlots = 1 << 14 // of 64 bytes: 1 MiB
	cachedWord = 30      // bytes of the longest word that is kept
	cachedIDs  = 8       // the most ids that are kept
)

type cacheSlot struct {
	length, count uint8
	word          [cachedWord]byte
	ids           [cachedIDs]int32
}

func newWordCache() wordCache {
	return wordCache{maphash.MakeSeed(), make([]cacheSlot, cacheSlots)}
}

// slot is where word would be, or nil if it is too long to be kept.
func (c *wordCache) slot(word string) *cacheSlot {
	if len(word) > cachedWord {
		return nil
	}
	return &c.slots[maphash.String(c.seed, word)%cacheSlots]
}

// holds tells whether the slot is word's; an empty slot has length 0, no word does.
func (s *cacheSlot) holds(word string) bool {
	return int(s.length) == len(word) && string(s.word[:s.length]) == word
}

func (s *cacheSlot) store(word string, ids []int32) {
	if len(ids) <= cachedIDs {
		s.length, s.count = uint8(len(word)), uint8(len(ids))
		copy(s.word[:], word)
		copy(s.ids[:], ids)
	}
}
