package arch

import (
	"encoding/json"
	"fmt"
	"math"

	"spillway/nn"
)

// ropeConfig is how positions turn, in the words of rope_parameters (transformers
// 5) and of rope_scaling (before, with rope_theta beside it).
type ropeConfig struct {
	Theta        *float64 `json:"rope_theta"`
	Type         string   `json:"rope_type"`
	OldType      string   `json:"type"`
	Factor       float64  `json:"factor"`
	LowFreq      float64  `json:"low_freq_factor"`
	HighFreq     float64  `json:"high_freq_factor"`
	Original     float64  `json:"original_max_position_embeddings"`
	Attention    *float64 `json:"attention_factor"`
	BetaFast     *float64 `json:"beta_fast"`
	BetaSlow     *float64 `json:"beta_slow"`
	MScale       float64  `json:"mscale"`
	MScaleAllDim float64  `json:"mscale_all_dim"`
	Truncate     *bool    `json:"truncate"`
	Partial      *float64 `json:"partial_rotary_factor"`
}

// parseRope reads whichever of the two forms is there.
func parseRope(parameters, scaling json.RawMessage, theta *float64) (ropeConfig, error) {
	var c ropeConfig
	raw, name := parameters, "rope_parameters"
	if len(raw) == 0 || string(raw) == "null" {
		raw, name = scaling, "rope_scaling"
	}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &c); err != nil {
			return c, fmt.Errorf("%s: %w", name, err)
		}
	}
	if c.Theta == nil {
		c.Theta = theta
	}
	if c.Theta == nil {
		c.Theta = pointer(10000.0)
	}
	if c.Type == "" {
		c.Type = c.OldType
	}
	return c, nil
}

// rope computes the frequencies of heads of dim elements. Context is the
// model's max_position_embeddings.
func (c ropeConfig) rope(dim, context int64) (*nn.Rope, error) {
	if dim%2 != 0 {
		return nil, fmt.Errorf("heads of %d elements cannot be rotated in pairs", dim)
	}
	if err := positive("rope_theta", *c.Theta); err != nil {
		return nil, err
	}
	if c.Partial != nil && *c.Partial != 1 {
		return nil, fmt.Errorf("partial_rotary_factor %v is not supported, only 1", *c.Partial)
	}
	r, err := c.scaled(plainRope(*c.Theta, dim), context)
	if err != nil {
		return nil, err
	}
	for _, f := range r.Freq {
		if err := positive("a rope frequency", float64(f)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// scaled stretches the plain frequencies as the type says.
func (c ropeConfig) scaled(freq []float32, context int64) (*nn.Rope, error) {
	switch c.Type {
	case "", "default":
		return &nn.Rope{Freq: freq}, nil
	case "linear":
		return c.linear(freq)
	case "llama3":
		return c.llama3(freq)
	case "yarn":
		return c.yarn(freq, float64(context))
	}
	return nil, fmt.Errorf("rope type %q is not supported; supported are default, linear, llama3 and yarn", c.Type)
}

// plainRope is theta^(-2i/dim) in the steps of float32 that transformers takes.
func plainRope(theta float64, dim int64) []float32 {
	freq := make([]float32, dim/2)
	for i := range freq {
		exponent := float32(2*i) / float32(dim)
		freq[i] = 1 / float32(math.Pow(theta, float64(exponent)))
	}
	return freq
}

// linear divides all frequencies: the positions of a longer context move together.
func (c ropeConfig) linear(freq []float32) (*nn.Rope, error) {
	if err := positive("rope factor", c.Factor); err != nil {
		return nil, err
	}
	for i := range freq {
		freq[i] /= float32(c.Factor)
	}
	return &nn.Rope{Freq: freq}, nil
}

// llama3 divides slow frequencies by the factor, keeps fast ones, and blends between.
func (c ropeConfig) llama3(freq []float32) (*nn.Rope, error) {
	err := firstError(positive("rope factor", c.Factor), positive("low_freq_factor", c.LowFreq),
		positive("high_freq_factor", c.HighFreq), positive("original_max_position_embeddings", c.Original))
	if err != nil {
		return nil, err
	}
	if c.HighFreq <= c.LowFreq {
		return nil, fmt.Errorf("high_freq_factor %v must be above low_freq_factor %v", c.HighFreq, c.LowFreq)
	}
	for i, f := range freq {
		turns := c.Original * float64(f) / (2 * math.Pi) // in the original context
		keep := (turns - c.LowFreq) / (c.HighFreq - c.LowFreq)
		keep = min(max(keep, 0), 1)
		freq[i] = float32((1-keep)*float64(f)/c.Factor + keep*float64(f))
	}
	return &nn.Rope{Freq: freq}, nil
}

// yarn divides slow frequencies by the factor and keeps fast ones, with a ramp
// between two numbers of turns, and scales the attention.
func (c ropeConfig) yarn(freq []float32, context float64) (*nn.Rope, error) {
	original := c.Original
	if original == 0 {
		original = context
	}
	fast, slow := 32.0, 1.0
	if c.BetaFast != nil {
		fast = *c.BetaFast
	}
	if c.BetaSlow != nil {
		slow = *c.BetaSlow
	}
	err := firstError(positive("rope factor", c.Factor), positive("beta_fast", fast), positive("beta_slow", slow),
		positive("original_max_position_embeddings", original))
	if err != nil {
		return nil, err
	}
	if *c.Theta == 1 {
		return nil, fmt.Errorf("rope_theta is 1: all frequencies are equal")
	}
	low, high := c.ramp(original, fast, slow, float64(2*len(freq)))
	for i, f := range freq {
		divide := min(max((float64(i)-low)/(high-low), 0), 1)
		freq[i] = float32(float64(f)/c.Factor*divide + float64(f)*(1-divide))
	}
	scale, err := c.attention()
	return &nn.Rope{Freq: freq, Scale: scale}, err
}

// ramp is the first and last frequency of the blend: those that make fast and slow
// turns in the original context.
func (c ropeConfig) ramp(original, fast, slow, dim float64) (low, high float64) {
	at := func(turns float64) float64 {
		return dim * math.Log(original/(turns*2*math.Pi)) / (2 * math.Log(*c.Theta))
	}
	low, high = at(fast), at(slow)
	if c.Truncate == nil || *c.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, dim-1)
	if low == high {
		high += 0.001
	}
	return low, high
}

// attention is the factor of scores that yarn recommends, given or derived.
func (c ropeConfig) attention() (float64, error) {
	if c.Attention != nil {
		return *c.Attention, positive("attention_factor", *c.Attention)
	}
	scale := func(m float64) float64 {
		if c.Factor <= 1 {
			return 1
		}
		return 0.1*m*math.Log(c.Factor) + 1
	}
	factor := scale(1)
	if c.MScale != 0 && c.MScaleAllDim != 0 {
		factor = scale(c.MScale) / scale(c.MScaleAllDim)
	}
	return factor, positive("the attention factor of mscale", factor)
}

func pointer[T any](v T) *T { return &v }
