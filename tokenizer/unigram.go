package tokenizer

import (
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// unigram gives every token a score, the logarithm of its probability, and splits a
// word into the tokens with the highest sum.
type unigram struct {
	vocab      *vocab
	scores     []float64 // by id
	pieces     *trie
	unknown    int32       // id of the unknown token, -1 if the file has none
	penalty    float64     // the score of an unknown character
	byteTokens *[256]int32 // ids of "<0x00>" ...; nil without byte fallback
}

// unknownPenalty is how much lower than the lowest score of a token that of an unknown
// character is.
const unknownPenalty = 10

func parseUnigram(file *modelFile) (*unigram, *vocab) {
	m := &unigram{vocab: newVocab(), unknown: -1, penalty: math.Inf(1)}
	within("vocab", func() { m.parseScores(string(file.Vocab)) })
	if file.UnknownID != nil {
		if *file.UnknownID < 0 || *file.UnknownID >= int64(len(m.scores)) {
			panic(failf("unk_id %d, but ids go from 0 to %d", *file.UnknownID, len(m.scores)-1))
		}
		m.unknown = int32(*file.UnknownID)
	}
	if file.Fallback {
		m.byteTokens = m.vocab.byteIDs()
	}
	m.pieces = m.vocab.trie("")
	return m, m.vocab
}

// parseScores reads [["token", score], ...]. The index of a token is its id.
func (m *unigram) parseScores(array string) {
	for value := range elements(array) {
		id := int64(len(m.scores))
		fields := slices.Collect(elements(value))
		if len(fields) != 2 {
			panic(failf("entry %d is %s, not a token and its score", id, excerpt(value)))
		}
		token := jsonString(fields[0])
		score, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			panic(failf("token %s has score %s, which is not a number", excerpt(token), excerpt(fields[1])))
		}
		if len(m.scores) == maxTokens {
			panic(failf("more than %d tokens", maxTokens))
		}
		m.scores = append(m.scores, score)
		m.penalty = min(m.penalty, score-unknownPenalty)
		m.vocab.add(m.vocab.ids, token, id, len(m.scores))
	}
}

// viterbiStep is the best split found of a word up to some position: its last token and
// where that starts.
type viterbiStep struct {
	score float64
	start int32 // -1: no split yet
	id    int32
}

func (m *unigram) encode(ids []int32, word string, w *scratch) []int32 {
	best := m.search(w.best[:0], word)
	w.best = best
	before := len(ids)
	for end := len(word); end > 0; {
		start, id := int(best[end].start), best[end].id
		if id == m.unknown { // neighbouring unknown characters are one token
			for start > 0 && best[start].id == m.unknown {
				start = int(best[start].start)
			}
			ids = m.appendUnknown(ids, word[start:end])
		} else {
			ids = append(ids, id)
		}
		end = start
	}
	slices.Reverse(ids[before:])
	return ids
}

// search sets best[i] to the best split of word[:i].
func (m *unigram) search(best []viterbiStep, word string) []viterbiStep {
	best = append(best, viterbiStep{})
	for range len(word) {
		best = append(best, viterbiStep{start: -1})
	}
	for start := 0; start < len(word); {
		_, n := utf8.DecodeRuneInString(word[start:])
		offer := func(id int32, length int, score float64) {
			score += best[start].score
			if to := &best[start+length]; to.start < 0 || score > to.score {
				*to = viterbiStep{score, int32(start), id}
			}
		}
		single := false
		m.pieces.walk(word[start:], func(id int32, length int) {
			offer(id, length, m.scores[id])
			single = single || length == n
		})
		if !single {
			if m.unknown < 0 {
				panic(failf("character %q is not in the vocabulary, which has no unknown token", word[start:start+n]))
			}
			offer(m.unknown, n, m.penalty)
		}
		start += n
	}
	return best
}

// appendUnknown appends the ids of characters without a token. The last comes first,
// because encode goes backwards.
func (m *unigram) appendUnknown(ids []int32, text string) []int32 {
	if id, ok := m.vocab.ids[text]; ok {
		return append(ids, id)
	}
	if with, ok := appendBytes(ids, text, m.byteTokens); ok {
		slices.Reverse(with[len(ids):])
		return with
	}
	return append(ids, m.unknown)
}
