package data

import "fmt"

// TokenizeOptions say what is put around the tokens of a text.
type TokenizeOptions struct {
	// End is appended to every document that does not end with it; nil for nothing.
	End *int32
	// LearnPrompts counts the tokens of prompts as targets too.
	TrainOnPrompts bool
}

// Tokenize makes documents of records. The tokenizer must be safe for concurrent
// use if the source is used so.
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

// document encodes prompt and text apart, so that the border between them is the
// same for every completion. Special tokens go where a text starts, the end token
// where it ends, not where it was only cut.
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

// answered encodes a conversation as a whole, as the model will read it. An answer
// begins with the first token that what is before it does not have by itself, and
// ends with the last that has something of it.
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
			end++ // a token of the answer and of what follows it
		}
		d.InLoss[i] = Range{commonPrefix(d.Tokens, before), end}
	}
	return d, nil
}

// shared is how many tokens two texts begin with alike.
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
