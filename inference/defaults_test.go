package inference_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
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
		`{"encoder_repetition_penalty": 1.2, "encoder_no_repeat_ngram_size": 2, "num_return_sequences": 2, "token_healing": true, "max_time": 3.5}`: {
			"encoder_no_repeat_ngram_size 2", "encoder_repetition_penalty 1.2", "max_time 3.5", "num_return_sequences 2", "token_healing true"},
		`{"encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0, "num_return_sequences": 1, "token_healing": false, "max_time": null}`: nil,
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

// Which settings count is what transformers does with such files: end tokens of generation_config.json alone where it names some, and
// config.json's settings where there is no such file. That the two name other tokens is said; runs stop at both.
func TestWhichConfigCounts(t *testing.T) {
	for name, c := range map[string]struct {
		config, generation string // further keys, and the file, "" for none
		stops              []int32
		sampler            generate.Sampler
		says               string
	}{
		"both":              {`"eos_token_id": 7`, `{"eos_token_id": [8, 7]}`, []int32{8, 7}, generate.Sampler{}, ""},
		"others":            {`"eos_token_id": 7`, `{"eos_token_id": 8}`, []int32{8}, generate.Sampler{}, "texts end with tokens [7], generation_config.json says [8]"},
		"none there":        {`"eos_token_id": 7`, `{"repetition_penalty": 2.0}`, []int32{7}, generate.Sampler{RepetitionPenalty: 2}, ""},
		"null there":        {`"eos_token_id": 7`, `{"eos_token_id": null}`, []int32{7}, generate.Sampler{}, ""},
		"no such token":     {`"eos_token_id": 50256`, `{"eos_token_id": 8}`, []int32{8}, generate.Sampler{}, ""},
		"settings before":   {`"eos_token_id": 7, "do_sample": true, "top_k": 9, "temperature": 0.5, "repetition_penalty": 2.0`, "", []int32{7}, generate.Sampler{Temperature: 0.5, TopK: 9, RepetitionPenalty: 2}, ""},
		"settings of both":  {`"eos_token_id": 7, "repetition_penalty": 2.0`, `{"eos_token_id": 7}`, []int32{7}, generate.Sampler{}, ""},
		"unknown ones":      {`"eos_token_id": 7, "no_repeat_ngram_size": 3`, "", []int32{7}, generate.Sampler{}, "config.json asks for no_repeat_ngram_size 3"},
		"unknown and alone": {`"eos_token_id": 7, "no_repeat_ngram_size": 3`, `{"eos_token_id": 7}`, []int32{7}, generate.Sampler{}, ""},
	} {
		folder := t.TempDir()
		if err := os.CopyFS(folder, os.DirFS("../testdata/reference/llama")); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, "config.json")
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var config map[string]json.RawMessage
		if err := json.Unmarshal(raw, &config); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte("{"+c.config+"}"), &config); err != nil {
			t.Fatal(err)
		}
		if raw, err = json.Marshal(config); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		generation := filepath.Join(folder, "generation_config.json")
		if err := os.RemoveAll(generation); err != nil {
			t.Fatal(err)
		}
		if c.generation != "" {
			if err := os.WriteFile(generation, []byte(c.generation), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		said := ""
		m, err := inference.Open(inference.Settings{Model: folder, Notice: func(text string) { said += text }})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !slices.Equal(m.Defaults.StopTokens, c.stops) || !reflect.DeepEqual(m.Defaults.Sampler, c.sampler) || !strings.Contains(said, c.says) || (said == "") != (c.says == "") {
			t.Errorf("%s: stops at %v, want %v; %+v, want %+v; said %q, want %q", name, m.Defaults.StopTokens, c.stops, m.Defaults.Sampler, c.sampler, said, c.says)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
