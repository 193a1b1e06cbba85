package stored

import (
	"encoding/json"
	"fmt"

	"spillway/dtype"
	"spillway/hf"
)

// configKey is where config.json says how a model is quantized.
const configKey = "quantization_config"

// config is what transformers writes there for bitsandbytes, all of it.
type config struct {
	Loaded4   bool        `json:"_load_in_4bit"`
	Loaded8   bool        `json:"_load_in_8bit"`
	Compute   string      `json:"bnb_4bit_compute_dtype"`
	Storage   string      `json:"bnb_4bit_quant_storage"`
	Kind      string      `json:"bnb_4bit_quant_type"`
	Double    bool        `json:"bnb_4bit_use_double_quant"`
	Offload   bool        `json:"llm_int8_enable_fp32_cpu_offload"`
	Half      bool        `json:"llm_int8_has_fp16_weight"`
	Skip      []string    `json:"llm_int8_skip_modules"` // modules left as they are; null for the output one
	Threshold json.Number `json:"llm_int8_threshold"`    // with a point: transformers insists on a float
	Load4     bool        `json:"load_in_4bit"`
	Load8     bool        `json:"load_in_8bit"`
	Method    string      `json:"quant_method"`
}

const method = "bitsandbytes"

// Configure is a config that makes transformers load the model's products as weights of
// a type written here: NF4, FP4 or I8. skip are modules left as they are, besides the
// output one.
func Configure(c *hf.Config, kind dtype.Type, skip []string) (*hf.Config, error) {
	model := c.Type
	if model == dtype.Invalid {
		model = dtype.F32
	}
	q := config{Compute: model.Torch(), Storage: "uint8", Kind: "fp4", Skip: skip, Threshold: "6.0", Method: method}
	switch kind {
	case dtype.NF4, dtype.FP4:
		q.Loaded4, q.Load4, q.Kind, q.Double = true, true, kind.String(), true
	case dtype.I8:
		q.Loaded8, q.Load8 = true, true
	default:
		return nil, fmt.Errorf("weights of %v are not bitsandbytes'; use nf4, fp4 or i8", kind)
	}
	return c.With(configKey, q)
}

// Check refuses a config that says its weights are quantized in a way that is not read.
func Check(c *hf.Config) error {
	text, ok := c.Value(configKey)
	if !ok {
		return nil
	}
	var q config
	if err := json.Unmarshal(text, &q); err != nil {
		return fmt.Errorf("%s: %w", configKey, err)
	}
	if q.Method != method && q.Method != "" {
		return fmt.Errorf("the weights are quantized by %q; only bitsandbytes' are read: convert the original ones", q.Method)
	}
	return nil
}
