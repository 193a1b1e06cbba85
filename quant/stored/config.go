package stored

import (
	"encoding/json"
	"fmt"

	"spillway/dtype"
	"spillway/hf"
	"spillway/quant"
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

const (
	bitsandbytes      = "bitsandbytes"
	compressedTensors = "compressed-tensors"
)

// compressed is what compressed-tensors wants to know of 8-bit floats by rows, beside
// activations that are left as they are.
type compressed struct {
	Groups map[string]compressedGroup `json:"config_groups"`
	Format string                     `json:"format"`
	Ignore []string                   `json:"ignore"`
	Method string                     `json:"quant_method"`
	Status string                     `json:"quantization_status"`
}

type compressedGroup struct {
	Targets []string          `json:"targets"`
	Weights compressedWeights `json:"weights"`
}

type compressedWeights struct {
	Bits      int    `json:"num_bits"`
	Type      string `json:"type"`
	Strategy  string `json:"strategy"`
	Symmetric bool   `json:"symmetric"`
	Dynamic   bool   `json:"dynamic"`
}

// Configure is a config that makes transformers load the model's products as weights of
// a type written here: NF4, FP4, RowI8 or RowF8. Double says that the scales of 4-bit
// types are coded again; output is the module that makes the logits and is left as it is,
// as are those of skip.
func Configure(c *hf.Config, kind dtype.Type, double bool, output string, skip ...string) (*hf.Config, error) {
	model := c.Type
	if model == dtype.Invalid {
		model = dtype.F32
	}
	q := config{Compute: model.Torch(), Storage: "uint8", Kind: "fp4", Threshold: "6.0", Method: bitsandbytes}
	left := append([]string{output}, skip...)
	if len(skip) > 0 {
		q.Skip = left
	}
	switch kind {
	case quant.NF4, quant.FP4:
		q.Loaded4, q.Load4, q.Kind, q.Double = true, true, kind.String(), double
	case quant.RowI8:
		q.Loaded8, q.Load8 = true, true
	case quant.RowF8:
		return c.With(configKey, compressed{
			Groups: map[string]compressedGroup{"group_0": {[]string{"Linear"}, compressedWeights{Bits: 8, Type: "float", Strategy: "channel", Symmetric: true}}},
			Format: "naive-quantized", Ignore: left, Method: compressedTensors, Status: "compressed",
		})
	default:
		return nil, fmt.Errorf("%v is not a type weights are stored in; use nf4, fp4, i8row or f8row", kind)
	}
	return c.With(configKey, q)
}

// Plain is a config without a word of quantization.
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
	switch q.Method {
	case bitsandbytes, compressedTensors, "":
		return nil
	}
	return fmt.Errorf("the weights are quantized by %q; only those of %s and %s are read: convert the original ones", q.Method, bitsandbytes, compressedTensors)
}
