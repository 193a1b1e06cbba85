// Package data turns files into batches for training.
//
// Files hold records (OpenText, OpenJSONL) that a tokenizer makes documents of
// (Tokenize), or tokens already (OpenTokens). JSON lines have a Form: texts, prompts
// with completions, instructions, or conversations, which package chat writes. A
// Survey counts what there is, and a Loader packs documents into rows of a fixed
// length, in an order shuffled anew every epoch.
//
// The rows form one endless stream, the same for every batch size, number of
// micro-batches and number of ranks: row i is a function of the data, the seed and
// i alone. Where a run stands in the stream is a Position of a few numbers, so
// that it can stop after any batch and go on.
//
// Files are indexed once: 8 bytes of memory per document, however long it is, and 4
// more in a survey.
package data

import (
	"errors"
	"fmt"
	"sort"
)

// Document is a run of tokens that belong together.
type Document struct {
	Tokens []int32
	// Learned are the ranges of tokens that the model is to predict, in order; the
	// others are given to it. Nil learns all.
	InLoss []Range
}

// Range is from a token up to another.
type Range struct{ Start, End int }

// Counted is how many tokens are learned. The first one never is: nothing predicts it.
func (d Document) LossTokens() (n int) {
	if d.InLoss == nil {
		return max(len(d.Tokens)-1, 0)
	}
	for _, r := range d.InLoss {
		n += max(r.End-max(r.Start, 1), 0)
	}
	return n
}

// Source is a numbered collection of documents. Document may be called from
// several goroutines; the caller owns what it returns. A document may be empty.
type Source interface {
	Len() int64
	Document(i int64) (Document, error)
}

// Tokenizer makes tokens of text. addSpecial asks for the tokens a model expects
// at the start of a text.
type Tokenizer interface {
	Encode(text string, addSpecial bool) ([]int32, error)
}

// Concat is several sources one after another.
func Concat(sources ...Source) Source {
	c := concat{sources: sources, ends: make([]int64, len(sources))}
	var n int64
	for i, s := range sources {
		n += s.Len()
		c.ends[i] = n
	}
	return c
}

type concat struct {
	sources []Source
	ends    []int64 // number of documents up to and with each source
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
	k := sort.Search(len(c.ends), func(k int) bool { return i < c.ends[k] })
	s := c.sources[k]
	return s.Document(i - (c.ends[k] - s.Len()))
}

func inRange(i, n int64) error {
	if i < 0 || i >= n {
		return fmt.Errorf("document %d of %d: there is none", i, n)
	}
	return nil
}

// errEmpty is what a loader says of data without a single token.
var errEmpty = errors.New("the data has no tokens; look at the files and the names of the fields")
