package tokenizer

import (
	"cmp"
	"hash/maphash"
	"slices"
	"unicode/utf8"
)

// scratch is the memory that one goroutine needs while it encodes. A Tokenizer has a
// pool of them.
type scratch struct {
	cache wordCache

	symbols []int32 // bpe
	links   []link
	heap    mergeHeap
	best    []viterbiStep // unigram
}

// maxScratch is the largest number of elements that a scratch buffer keeps for the next
// text. A larger one, grown for a giant word, is freed.
const maxScratch = 1 << 16

func (w *scratch) trim() {
	if cap(w.symbols) > maxScratch || cap(w.heap) > maxScratch || cap(w.best) > maxScratch {
		w.symbols, w.links, w.heap, w.best = nil, nil, nil, nil
	}
}

// maxText keeps positions in a text within 32 bits.
const maxText = 1 << 30

// Encode turns text into ids. addSpecial adds the tokens around it that the model
// expects, such as <s>. Special tokens written out in the text become their ids in any
// case. The text must be UTF-8.
func (t *Tokenizer) Encode(text string, addSpecial bool) (_ []int32, err error) {
	defer recoverFailure(&err, "encode")
	t.checkText(text)
	w := t.pool.Get().(*scratch)
	defer func() {
		w.trim()
		t.pool.Put(w)
	}()
	ids := make([]int32, 0, len(text)/4+8)
	if addSpecial {
		ids = append(ids, t.affixes.before...)
	}
	ids = t.encodeInto(ids, text, 0, w, nil)
	if addSpecial {
		ids = append(ids, t.affixes.after...)
	}
	return ids, nil
}

// EncodePrefixes encodes a text as Encode does without special tokens, and compares it with
// its beginnings of the given lengths in bytes, encoded by themselves. Of each it returns how
// many ids it has in common with the whole text before the first that differs, and how many
// it has in all. Only what follows the last added token is encoded again.
func (t *Tokenizer) EncodePrefixes(text string, ends []int) (ids []int32, common, counts []int, err error) {
	defer recoverFailure(&err, "encode")
	t.checkText(text)
	w := t.pool.Get().(*scratch)
	defer func() {
		w.trim()
		t.pool.Put(w)
	}()
	var after []place
	ids = t.encodeInto(make([]int32, 0, len(text)/4+8), text, 0, w, func(p place) { after = append(after, p) })
	common, counts = make([]int, len(ends)), make([]int, len(ends))
	var again []int32
	for i, end := range ends {
		if t.bytewise {
			common[i], counts[i] = end, end
			continue
		}
		// An added token that ends at the very end might be another one, or none, in the
		// beginning: what follows a token decides.
		n, _ := slices.BinarySearchFunc(after, end, func(p place, end int) int { return cmp.Compare(p.text, end) })
		var from place
		if n > 0 {
			from = after[n-1]
		}
		again = t.encodeInto(again[:0], text[:end], from.text, w, nil)
		same := 0
		for same < len(again) && from.ids+same < len(ids) && again[same] == ids[from.ids+same] {
			same++
		}
		common[i], counts[i] = from.ids+same, from.ids+len(again)
	}
	return ids, common, counts, nil
}

// place is a place in a text, and how many ids come before it.
type place struct{ text, ids int }

// checkText refuses texts that cannot be encoded.
func (t *Tokenizer) checkText(text string) {
	if len(text) > maxText {
		panic(failf("a text of %d bytes, at most %d are supported; cut it into documents", len(text), maxText))
	}
	if !t.anyBytes && !utf8.ValidString(text) {
		panic(failf("byte %d of the text is not UTF-8; convert it first, for instance with iconv -t utf-8, or in Go with strings.ToValidUTF8", firstInvalid(text)))
	}
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

// encodeInto runs a text from byte from on, where an added token ends, through the stages in
// the package comment. It calls after, if that is not nil, with the end of every added token that another
// call can go on from.
func (t *Tokenizer) encodeInto(ids []int32, text string, from int, w *scratch, after func(place)) []int32 {
	token := func(id int32) { ids = append(ids, id) }
	encodePiece := chain(t.pre, func(p piece) { ids = t.encodeWord(ids, p.text, w) })
	t.original.splitFrom(text, from, func(start, end int) {
		part := t.norm.normalize(text[start:end])
		t.normalized.split(part, func(from, to int) {
			encodePiece(piece{part[from:to], start == 0 && from == 0})
		}, token)
	}, func(id int32, next int) {
		token(id)
		if after != nil && next >= 0 {
			after(place{next, len(ids)})
		}
	})
	return ids
}

// encodeWord encodes a word with the model, or takes its ids from the cache.
func (t *Tokenizer) encodeWord(ids []int32, word string, w *scratch) []int32 {
	slot := w.cache.slot(word)
	if slot == nil {
		return t.model.encode(ids, word, w)
	}
	if slot.holds(word) {
		return append(ids, slot.ids[:slot.count]...)
	}
	before := len(ids)
	ids = t.model.encode(ids, word, w)
	slot.store(word, ids[before:])
	return ids
}

// wordCache caches the ids of words. A word can be in only one slot, which is as long
// as a cache line, and replaces the word that was there. So memory is fixed, a lookup
// is one comparison, and there are no pointers for the garbage collector to follow.
type wordCache struct {
	seed  maphash.Seed
	slots []cacheSlot
}

const (
	cacheSlots = 1 << 14 // of 64 bytes: 1 MiB
	cachedWord = 30      // bytes of the longest word in the cache
	cachedIDs  = 8       // ids of a word in the cache, at most
)

type cacheSlot struct {
	length, count uint8
	word          [cachedWord]byte
	ids           [cachedIDs]int32
}

func newWordCache() wordCache {
	return wordCache{maphash.MakeSeed(), make([]cacheSlot, cacheSlots)}
}

// slot returns the slot of word, or nil if the word is too long for the cache.
func (c *wordCache) slot(word string) *cacheSlot {
	if len(word) > cachedWord {
		return nil
	}
	return &c.slots[maphash.String(c.seed, word)%cacheSlots]
}

// holds reports whether the slot has word. An empty slot has length 0, which no word
// has.
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
