package hf

import (
	"fmt"
	"math"
	"slices"
)

// Bounds far above any model, so that two sizes multiplied never overflow 63 bits.
const (
	maxVocab     = 1 << 24
	maxWidth     = 1 << 20
	maxInner     = 1 << 22
	maxLayers    = 4096
	maxHeads     = 1 << 16
	maxPositions = 1 << 30
)

// Check refuses values that no model can have. Sizes may be missing where the defaults of
// the model type are unknown.
func (c *Config) Check() error {
	least := 0 // of sizes
	if _, known := defaults(c.ModelType); known {
		least = 1
	}
	for _, s := range []struct {
		name             string
		value, low, high int
	}{
		{"vocab_size", c.VocabSize, least, maxVocab},
		{"hidden_size", c.HiddenSize, least, maxWidth},
		{"intermediate_size", c.IntermediateSize, least, maxInner},
		{"num_hidden_layers", c.Layers, least, maxLayers},
		{"num_attention_heads", c.Heads, least, maxHeads},
		{"num_key_value_heads", c.KVHeads, least, maxHeads},
		{"head_dim", c.HeadDim, least, maxWidth},
		{"max_position_embeddings", c.MaxPositions, least, maxPositions},
		{"sliding_window", c.SlidingWindow, 0, maxPositions},
		{"max_window_layers", c.MaxWindowLayers, 0, maxPositions},
	} {
		if s.value < s.low || s.value > s.high {
			return fmt.Errorf("%s is %d, it must be from %d to %d", s.name, s.value, s.low, s.high)
		}
	}
	for _, check := range []func() error{c.checkHeads, c.checkFloats, c.checkLists, c.Rope.check} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkHeads() error {
	if c.KVHeads > 0 && c.Heads%c.KVHeads != 0 {
		return fmt.Errorf("num_attention_heads is %d, which num_key_value_heads %d does not divide", c.Heads, c.KVHeads)
	}
	if c.derived("head_dim") && c.HiddenSize%c.Heads != 0 {
		return fmt.Errorf("hidden_size is %d, which num_attention_heads %d does not divide; give head_dim", c.HiddenSize, c.Heads)
	}
	if c.Heads > 0 && c.HeadDim > maxInner/c.Heads {
		return fmt.Errorf("%d heads of width %d are wider than %d", c.Heads, c.HeadDim, maxInner)
	}
	return nil
}

func (c *Config) checkFloats() error {
	for _, f := range []struct {
		name             string
		value, low, high float64
	}{
		{"the norm's epsilon", c.NormEps, 0, 1},
		{"initializer_range", c.InitializerRange, 0, 100},
		{"the attention dropout", c.AttentionDropout, 0, 1},
		{"the residual dropout", c.ResidualDropout, 0, 1},
		{"the embedding dropout", c.EmbeddingDropout, 0, 1},
	} {
		if !(f.value >= f.low && f.value <= f.high) {
			return fmt.Errorf("%s is %v, it must be from %v to %v", f.name, f.value, f.low, f.high)
		}
	}
	return nil
}

func (c *Config) checkLists() error {
	if c.LayerTypes != nil && len(c.LayerTypes) != c.Layers {
		return fmt.Errorf("layer_types has %d entries for %d layers", len(c.LayerTypes), c.Layers)
	}
	for _, ids := range [][]int{c.BOS, c.EOS} {
		for _, id := range ids {
			if id < 0 {
				return fmt.Errorf("the token id %d is negative", id)
			}
		}
	}
	return nil
}

func (r *Rope) check() error {
	if r.Type == "" {
		return nil
	}
	if !(r.Theta > 0 && r.Theta <= math.MaxFloat32) {
		return fmt.Errorf("rope_theta is %v, it must be above 0", r.Theta)
	}
	if !(r.PartialFactor > 0 && r.PartialFactor <= 1) {
		return fmt.Errorf("partial_rotary_factor is %v, it must be above 0 and at most 1", r.PartialFactor)
	}
	if r.OriginalMaxPositions < 0 || r.OriginalMaxPositions > maxPositions {
		return fmt.Errorf("original_max_position_embeddings is %d, it must be from 0 to %d", r.OriginalMaxPositions, maxPositions)
	}
	return r.checkFactors()
}

// needsFactor has the types of rope that need a factor.
var needsFactor = map[string]bool{"linear": true, "dynamic": true, "llama3": true, "yarn": true}

func (r *Rope) checkFactors() error {
	if needsFactor[r.Type] && r.Factor == 0 {
		return fmt.Errorf("rope of type %q has no factor", r.Type)
	}
	factors := []float64{r.Factor, r.LowFreqFactor, r.HighFreqFactor, r.AttentionFactor, r.BetaFast, r.BetaSlow}
	for _, v := range slices.Concat(factors, r.ShortFactor, r.LongFactor) {
		if !(v >= 0 && v <= math.MaxFloat32) {
			return fmt.Errorf("a factor of rope is %v, it must not be negative", v)
		}
	}
	if r.Type == "llama3" && !(r.LowFreqFactor > 0 && r.LowFreqFactor < r.HighFreqFactor) {
		return fmt.Errorf("low_freq_factor is %v and high_freq_factor %v, the first must be above 0 and below the second", r.LowFreqFactor, r.HighFreqFactor)
	}
	return nil
}
