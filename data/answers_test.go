package data_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"spillway/chat"
	"spillway/data"
	"spillway/tokenizer"
)

// Tokens of conversations, and which of them are in the loss, are those that transformers
// gives with the same tokenizer and a template that marks answers.
func TestAnswersAreThoseOfTransformers(t *testing.T) {
	var want map[string]map[string]struct{ Tokens, Learned []int32 }
	readJSON(t, filepath.Join("testdata", "answers.json"), &want)
	var cases map[string]json.RawMessage
	readJSON(t, filepath.Join("..", "chat", "testdata", "cases.json"), &cases)
	template, err := chat.OpenFile(filepath.Join("..", "chat", "testdata", "templates", "generation.jinja"), "")
	if err != nil {
		t.Fatal(err)
	}
	template.SpecialTokens = map[string]string{"bos_token": "<s>", "eos_token": "</s>"}
	for name, list := range want {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("..", "testdata", "tokenizers", name+".json")
			if _, err := os.Stat(path); err != nil {
				t.Skip("no tokenizer of " + name + " here: make tokenizers fetches it")
			}
			tokens, err := tokenizer.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			for conversation, w := range list {
				d := documentOf(t, cases[conversation], template, tokens)
				if !slices.Equal(d.Tokens, w.Tokens) || !slices.Equal(mask(d), w.Learned) {
					t.Errorf("%s:\n got %v\n     %v\nwant %v\n     %v", conversation, d.Tokens, mask(d), w.Tokens, w.Learned)
				}
			}
		})
	}
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", path, err))
	}
}

// documentOf is a line with a conversation, tokenized.
func documentOf(t *testing.T, line json.RawMessage, template *chat.Template, tokens data.Tokenizer) data.Document {
	t.Helper()
	var flat map[string]json.RawMessage
	if err := json.Unmarshal(line, &flat); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(flat) // on one line
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "line.jsonl")
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := data.OpenJSONL(path, data.JSONLOptions{Template: func() (*chat.Template, error) { return template, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	d, err := data.Tokenize(r, tokens, data.TokenizeOptions{}).Document(0)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// mask has a 1 for every token in the loss.
func mask(d data.Document) []int32 {
	m := make([]int32, len(d.Tokens))
	for _, r := range d.InLoss {
		for i := r.Start; i < r.End; i++ {
			m[i] = 1
		}
	}
	return m
}

// Tokens of prompts with completions are those of both as one text, and the loss begins where
// they depart from those of the prompt alone: what transformers gives, and TRL trains on.
func TestCompletionsAreThoseOfTransformers(t *testing.T) {
	var want map[string][]struct {
		Prompt, Completion string
		Tokens, Alone      []int32
	}
	readJSON(t, filepath.Join("testdata", "completions.json"), &want)
	for name, list := range want {
		tokens, err := tokenizer.Open(filepath.Join("..", "tokenizer", "testdata", "tiny", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range list {
			line, err := json.Marshal(map[string]string{"prompt": w.Prompt, "completion": w.Completion})
			if err != nil {
				t.Fatal(err)
			}
			d := documentOf(t, line, nil, tokens)
			start := 0
			for start < min(len(w.Tokens), len(w.Alone)) && w.Tokens[start] == w.Alone[start] {
				start++
			}
			got := 0
			if d.InLoss != nil {
				got = d.InLoss[0].Start
			}
			if !slices.Equal(d.Tokens, w.Tokens) || got != start {
				t.Errorf("%s, %q and %q:\n got %v from %d\nwant %v from %d", name, w.Prompt, w.Completion, d.Tokens, got, w.Tokens, start)
			}
		}
	}
	if len(want) < 5 {
		t.Errorf("only %d tokenizers", len(want))
	}
}

// Of an empty completion the end token is in the loss, also where the tokenizer adds it by itself, as TRL has it.
func TestEndOfAnEmptyCompletion(t *testing.T) {
	for name, end := range map[string]int32{"llama2": 2, "llama3": 505} { // the first adds it, the second does not
		tokens, err := tokenizer.Open(filepath.Join("..", "tokenizer", "testdata", "tiny", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "line.jsonl")
		if err := os.WriteFile(path, []byte(`{"prompt": "only a prompt", "completion": ""}`), 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := data.OpenJSONL(path, data.JSONLOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		d, err := data.Tokenize(r, tokens, data.TokenizeOptions{End: &end}).Document(0)
		if n := len(d.Tokens); err != nil || d.LossTokens() != 1 || d.Tokens[n-1] != end || d.Tokens[n-2] == end {
			t.Errorf("%s: %v, %v in the loss (%v)", name, d.Tokens, d.InLoss, err)
		}
	}
}
