package inference

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"spillway"
	"spillway/data"
	"spillway/finetune"
	"spillway/plan"
	"spillway/recipe"
	"spillway/run"
	"spillway/train"
)

// Windows evaluates a model as llama.cpp's llama-perplexity does, so that the numbers can be
// compared. All texts are one, which is cut into windows of so many tokens. The first token of a
// window is replaced by the one that begins a text, where the model has one; those after the
// first of its second half are in the loss. What does not fill a window is left out.
func (m *Model) Windows(ctx context.Context, r *recipe.Recipe, tokens int) (Evaluation, error) {
	tok, err := m.Tokenizer()
	if err != nil {
		return Evaluation{}, err
	}
	text, err := wholeText(r)
	if err != nil {
		return Evaluation{}, err
	}
	m.s.Progress("tokenizing", 0, int64(len(text)))
	ids, err := tok.Encode(text, true)
	if err != nil {
		return Evaluation{}, err
	}
	none, err := tok.Encode("", true)
	if err != nil {
		return Evaluation{}, err
	}
	if n := m.specials(ids) - m.specials(none); n > 0 {
		m.s.Notice(fmt.Sprintf("%d special tokens are written out in the text: here they are those tokens, llama-perplexity cuts them as other text, so that its number differs", n))
	}
	w := &windows{ids: ids, length: tokens}
	if len(none) > 0 {
		w.begin = none[:1]
	}
	if w.Len() < 1 {
		return Evaluation{}, &run.SettingError{Err: fmt.Errorf("the text has %d tokens, a window %d; give a longer text, or --windows %d", len(ids), tokens, max(len(ids)/2, 4))}
	}
	l, err := data.NewLoader(w, data.Config{Length: tokens, InOrder: true, WholeDocuments: true, Epochs: 1})
	if err != nil {
		return Evaluation{}, err
	}
	r.Model, r.Task, r.Seq = m.Path, spillway.Eval, int64(tokens)
	return m.evaluate(ctx, r, func(*plan.Plan) (train.Feed, finetune.Summary, error) {
		n := int64(tokens)
		return train.NewTokens(l), finetune.Summary{Documents: w.Len(), Tokens: n * w.Len(), LossTokens: (n - int64(w.first())) * w.Len(), Longest: tokens}, nil
	})
}

// specials counts special tokens.
func (m *Model) specials(ids []int32) (n int) {
	tok, err := m.Tokenizer()
	if err != nil {
		return 0
	}
	for _, id := range ids {
		if tok.Special(id) {
			n++
		}
	}
	return n
}

// wholeText reads the files of a recipe as one text.
func wholeText(r *recipe.Recipe) (string, error) {
	var all strings.Builder
	for _, name := range r.Data.Files {
		if name == "-" {
			if _, err := io.Copy(&all, r.Data.Stdin); err != nil {
				return "", err
			}
			continue
		}
		switch filepath.Ext(name) {
		case ".jsonl", ".parquet", ".csv", ".bin", ".gz", ".zst":
			return "", &run.SettingError{Err: fmt.Errorf("--windows reads plain text, %s is none; leave --windows out", name)}
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("reading the data: %w", err)
		}
		all.Write(b)
	}
	return all.String(), nil
}

// windows is a text as documents of one length.
type windows struct {
	ids    []int32
	length int
	begin  []int32 // what the first token of a window is replaced by; empty: nothing
}

// first is the place in a window of the first token in the loss: the one after the first of the
// second half.
func (w *windows) first() int { return w.length/2 + 1 }

// Len implements data.Source.
func (w *windows) Len() int64 { return int64(len(w.ids) / w.length) }

// Document implements data.Source.
func (w *windows) Document(i int64) (data.Document, error) {
	ids := make([]int32, w.length)
	copy(ids, w.ids[int(i)*w.length:])
	copy(ids, w.begin)
	return data.Document{Tokens: ids, InLoss: []data.Range{{Start: w.first(), End: w.length}}}, nil
}
