package tokenizer

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// The first ids of a llama2.c vocabulary.
const (
	llama2cBegin    = 1 // <s>
	llama2cSpecials = 3 // <unk>, <s>, </s>
	llama2cWords    = llama2cSpecials + 256
)

// maxLlama2CToken is the length in bytes of the longest token that is read. Every way
// to split a token in two is looked up, so the work grows with the square of the
// length.
const maxLlama2CToken = 256

// OpenLlama2C reads the binary vocabulary of llama2.c, such as tok512.bin.
func OpenLlama2C(path string) (*Tokenizer, error) { return open(path, ParseLlama2C) }

// ParseLlama2C reads llama2.c's form of a SentencePiece vocabulary: the length of the
// longest token, then the score, the length and the text of every token, with plain
// spaces. <unk>, <s>, </s> and the 256 bytes come first.
func ParseLlama2C(data []byte) (_ *Tokenizer, err error) {
	defer recoverFailure(&err, "parse llama2.c tokenizer")
	v, scores := readLlama2C(data)
	m := &bpe{vocab: v, unknown: -1, byteTokens: v.byteIDs(), merges: scoreMerges(v, scores)}
	m.splitBefore(" ")
	for b, id := range m.byteTokens {
		if int(id) != llama2cSpecials+b {
			panic(failf("byte %d has id %d, not %d", b, id, llama2cSpecials+b))
		}
	}
	for id := range llama2cSpecials {
		v.special[id] = true
	}
	t := &Tokenizer{
		vocab: v, model: m, original: newFinder(nil), normalized: newFinder(nil),
		norm:    normalizers{prepend(" ")},
		affixes: affixes{before: []int32{llama2cBegin}},
		decoder: decoders{byteTokensToText, fuse, stripDecoder{Content: " ", Start: 1}.decoder()},
	}
	return t.finish(), nil
}

// Llama2CPieces are the tokens of llama2.c's binary vocabulary, in the order of their ids, as
// SentencePiece has them, and their scores.
func Llama2CPieces(data []byte) (pieces []string, scores []float32, err error) {
	defer recoverFailure(&err, "parse llama2.c tokenizer")
	v, scores := readLlama2C(data)
	pieces = []string{"<unk>", "<s>", "</s>"}
	for id := llama2cSpecials; id < len(scores); id++ {
		pieces = append(pieces, strings.ReplaceAll(v.tokens[id], " ", "▁"))
	}
	return pieces, scores, nil
}

func readLlama2C(data []byte) (*vocab, []float32) {
	if len(data) < 4 {
		panic(failf("%d bytes are too few", len(data)))
	}
	most := binary.LittleEndian.Uint32(data)
	if most > maxLlama2CToken {
		panic(failf("it says its longest token has %d bytes, at most %d are supported", most, maxLlama2CToken))
	}
	v := newVocab()
	var scores []float32
	for rest := data[4:]; len(rest) > 0; {
		id := len(scores)
		if len(rest) < 8 {
			panic(failf("token %d is cut short", id))
		}
		score := math.Float32frombits(binary.LittleEndian.Uint32(rest))
		length := binary.LittleEndian.Uint32(rest[4:])
		rest = rest[8:]
		if length > most || int(length) > len(rest) || score != score {
			panic(failf("token %d has score %g and %d bytes; the longest has %d, and %d follow", id, score, length, most, len(rest)))
		}
		if !utf8.Valid(rest[:length]) {
			panic(failf("token %d is not UTF-8: %s", id, excerpt(string(rest[:length]))))
		}
		v.add(v.ids, string(rest[:length]), int64(id), id+1)
		scores, rest = append(scores, score), rest[length:]
	}
	if len(scores) < llama2cWords || len(scores) > maxTokens {
		panic(failf("%d tokens; from %d to %d are supported", len(scores), llama2cWords, maxTokens))
	}
	return v, scores
}

// scoreMerges derives merges from scores: two tokens may be merged if the result is a
// token, and a higher score is merged earlier.
func scoreMerges(v *vocab, scores []float32) map[pair]merge {
	merges := map[pair]merge{}
	ranks := ranksOf(scores)
	for id := llama2cWords; id < len(scores); id++ {
		token := v.tokens[id]
		for i := range token {
			left, okLeft := v.ids[token[:i]]
			right, okRight := v.ids[token[i:]]
			if i > 0 && okLeft && okRight {
				merges[pairOf(left, right)] = merge{ranks[id], int32(id)}
			}
		}
	}
	return merges
}

// ranksOf numbers scores from the highest down. Equal scores have the same number.
func ranksOf(scores []float32) []int32 {
	sorted := slices.Clone(scores)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	ranks := make([]int32, len(scores))
	for id, score := range scores {
		place, _ := slices.BinarySearch(sorted, score)
		ranks[id] = int32(len(sorted) - place)
	}
	return ranks
}
