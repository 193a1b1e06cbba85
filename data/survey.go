package data

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// Survey counts the documents of a source, and the tokens of those that a Loader does not
// leave out. NewSurvey reads and tokenizes
// everything once, so a document that cannot be read is found before a run starts.
type Survey struct {
	Documents  int64
	Tokens     int64
	LossTokens int64   // tokens that count in the loss
	Unused     int64   // conversations and completions without a token in the loss
	Longest    int     // tokens of the longest document
	Digest     uint64  // of all tokens, in order, and of which are in the loss; never 0
	lengths    []int32 // tokens of each document
}

// surveyBlock is the number of documents that a goroutine takes at a time.
const surveyBlock = 64

// NewSurvey reads all documents, on all CPUs. progress, if not nil, is called with the
// number of documents done so far and in all.
func NewSurvey(s Source, progress func(done, total int64)) (Survey, error) {
	v := Survey{Documents: s.Len(), lengths: make([]int32, s.Len())}
	meter := progressMeter(progress, s.Len())
	var next, done, inLoss, unused atomic.Int64
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
				l, u, err := v.measure(s, from, min(from+surveyBlock, v.Documents), &sums[from/surveyBlock])
				if err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				inLoss.Add(l)
				unused.Add(u)
				meter(done.Add(min(surveyBlock, v.Documents-from)))
			}
		})
	}
	wait.Wait()
	if err := failed.Load(); err != nil {
		return v, *err
	}
	v.LossTokens, v.Unused, v.Digest = inLoss.Load(), unused.Load(), 1
	for _, sum := range sums {
		v.Digest = max(mix(v.Digest^sum), 1)
	}
	for _, n := range v.lengths {
		v.Tokens, v.Longest = v.Tokens+int64(n), max(v.Longest, int(n))
	}
	return v, nil
}

// measure reads documents from to to-1, fills in their lengths, counts what is in the
// loss and adds their digests to sum.
func (v *Survey) measure(s Source, from, to int64, sum *uint64) (inLoss, unused int64, err error) {
	for i := from; i < to; i++ {
		d, err := s.Document(i)
		if err != nil {
			return 0, 0, fmt.Errorf("reading document %d: %w", i, err)
		}
		*sum = mix(*sum ^ d.digest())
		if d.unused() {
			unused++
			continue
		}
		v.lengths[i] = int32(len(d.Tokens))
		inLoss += int64(d.LossTokens())
	}
	return inLoss, unused, nil
}

// digest is a hash of the tokens and of which are in the loss.
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

// Longer counts the documents that have more than the given number of tokens.
func (v Survey) Longer(tokens int) (n int64) {
	for _, l := range v.lengths {
		if int(l) > tokens {
			n++
		}
	}
	return n
}

// Rows counts the rows that a loader makes of the documents before its stream ends. It
// is 0 if the stream never ends.
func (v Survey) Rows(c Config) int64 {
	rows, _ := v.pack(c, c.Epochs)
	return rows
}

// MeanDocument is how many tokens the document has that a position of a row is in, on
// average over the positions of one pass over the documents. What is cut off at the end of a
// row counts as a document of its own, and so does padding.
func (v Survey) MeanDocument(c Config) int64 {
	rows, squares := v.pack(c, 1)
	return int64(squares / float64(max(rows*int64(c.Length), 1)))
}

// pack counts the rows of so many passes, and sums the squared lengths of the documents in
// them.
func (v Survey) pack(c Config, epochs int64) (rows int64, squares float64) {
	square := func(n int) { squares += float64(n) * float64(n) }
	for e := range uint64(max(epochs, 0)) {
		o := newOrder(v.Documents, c.Seed, e)
		free := 0 // positions left in the current row; an epoch begins a new row
		for i := range v.Documents {
			if !c.InOrder {
				i = o.at(i)
			}
			n := int(v.lengths[i])
			if c.OneDocument && n > 0 || c.WholeDocuments && n > free {
				square(free)
				free = 0
			}
			for n > 0 {
				if free == 0 {
					rows, free = rows+1, c.Length
				}
				taken := min(n, free)
				square(taken)
				n, free = n-taken, free-taken
			}
		}
		square(free)
	}
	return rows, squares
}
