package hf

import (
	"encoding/json"
	"fmt"
)

// Rope describes the rotary position embedding. The zero value is a model without one.
// Numbers that a type does not use are zero.
type Rope struct {
	Type          string // "default", "linear", "dynamic", "llama3", "yarn", "longrope", or another one of the file
	Theta         float64
	PartialFactor float64 // share of a head that is rotated; 1 if the file does not say

	Factor               float64 // how many times longer texts may be than in pretraining
	OriginalMaxPositions int     // of pretraining; 0 means the config's MaxPositions
	LowFreqFactor        float64 // llama3
	HighFreqFactor       float64 // llama3
	AttentionFactor      float64 // yarn and longrope
	BetaFast             float64 // yarn
	BetaSlow             float64 // yarn
	ShortFactor          []float64
	LongFactor           []float64
}

// PerLayer is the Type of a model whose layers have different ropes, which one Rope
// cannot describe.
const PerLayer = "per layer"

// defaultTheta is the default of transformers.
const defaultTheta = 10000

// pointers maps keys of config.json to the fields of a Rope.
func (r *Rope) pointers() map[string]any {
	return map[string]any{
		"rope_theta": &r.Theta, "partial_rotary_factor": &r.PartialFactor, "factor": &r.Factor,
		"original_max_position_embeddings": &r.OriginalMaxPositions,
		"low_freq_factor":                  &r.LowFreqFactor, "high_freq_factor": &r.HighFreqFactor,
		"attention_factor": &r.AttentionFactor, "beta_fast": &r.BetaFast, "beta_slow": &r.BetaSlow,
		"short_factor": &r.ShortFactor, "long_factor": &r.LongFactor,
	}
}

// read reads the rope from a config's values. Older files have rope_theta, and
// rope_scaling for longer contexts; newer ones have rope_parameters with everything. If
// both are given, rope_scaling wins, as in transformers.
func (r *Rope) read(o object) error {
	given, err := ropeObject(o)
	if err != nil {
		return err
	}
	if given == nil && !o.has("rope_theta") {
		return nil
	}
	*r = Rope{Type: "default", Theta: defaultTheta, PartialFactor: 1}
	for _, key := range []string{"rope_theta", "partial_rotary_factor"} {
		if err := o.readRope(key, r.pointers()[key]); err != nil {
			return err
		}
	}
	if isPerLayer(given) {
		r.Type = PerLayer
		return nil
	}
	for key, p := range r.pointers() {
		if err := given.readRope(key, p); err != nil {
			return err
		}
	}
	if given.has("attention_factor") && r.AttentionFactor == 0 { // which is not the same as none
		return fmt.Errorf("attention_factor of the rope is %s, it must be above 0; leave it out for the usual one", given["attention_factor"])
	}
	for _, key := range []string{"type", "rope_type"} { // the newer name wins
		if err := given.readRope(key, &r.Type); err != nil {
			return err
		}
	}
	return o.readRope("original_max_position_embeddings", &r.OriginalMaxPositions)
}

func ropeObject(o object) (object, error) {
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		if !o.has(key) {
			continue
		}
		given, err := parseObject(o[key])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		if len(given) > 0 {
			return given, nil
		}
	}
	return nil, nil
}

// isPerLayer reports whether an object holds one rope per type of layer.
func isPerLayer(given object) bool {
	for _, text := range given {
		if text[0] == '{' {
			return true
		}
	}
	return false
}

// readRope reads one value of a rope. A missing one stays as it is.
func (o object) readRope(key string, p any) (err error) {
	if !o.has(key) {
		return nil
	}
	if list, ok := p.(*[]float64); ok {
		err = json.Unmarshal(o[key], list)
	} else {
		err = parseInto(p, o[key])
	}
	if err != nil {
		return fmt.Errorf("%s of the rope is %.80s: %w", key, o[key], err)
	}
	return nil
}

// write puts the rope into a config's values, in the newer form.
func (r *Rope) write(o object) error {
	for _, old := range []string{"rope_theta", "rope_scaling", "partial_rotary_factor", "original_max_position_embeddings"} {
		delete(o, old)
	}
	if r.Type == PerLayer {
		return fmt.Errorf("a rope per layer can be read, but not written")
	}
	out := object{}
	for key, p := range r.pointers() {
		if err := out.setRope(key, p); err != nil {
			return err
		}
	}
	var err error
	if out["rope_type"], err = json.Marshal(r.Type); err != nil {
		return err
	}
	o["rope_parameters"], err = json.Marshal(out)
	return err
}

// setRope writes one value of a rope, unless it is the default.
func (o object) setRope(key string, p any) error {
	switch p := p.(type) {
	case *float64:
		if *p != 0 && !(key == "partial_rotary_factor" && *p == 1) {
			o[key] = formatFloat(*p)
		}
	case *int:
		if *p != 0 {
			return o.set(key, *p)
		}
	case *[]float64:
		texts := make([]json.RawMessage, len(*p))
		for i, v := range *p {
			texts[i] = formatFloat(v)
		}
		if len(texts) > 0 {
			return o.set(key, texts)
		}
	}
	return nil
}
