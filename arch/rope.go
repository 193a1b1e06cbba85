package arch

import (
	"encoding/json"
	"fmt"
	"math"

	"spillway/hf"
	"spillway/nn"
)

// maxHeadDim bounds the elements of a head that rotates: each pair has a frequency.
const maxHeadDim = 1 << 14

// rope computes the rotary frequencies of a config's attention heads.
func rope(c *hf.Config) (*nn.Rope, error) {
	switch {
	case c.HeadDim%2 != 0 || c.HeadDim > maxHeadDim:
		return nil, fmt.Errorf("heads of %d elements cannot be rotated; want an even number of at most %d", c.HeadDim, maxHeadDim)
	case c.Rope.PartialFactor != 1:
		return nil, fmt.Errorf("partial_rotary_factor %v is not supported, only 1", c.Rope.PartialFactor)
	}
	r, err := scaledRope(c)
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

// scaledRope computes the frequencies as the config's type of rotation scales them.
func scaledRope(c *hf.Config) (*nn.Rope, error) {
	freq := nn.NewRope(c.Rope.Theta, int64(c.HeadDim)).Freq
	switch c.Rope.Type {
	case "default":
	case "linear":
		linearRope(freq, c.Rope.Factor)
	case "llama3":
		llama3Rope(freq, c.Rope, float64(originalContext(c)))
	case "yarn":
		return yarnRope(freq, c)
	default:
		return nil, fmt.Errorf("rope type %q is not supported; supported are default, linear, llama3 and yarn", c.Rope.Type)
	}
	return &nn.Rope{Freq: freq}, nil
}

// originalContext is how many positions the frequencies were first trained with.
func originalContext(c *hf.Config) int {
	if c.Rope.OriginalMaxPositions > 0 {
		return c.Rope.OriginalMaxPositions
	}
	return c.MaxPositions
}

// linearRope divides all frequencies, so that a longer context turns as far as the
// original one did.
func linearRope(freq []float32, factor float64) {
	for i := range freq {
		freq[i] /= float32(factor)
	}
}

// llama3Rope divides slow frequencies by the factor, keeps fast ones, and blends between.
func llama3Rope(freq []float32, r hf.Rope, original float64) {
	for i, f := range freq {
		turns := original * float64(f) / (2 * math.Pi) // in the original context
		keep := (turns - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
		freq[i] = blend(f, r.Factor, min(max(keep, 0), 1))
	}
}

// blend keeps a share of a frequency as it is and divides the rest.
func blend(f float32, factor, keep float64) float32 {
	return float32((1-keep)*float64(f)/factor + keep*float64(f))
}

// yarnExtra has the keys of yarn that hf.Rope has no fields for.
type yarnExtra struct {
	MScale       float64 `json:"mscale"`
	MScaleAllDim float64 `json:"mscale_all_dim"`
	Truncate     *bool   `json:"truncate"`
}

// yarnRope divides slow frequencies by the factor and keeps fast ones, with a ramp
// between two numbers of turns, and scales the attention.
func yarnRope(freq []float32, c *hf.Config) (*nn.Rope, error) {
	extra, err := yarnConfig(c)
	if err != nil {
		return nil, err
	}
	low, high := yarnRamp(c, extra)
	if math.IsNaN(low) || math.IsNaN(high) {
		return nil, fmt.Errorf("rope_theta %v gives yarn no ramp", c.Rope.Theta)
	}
	for i, f := range freq {
		divide := (float64(i) - low) / (high - low)
		freq[i] = blend(f, c.Rope.Factor, 1-min(max(divide, 0), 1))
	}
	scale := yarnScale(c.Rope, extra)
	return &nn.Rope{Freq: freq, Scale: scale}, positive("the attention factor of yarn", scale)
}

func yarnConfig(c *hf.Config) (extra yarnExtra, err error) {
	for _, key := range []string{"rope_parameters", "rope_scaling"} { // the second wins, as in hf
		if raw, ok := c.Value(key); ok {
			if err := json.Unmarshal(raw, &extra); err != nil {
				return extra, fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	return extra, nil
}

// yarnRamp is the first and last frequency of the blend: those that make beta_fast
// and beta_slow turns in the original context.
func yarnRamp(c *hf.Config, extra yarnExtra) (low, high float64) {
	dim := float64(c.HeadDim)
	at := func(turns float64) float64 {
		return dim * math.Log(float64(originalContext(c))/(turns*2*math.Pi)) / (2 * math.Log(c.Rope.Theta))
	}
	low, high = at(orElse(c.Rope.BetaFast, 32)), at(orElse(c.Rope.BetaSlow, 1))
	if extra.Truncate == nil || *extra.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, dim-1)
	if low == high {
		high += 0.001
	}
	return low, high
}

// yarnScale is the attention factor, given or derived.
func yarnScale(r hf.Rope, extra yarnExtra) float64 {
	scale := func(m float64) float64 {
		if r.Factor <= 1 {
			return 1
		}
		return 0.1*m*math.Log(r.Factor) + 1
	}
	switch {
	case r.AttentionFactor != 0:
		return r.AttentionFactor
	case extra.MScale != 0 && extra.MScaleAllDim != 0:
		return scale(extra.MScale) / scale(extra.MScaleAllDim)
	}
	return scale(1)
}

// orElse is x, or the default where x is not given.
func orElse(x, missing float64) float64 {
	if x == 0 {
		return missing
	}
	return x
}
