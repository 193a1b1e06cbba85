package stored

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"spillway/dtype"
	"spillway/hf"
)

// configKey is where config.json says how a model is quantized.
const configKey = "quantization_config"

// Configure is a config that makes transformers load the model's linear layers with
// weights as the options say.
func Configure(c *hf.Config, o Options) (*hf.Config, error) {
	l, err := layoutOf(o.Type)
	if err != nil {
		return nil, err
	}
	if o.Model == dtype.Invalid {
		o.Model = dtype.F32
	}
	return c.With(configKey, l.config(o))
}

// Unquantized is a config without a word of quantization.
func Unquantized(c *hf.Config) *hf.Config { return c.Without(configKey) }

// Quantized says whether a config is of quantized weights.
func Quantized(c *hf.Config) bool {
	_, ok := c.Value(configKey)
	return ok
}

// Check refuses a config that says its weights are quantized in a way that is not read.
func Check(c *hf.Config) error {
	text, ok := c.Value(configKey)
	if !ok {
		return nil
	}
	var q struct {
		Method string `json:"quant_method"`
	}
	if err := json.Unmarshal(text, &q); err != nil {
		return fmt.Errorf("%s: %w", configKey, err)
	}
	var known []string
	for _, l := range layouts {
		if q.Method == l.library || q.Method == "" {
			return nil
		}
		known = append(known, l.library)
	}
	slices.Sort(known)
	return fmt.Errorf("the weights are quantized by %q; only those of %s are read: convert the original ones", q.Method, strings.Join(slices.Compact(known), " and "))
}

// CheckActivations refuses a config that says activations are quantized too while the
// model runs, which is not done here: the numbers would be others.
func CheckActivations(c *hf.Config) error {
	text, ok := c.Value(configKey)
	if !ok {
		return nil
	}
	type group struct {
		Input  json.RawMessage `json:"input_activations"`
		Output json.RawMessage `json:"output_activations"`
	}
	var q struct {
		Groups map[string]group `json:"config_groups"`
		Cache  json.RawMessage  `json:"kv_cache_scheme"`
	}
	if err := json.Unmarshal(text, &q); err != nil {
		return fmt.Errorf("%s: %w", configKey, err)
	}
	given := func(scheme json.RawMessage) bool { return len(scheme) > 0 && string(scheme) != "null" }
	refused := ""
	if given(q.Cache) {
		refused = "kv_cache_scheme"
	}
	for name, g := range q.Groups {
		switch {
		case given(g.Input):
			refused = name + ".input_activations"
		case given(g.Output):
			refused = name + ".output_activations"
		}
	}
	if refused == "" {
		return nil
	}
	return fmt.Errorf("%s has %s: such a model quantizes more than weights while it runs, which is not done here, so its numbers would be others; "+
		"export it with --dtype bf16 and use that", configKey, refused)
}

// bitsandbytes is the library of that name, as config.json calls it.
const bitsandbytes = "bitsandbytes"

// bitsandbytesConfig is what transformers writes for that library, all of it.
type bitsandbytesConfig struct {
	Loaded4   bool        `json:"_load_in_4bit"`
	Loaded8   bool        `json:"_load_in_8bit"`
	Compute   string      `json:"bnb_4bit_compute_dtype"`
	Storage   string      `json:"bnb_4bit_quant_storage"`
	Kind      string      `json:"bnb_4bit_quant_type"`
	Double    bool        `json:"bnb_4bit_use_double_quant"`
	Offload   bool        `json:"llm_int8_enable_fp32_cpu_offload"`
	Half      bool        `json:"llm_int8_has_fp16_weight"`
	Skip      []string    `json:"llm_int8_skip_modules"` // modules left as they are; null for lm_head alone
	Threshold json.Number `json:"llm_int8_threshold"`    // with a point: transformers requires a float
	Load4     bool        `json:"load_in_4bit"`
	Load8     bool        `json:"load_in_8bit"`
	Method    string      `json:"quant_method"`
}

// newBitsandbytes is the config with what its 4-bit and 8-bit forms share.
func newBitsandbytes(o Options) bitsandbytesConfig {
	c := bitsandbytesConfig{Compute: o.Model.Torch(), Storage: "uint8", Kind: "fp4", Threshold: "6.0", Method: bitsandbytes}
	if len(o.Skip) > 0 {
		c.Skip = append([]string{o.Head}, o.Skip...)
	}
	return c
}
