package inference

import (
	"encoding/json"
	"fmt"
	"slices"

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
}

// generationConfig is the part of generation_config.json that is used.
type generationConfig struct {
	EOS               tokenIDs `json:"eos_token_id"`
	DoSample          bool     `json:"do_sample"`
	Temperature       *float64 `json:"temperature"`
	TopK              *int     `json:"top_k"`
	TopP              *float64 `json:"top_p"`
	MinP              *float64 `json:"min_p"`
	RepetitionPenalty *float64 `json:"repetition_penalty"`
}

// tokenIDs is one id, or a list of them.
type tokenIDs []int32

func (t *tokenIDs) UnmarshalJSON(raw []byte) error {
	var one *int32
	if json.Unmarshal(raw, &one) == nil {
		if one != nil {
			*t = tokenIDs{*one}
		}
		return nil
	}
	return json.Unmarshal(raw, (*[]int32)(t))
}

// readDefaults reads generation_config.json, where there is one, and the end of sequence of
// config.json.
func readDefaults(m *spillway.Model) (d Defaults, err error) {
	c, err := m.Config()
	if err != nil {
		return d, err
	}
	for _, id := range c.EOS {
		d.StopTokens = append(d.StopTokens, int32(id))
	}
	if m.Folder.Generation == nil {
		return d, nil
	}
	var g generationConfig
	if err := json.Unmarshal(m.Folder.Generation, &g); err != nil {
		return d, fmt.Errorf("reading %s of %s: %w", hf.GenerationName, m.Folder.Dir, err)
	}
	for _, id := range g.EOS {
		if !slices.Contains(d.StopTokens, id) {
			d.StopTokens = append(d.StopTokens, id)
		}
	}
	set(&d, "repetition_penalty", &d.Sampler.RepetitionPenalty, g.RepetitionPenalty)
	if g.DoSample {
		d.Sampler.Temperature = 1
		set(&d, "temperature", &d.Sampler.Temperature, g.Temperature)
		set(&d, "top_k", &d.Sampler.TopK, g.TopK)
		set(&d, "top_p", &d.Sampler.TopP, g.TopP)
		set(&d, "min_p", &d.Sampler.MinP, g.MinP)
	}
	if err := d.Sampler.Check(); err != nil {
		return d, fmt.Errorf("%s of %s: %w", hf.GenerationName, m.Folder.Dir, err)
	}
	return d, nil
}

func set[V comparable](d *Defaults, name string, to *V, from *V) {
	if from != nil {
		*to, d.Given = *from, append(d.Given, name)
	}
}
