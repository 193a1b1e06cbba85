// Package data turns files into batches for training.
//
// OpenText and OpenJSONL read files of text records, and Tokenize turns the records
// into documents of tokens. OpenTokens reads files that are tokenized already. The
// lines of a JSONL file have a Format: texts, prompts with completions, instructions,
// or conversations, which package chat renders. A Survey counts documents and tokens.
// A Loader packs documents into rows, the sequences of a batch: all rows have the same
// length, and the documents are shuffled again in every epoch.
//
// The rows form one endless stream, the same for every batch size, number of
// micro-batches and number of ranks: row i depends only on the data, the seed and i.
// A Position names a place in the stream in a few numbers, so a run can stop after any
// batch and resume there.
//
// A file is indexed once. The index takes 8 bytes of memory per document, however long
// the document is; a survey takes 4 more.
package data

import (
	"errors"
	"fmt"
	"math"
	"sort"
)

// Document is one text as tokens: attention and targets never cross its borders.
type Document struct {
	Tokens []int32
	// InLoss are the ranges of tokens that count in the loss, in order. The other tokens
	// are only context. Nil means that all tokens count.
	InLoss []Range
}

// Range holds the tokens Start to End-1.
type Range struct{ Start, End int }

// LossTokens counts the tokens in the loss. The first token of a document is never one
// of them, because no token predicts it.
func (d Document) LossTokens() (n int) {
	if d.InLoss == nil {
		return max(len(d.Tokens)-1, 0)
	}
	for _, r := range d.InLoss {
		n += max(r.End-max(r.Start, 1), 0)
	}
	return n
}

// unused says that only some tokens count in the loss, and the document has none of them.
func (d Document) unused() bool { return d.InLoss != nil && d.LossTokens() == 0 }

// Source is a numbered collection of documents. Document may be called from several
// goroutines, and the caller owns the result. A document may be empty.
type Source interface {
	Len() int64
	Document(i int64) (Document, error)
}

// Tokenizer turns text into tokens. addSpecial adds the tokens that a model expects
// at the start of a text, such as <s>.
type Tokenizer interface {
	Encode(text string, addSpecial bool) ([]int32, error)
}

// Concat joins sources: their documents follow one another in the order given.
func Concat(sources ...Source) Source {
	c := concat{sources: sources, ends: make([]int64, len(sources))}
	n := int64(0)
	for i, s := range sources {
		n += s.Len()
		c.ends[i] = n
	}
	return c
}

type concat struct {
	sources []Source
	ends    []int64 // number of documents up to the end of each source
}

func (c concat) Len() int64 {
	if len(c.ends) == 0 {
		return 0
	}
	return c.ends[len(c.ends)-1]
}

func (c concat) Document(i int64) (Document, error) {
	if err := inRange(i, c.Len()); err != nil {
		return Document{}, err
	}
	s, i := c.find(i)
	return s.Document(i)
}

// find returns the source that has document i, and the document's number there.
func (c concat) find(i int64) (Source, int64) {
	k := sort.Search(len(c.ends), func(k int) bool { return c.ends[k] > i })
	return c.sources[k], i - (c.ends[k] - c.sources[k].Len())
}

// Weighted is a source whose passes have weight times as many documents as s: all of them so
// many times, and of the rest a random part, the same for the same seed.
func Weighted(s Source, weight float64, seed uint64) Source {
	n := int64(math.Round(weight * float64(s.Len())))
	o := newOrder(s.Len(), seed, weightEpoch)
	return selection{s, n, func(i int64) int64 { return o.at(i % s.Len()) }}
}

// weightEpoch is an epoch that no run reaches, so that a weighted source has an order of its own.
const weightEpoch = splitEpoch - 1

// selection is n documents of another source; at gives their numbers there.
type selection struct {
	from Source
	n    int64
	at   func(i int64) int64
}

func (s selection) Len() int64 { return s.n }

func (s selection) Document(i int64) (Document, error) {
	if err := inRange(i, s.n); err != nil {
		return Document{}, err
	}
	return s.from.Document(s.at(i))
}

func inRange(i, n int64) error {
	if i < 0 || i >= n {
		return fmt.Errorf("document %d is out of range: there are %d", i, n)
	}
	return nil
}

// ErrNothing is the error of data that has not a single token in the loss.
var ErrNothing = errors.New("the data has nothing to learn: no document has a token in the loss; check the files, the names of the fields, and that texts and answers are not empty")
