package inference_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/finetune"
	"spillway/inference"
	"spillway/recipe"
)

// letters is a tokenizer of the letters and two special tokens.
func letters() string {
	var vocab, added []string
	for i := range 26 {
		vocab = append(vocab, fmt.Sprintf(`"%c":%d`, 'a'+i, i))
	}
	for i, word := range []string{"<|end|>", "<|turn|>"} {
		vocab = append(vocab, fmt.Sprintf(`"%s":%d`, word, 26+i))
		added = append(added, fmt.Sprintf(`{"id":%d,"content":"%s","special":true}`, 26+i, word))
	}
	return `{"model":{"type":"BPE","vocab":{` + strings.Join(vocab, ",") + `},"merges":[]},"added_tokens":[` + strings.Join(added, ",") + `]}`
}

// What training puts behind a text is what generating stops at: the end token of config.json where the model knows it, else the
// tokenizer's, as trainers of transformers take it. GPT2Config, for one, says 50256 whatever the vocabulary.
func TestTextsEndWithATokenOfTheModel(t *testing.T) {
	for eos, want := range map[string]int32{`null`: 27, `50256`: 27, `[50256, 26]`: 26, `26`: 26} {
		folder := t.TempDir()
		if err := os.CopyFS(folder, os.DirFS("../testdata/reference/gpt2")); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(folder, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		var config map[string]json.RawMessage
		if err := json.Unmarshal(raw, &config); err != nil {
			t.Fatal(err)
		}
		config["eos_token_id"] = json.RawMessage(eos)
		raw, err = json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		files := map[string]string{"config.json": string(raw), "tokenizer.json": letters(), "tokenizer_config.json": `{"eos_token": {"content": "<|turn|>"}}`, "texts.jsonl": `{"text":"abc"}`}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(files[name]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		m, err := inference.Open(inference.Settings{Model: folder})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(m.Defaults.StopTokens, want) {
			t.Errorf("an end token of %s: texts stop at %v, want %d", eos, m.Defaults.StopTokens, want)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		sees(t, folder, map[int32]string{26: "abc<|end|>", 27: "abc<|turn|>"}[want], eos)
	}
}

// sees tests what a run would train on.
func sees(t *testing.T, folder, want, eos string) {
	t.Helper()
	m, err := spillway.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r := recipe.New()
	r.Data.Files = []string{filepath.Join(folder, "texts.jsonl")}
	r.Training.Epochs = 1
	c, err := finetune.OpenCorpus(r, m, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(c.Sample) != 1 || c.Sample[0].Text != want || c.Summary.Tokens != 4 {
		t.Errorf("an end token of %s: trained on %v of %d tokens, want %s", eos, c.Sample, c.Summary.Tokens, want)
	}
}
