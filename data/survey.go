package data

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// Survey is what all documents of a source come to. Making one reads and tokenizes
// everything once, so a document that cannot be read is met before a run starts.
type Survey struct {
	Documents  int64
	Tokens     int64
	LossTokens int64  // tokens the model is to predict
	Longest    int    // tokens of the longest document
	Digest     uint64 // of all tokens and of which are learned, in order; never 0
	lengths    []int32
}

// surveyBlock is how many documents a goroutine takes at a time.
const surveyBlock = 64

// NewSurvey reads all documents, on all processors. progress, if not nil, is told how
// many are done, of how many.
func NewSurvey(s Source, progress func(done, total int64)) (Survey, error) {
	v := Survey{Documents: s.Len(), lengths: make([]int32, s.Len())}
	seen := newProgressMeter(progress, s.Len())
	var next, tokens, learned atomic.Int64
	sums := make([]uint64, (v.Documents+surveyBlock-1)/surveyBlock)
	var failed atomic.Pointer[error]
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for failed.Load() == nil {
				from := next.Add(surveyBlock) - surveyBlock
				if from >= v.Documents {
					return
				}
				n, l, err := v.measure(s, from, min(from+surveyBlock, v.Documents), &sums[from/surveyBlock])
				if err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				tokens.Add(n)
				learned.Add(l)
				seen.add(min(surveyBlock, v.Documents-from))
			}
		})
	}
	wait.Wait()
	if err := failed.Load(); err != nil {
		return v, *err
	}
	v.Tokens, v.LossTokens, v.Digest = tokens.Load(), learned.Load(), 1
	for _, sum := range sums {
		v.Digest = max(mix(v.Digest^sum), 1)
	}
	for _, n := range v.lengths {
		v.Longest = max(v.Longest, int(n))
	}
	return v, nil
}

// measure reads some documents, notes how long they are and sums them up.
func (v *Survey) measure(s Source, from, to int64, sum *uint64) (tokens, learned int64, err error) {
	for i := from; i < to; i++ {
		d, err := s.Document(i)
		if err != nil {
			return 0, 0, fmt.Errorf("reading document %d: %w", i, err)
		}
		v.lengths[i] = int32(len(d.Tokens))
		tokens += int64(len(d.Tokens))
		learned += int64(d.LossTokens())
		*sum = mix(*sum ^ d.digest())
	}
	return tokens, learned, nil
}

// digest tells documents apart.
func (d Document) digest() uint64 {
	sum := uint64(len(d.Tokens))
	for _, t := range d.Tokens {
		sum = mix(sum ^ uint64(t))
	}
	for _, r := range d.InLoss {
		sum = mix(mix(sum^uint64(r.Start)) ^ uint64(r.End))
	}
	return sum
}

// Longer is how many documents have more than so many tokens.
func (v Survey) Longer(tokens int) (n int64) {
	for _, l := range v.lengths {
		if int(l) > tokens {
			n++
		}
	}
	return n
}

// Rows is how many rows a loader makes of the documents before its stream ends; 0
// where it never does.
func (v Survey) Rows(c Config) (rows int64) {
	for e := range uint64(max(c.Epochs, 0)) {
		o := newOrder(v.Documents, c.Seed, e)
		room := 0 // in the row at hand; an epoch begins a new one
		for i := range v.Documents {
			if !c.InOrder {
				i = o.at(i)
			}
			n := int(v.lengths[i])
			if c.WholeDocuments && n > room {
				room = 0
			}
			for n > 0 {
				if room == 0 {
					rows, room = rows+1, c.Length
				}
				taken := min(n, room)
				n, room = n-taken, room-taken
			}
		}
	}
	return rows
}
