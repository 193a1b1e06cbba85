package data

import "fmt"

// TokenizeOptions say how records become documents.
type TokenizeOptions struct {
	// End is appended to every document that does not end with it; nil appends nothing.
	End *int32
	// TrainOnPrompts puts the tokens of prompts into the loss too.
	TrainOnPrompts bool
}

// Tokenize makes documents of records, one of each, when they are asked for. If the
// source is used concurrently, the tokenizer must be safe for that.
func Tokenize(r *Records, t Tokenizer, o TokenizeOptions) Source { return tokenized{r, t, o} }

type tokenized struct {
	records   *Records
	tokenizer Tokenizer
	options   TokenizeOptions
}

func (s tokenized) Len() int64 { return s.records.Len() }

func (s tokenized) Document(i int64) (Document, error) {
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

// encodeRecord encodes prompt and text separately, so that a prompt has the same tokens
// whatever completion follows. Special tokens are added only where a text really starts,
// and the end token only where it really ends, not where it was split.
func encodeRecord(rec Record, t Tokenizer, o TokenizeOptions) (d Document, err error) {
	if rec.Answers != nil {
		return encodeConversation(rec, t, o)
	}
	if rec.Prompt == "" && rec.Text == "" {
		return d, nil
	}
	if rec.Prompt != "" {
		if d.Tokens, err = encode(t, rec.Prompt, true); err != nil {
			return d, err
		}
	}
	prompt := len(d.Tokens)
	text, err := encode(t, rec.Text, !rec.Continues && rec.Prompt == "")
	if err != nil {
		return d, err
	}
	d.Tokens = append(d.Tokens, text...)
	if n := len(d.Tokens); o.End != nil && !rec.Unfinished && (n == 0 || d.Tokens[n-1] != *o.End) {
		d.Tokens = append(d.Tokens, *o.End)
	}
	if prompt > 0 && !o.TrainOnPrompts {
		d.InLoss = []Range{{prompt, len(d.Tokens)}}
	}
	return d, nil
}

// encodeConversation encodes a conversation as one text, as the model will read it. A
// token that holds any part of an answer is in the loss. An answer's first token is
// where the encoding of the text before the answer departs from that of the whole.
func encodeConversation(rec Record, t Tokenizer, o TokenizeOptions) (d Document, err error) {
	if d.Tokens, err = encode(t, rec.Text, false); err != nil || o.TrainOnPrompts {
		return d, err
	}
	d.InLoss = make([]Range, len(rec.Answers))
	for i, a := range rec.Answers {
		before, err := encode(t, rec.Text[:a.Start], false)
		if err != nil {
			return d, err
		}
		with, err := encode(t, rec.Text[:a.End], false)
		if err != nil {
			return d, err
		}
		end := commonPrefix(d.Tokens, with)
		if end < len(with) {
			end++ // a token shared by the answer and what follows it
		}
		d.InLoss[i] = Range{commonPrefix(d.Tokens, before), end}
	}
	return d, nil
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
