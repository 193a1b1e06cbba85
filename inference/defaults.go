package inference

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway"
	"spillway/generate"
	"spillway/hf"
)

// Defaults are how a model's makers want it to be used.
type Defaults struct {
	Sampler generate.Sampler
	// StopTokens end a text: the end of sequence, and of a turn.
	StopTokens []int32
	// Given names the keys of generation_config.json that Sampler comes from.
	Given []string
	// Ignored are settings of generation_config.json that would change texts and are not known here, as "key value".
	Ignored []string
	// File has the settings: generation_config.json, or config.json where there is none, as in transformers.
	File string
	// Ends are tokens that config.json names as the end of a text and generation_config.json does not, which decides.
	Ends []int32
}

// ignored are keys of generation_config.json that have no counterpart here, with the value that has no effect; null, an empty
// list and false have none either. Those behind the empty line are llama.cpp's, from GGUF files.
var ignored = map[string]string{
	"no_repeat_ngram_size": "0", "encoder_no_repeat_ngram_size": "0", "encoder_repetition_penalty": "1", "bad_words_ids": "", "suppress_tokens": "",
	"begin_suppress_tokens": "", "sequence_bias": "", "stop_strings": "", "forced_bos_token_id": "", "forced_eos_token_id": "", "min_length": "0",
	"min_new_tokens": "0", "exponential_decay_length_penalty": "", "num_beams": "1", "num_return_sequences": "1", "guidance_scale": "1", "penalty_alpha": "0",
	"watermarking_config": "", "token_healing": "", "dola_layers": "", "force_words_ids": "", "constraints": "", "max_time": "",

	"penalty_repeat": "1", "xtc_probability": "0", "mirostat": "0", "sequence": "",
}

// ignoredSampling are those that have an effect where tokens are drawn.
var ignoredSampling = map[string]string{"typical_p": "1", "epsilon_cutoff": "0", "eta_cutoff": "0", "top_h": "1"}

// ignore lists the settings of a config that would change texts elsewhere.
func (d *Defaults) ignore(raw []byte, keys map[string]string) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		value := strings.TrimSuffix(string(all[key]), ".0")
		if !slices.Contains([]string{"", "null", "false", "[]", "{}", keys[key]}, value) {
			d.Ignored = append(d.Ignored, key+" "+value)
		}
	}
	return nil
}

// usualTopK is what transformers keeps where a generation_config.json says that tokens are drawn and not of how
// many, as those of Llama do. Makers tried their settings with it.
const usualTopK = 50

// generationConfig is the part of generation_config.json that is used.
type generationConfig struct {
	EOS               hf.TokenIDs `json:"eos_token_id"`
	DoSample          bool        `json:"do_sample"`
	Temperature       *float64    `json:"temperature"`
	TopK              *int        `json:"top_k"`
	TopP              *float64    `json:"top_p"`
	MinP              *float64    `json:"min_p"`
	RepetitionPenalty *float64    `json:"repetition_penalty"`
}

// readDefaults reads generation_config.json. Where there is none config.json counts, which had such settings before, and
// where there is one its end tokens count alone, both as in transformers; one that names none leaves those of config.json.
func readDefaults(m *spillway.Model) (d Defaults, err error) {
	c, err := m.Config()
	if err != nil {
		return d, err
	}
	for _, id := range c.EOS {
		d.StopTokens = append(d.StopTokens, int32(id))
	}
	raw := m.Folder.Generation
	d.File = hf.GenerationName
	if raw == nil {
		d.File = hf.ConfigName
		if raw, err = c.Encode(); err != nil {
			return d, err
		}
	}
	var g generationConfig
	if err := json.Unmarshal(raw, &g); err != nil {
		return d, fmt.Errorf("reading %s of %s: %w", d.File, m.Folder.Dir, err)
	}
	if err := d.ignore(raw, ignored); err != nil {
		return d, err
	}
	if len(g.EOS) > 0 {
		d.Ends = slices.DeleteFunc(d.StopTokens, func(id int32) bool { return slices.Contains(g.EOS, id) })
		d.StopTokens = g.EOS
	}
	set(&d, "repetition_penalty", &d.Sampler.RepetitionPenalty, g.RepetitionPenalty)
	if g.DoSample {
		d.Sampler.Temperature, d.Sampler.TopK = 1, usualTopK
		set(&d, "temperature", &d.Sampler.Temperature, g.Temperature)
		set(&d, "top_k", &d.Sampler.TopK, g.TopK)
		set(&d, "top_p", &d.Sampler.TopP, g.TopP)
		set(&d, "min_p", &d.Sampler.MinP, g.MinP)
		if err := d.ignore(raw, ignoredSampling); err != nil {
			return d, err
		}
	}
	if err := d.Sampler.Check(); err != nil {
		return d, fmt.Errorf("%s of %s: %w", d.File, m.Folder.Dir, err)
	}
	return d, nil
}

func set[V comparable](d *Defaults, name string, to *V, from *V) {
	if from != nil {
		*to, d.Given = *from, append(d.Given, name)
	}
}
