package data

import (
	"fmt"
	"sync/atomic"
)

// TokenizeOptions say how records become documents.
type TokenizeOptions struct {
	// End is appended to every document that does not end with it; nil appends nothing.
	End *int32
	// TrainOnPrompts puts the tokens of prompts into the loss too.
	TrainOnPrompts bool
	// Cache, if not nil, keeps the tokens of conversations.
	Cache *Cache
}

// Tokenize makes documents of records, one of each, when they are asked for. If the
// source is used concurrently, the tokenizer must be safe for that.
func Tokenize(r *Records, t Tokenizer, o TokenizeOptions) Source {
	s := tokenized{records: r, tokenizer: t, options: o}
	if o.Cache != nil && r.Format() == Chat {
		s.cached = make([]atomic.Int64, r.Len())
	}
	return s
}

type tokenized struct {
	records   *Records
	tokenizer Tokenizer
	options   TokenizeOptions
	cached    []atomic.Int64 // places of the documents in the cache, 0 for none; nil without one
}

func (s tokenized) Len() int64 { return s.records.Len() }

func (s tokenized) Document(i int64) (Document, error) {
	if s.cached == nil {
		return s.document(i)
	}
	if err := inRange(i, s.Len()); err != nil {
		return Document{}, err
	}
	if place := s.cached[i].Load(); place > 0 {
		return s.options.Cache.load(place)
	}
	d, err := s.document(i)
	if err == nil {
		s.cached[i].Store(s.options.Cache.store(d))
	}
	return d, err
}

// document makes a document of its record.
func (s tokenized) document(i int64) (Document, error) {
	rec, err := s.records.Record(i)
	if err != nil {
		return Document{}, err
	}
	d, err := encodeRecord(rec, s.tokenizer, s.options)
	if err != nil {
		return Document{}, fmt.Errorf("%s, record %d: %w", s.records.name, i, err)
	}
	return d, nil
}

// encodeRecord encodes prompt and text as one text, as TRL does: a tokenizer that puts a space
// before every text puts none between them. The loss begins where the tokens depart from those
// of the prompt alone. Special tokens are added only where a text really starts, and the end
// token only where it really ends, not where it was split.
func encodeRecord(rec Record, t Tokenizer, o TokenizeOptions) (d Document, err error) {
	if rec.Answers != nil {
		return encodeConversation(rec, t, o)
	}
	if rec.Prompt == "" && rec.Text == "" {
		return d, nil
	}
	if d.Tokens, err = encode(t, rec.Prompt+rec.Text, !rec.Continues); err != nil {
		return d, err
	}
	prompt := 0
	if rec.Prompt != "" && !o.TrainOnPrompts {
		alone, err := encode(t, rec.Prompt, true)
		if err != nil {
			return d, err
		}
		prompt = commonPrefix(d.Tokens, alone)
	}
	if n := len(d.Tokens); prompt == n && n > 0 && o.End != nil && !rec.Unfinished && d.Tokens[n-1] == *o.End {
		prompt-- // of an empty completion, where the tokenizer adds the end token itself
	}
	if n := len(d.Tokens); o.End != nil && !rec.Unfinished && (n == 0 || d.Tokens[n-1] != *o.End) {
		d.Tokens = append(d.Tokens, *o.End)
	}
	if prompt > 0 {
		d.InLoss = []Range{{prompt, len(d.Tokens)}}
	}
	return d, nil
}

// encodeConversation encodes a conversation as one text, as the model will read it. A
// token that holds any part of an answer is in the loss. An answer's first token is
// where the encoding of the text before the answer departs from that of the whole.
func encodeConversation(rec Record, t Tokenizer, o TokenizeOptions) (d Document, err error) {
	if o.TrainOnPrompts {
		d.Tokens, err = encode(t, rec.Text, false)
		return d, err
	}
	ends := make([]int, 0, 2*len(rec.Answers))
	for _, a := range rec.Answers {
		ends = append(ends, a.Start, a.End)
	}
	p, ok := t.(prefixEncoder)
	if !ok {
		p = eachPrefix{t}
	}
	tokens, common, counts, err := p.EncodePrefixes(rec.Text, ends)
	if err != nil {
		return d, fmt.Errorf("tokenizing %d bytes: %w", len(rec.Text), err)
	}
	d.Tokens, d.InLoss = tokens, make([]Range, len(rec.Answers))
	for i := range rec.Answers {
		end := common[2*i+1]
		if end < counts[2*i+1] {
			end++ // a token shared by the answer and what follows it
		}
		d.InLoss[i] = Range{common[2*i], end}
	}
	return d, nil
}

// prefixEncoder is a tokenizer that encodes a text together with its beginnings of the given
// lengths. Of each beginning it returns how many tokens it has in common with the text
// before the first that differs, and how many it has in all.
type prefixEncoder interface {
	EncodePrefixes(text string, ends []int) (tokens []int32, common, counts []int, err error)
}

// eachPrefix encodes the beginnings one by one, with any tokenizer.
type eachPrefix struct{ Tokenizer }

// EncodePrefixes is as prefixEncoder says.
func (e eachPrefix) EncodePrefixes(text string, ends []int) (tokens []int32, common, counts []int, err error) {
	if tokens, err = e.Encode(text, false); err != nil {
		return nil, nil, nil, err
	}
	for _, end := range ends {
		own, err := e.Encode(text[:end], false)
		if err != nil {
			return nil, nil, nil, err
		}
		common, counts = append(common, commonPrefix(tokens, own)), append(counts, len(own))
	}
	return tokens, common, counts, nil
}

// commonPrefix counts the tokens with which both lists begin.
func commonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func encode(t Tokenizer, text string, addSpecial bool) ([]int32, error) {
	tokens, err := t.Encode(text, addSpecial)
	if err != nil {
		return nil, fmt.Errorf("tokenizing %d bytes: %w", len(text), err)
	}
	return tokens, nil
}
