package inference_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"spillway/generate"
	"spillway/inference"
)

// Settings of the model's makers that would change a text and are not known here are said; those without an effect, and those
// of sampling where nothing is drawn, are not.
func TestUnknownGenerationSettingsAreSaid(t *testing.T) {
	for config, want := range map[string][]string{
		`{"eos_token_id": 2, "max_length": 20, "num_beams": 1, "typical_p": 1.0, "no_repeat_ngram_size": 0, "suppress_tokens": null, "bad_words_ids": []}`: nil,
		`{"no_repeat_ngram_size": 3, "suppress_tokens": [9], "typical_p": 0.9}`:                                                                            {"no_repeat_ngram_size 3", "suppress_tokens [9]"},
		`{"do_sample": true, "typical_p": 0.9, "guidance_scale": 1.0, "min_length": 5}`:                                                                    {"min_length 5", "typical_p 0.9"},
	} {
		folder := t.TempDir()
		if err := os.CopyFS(folder, os.DirFS("../testdata/reference/llama")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "generation_config.json"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		var said []string
		m, err := inference.Open(inference.Settings{Model: folder, Notice: func(text string) { said = append(said, text) }})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(m.Defaults.Ignored, want) || (len(said) > 0) != (want != nil) {
			t.Errorf("%s: %q, said %q", config, m.Defaults.Ignored, said)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What the makers leave out is what transformers has there: the likeliest 50 tokens where tokens are drawn.
func TestMakersSamplingIsThatOfTransformers(t *testing.T) {
	for config, want := range map[string]generate.Sampler{
		`{"temperature": 0.6, "top_p": 0.9}`:                                 {},
		`{"do_sample": true, "temperature": 0.6, "top_p": 0.9}`:              {Temperature: 0.6, TopK: 50, TopP: 0.9},
		`{"do_sample": true, "top_k": 0}`:                                    {Temperature: 1},
		`{"do_sample": true, "top_k": 20, "top_p": 0.8, "temperature": 0.7}`: {Temperature: 0.7, TopK: 20, TopP: 0.8},
		`{"do_sample": true, "top_k": null, "repetition_penalty": 1.05}`:     {Temperature: 1, TopK: 50, RepetitionPenalty: 1.05},
	} {
		folder := t.TempDir()
		if err := os.CopyFS(folder, os.DirFS("../testdata/reference/llama")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "generation_config.json"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := inference.Open(inference.Settings{Model: folder, Notice: func(string) {}})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Defaults.Sampler; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", config, got, want)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
