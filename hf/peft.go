package hf

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"sync"

	"spillway/hub"
)

// AdapterConfig is the adapter_config.json of a LoRA adapter, as the PEFT library reads
// and writes it. Values without a field are written as they were read.
type AdapterConfig struct {
	BaseModel string // name or path of the model that the adapter is for
	Task      string // "CAUSAL_LM"

	Rank    int
	Alpha   float64
	Dropout float64
	Targets Modules // a pattern of "all-linear" means all linear layers but lm_head
	Exclude Modules // modules without an adapter though Targets names them
	// Layers are the numbers of the layers that get adapters; nil means all. LayersPattern
	// names the module lists whose numbers count, such as "layers".
	Layers        Layers
	LayersPattern Modules
	Init          AdapterInit

	RankStabilized bool   // use_rslora: the scale is alpha/√rank
	DoRA           bool   // use_dora
	Bias           string // which biases were trained: "none", "all" or "lora_only"
	LoRABias       bool   // the B matrices have a bias
	FanInFanOut    bool   // the base stores its weights as [in out]
	ModulesToSave  []string
	RankPattern    map[string]int // ranks of some modules
	AlphaPattern   map[string]float64

	values object
}

// peftLoRA is the config PEFT makes without arguments.
//
//go:embed peft/lora.json
var peftLoRA []byte

var peftDefaults = sync.OnceValues(func() (object, error) { return parseObject(peftLoRA) })

// NewAdapterConfig returns the config that PEFT makes without arguments.
func NewAdapterConfig() (*AdapterConfig, error) { return ParseAdapterConfig(peftLoRA) }

// ParseAdapterConfig reads the text of an adapter_config.json. Missing keys get PEFT's
// defaults.
func ParseAdapterConfig(raw []byte) (*AdapterConfig, error) {
	values, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	var kind string
	if err := parseInto(&kind, orNull(values["peft_type"])); err != nil || kind != "LORA" {
		return nil, fmt.Errorf("peft_type is %s; only adapters of type LORA are read", orNull(values["peft_type"]))
	}
	base, err := peftDefaults()
	if err != nil {
		return nil, err
	}
	c := &AdapterConfig{values: values}
	for _, from := range []object{base, values} {
		if err := c.read(from); err != nil {
			return nil, err
		}
	}
	return c, c.Check()
}

// Base names the model as a user does: org/name@revision where the adapter is for a revision on the hub.
func (c *AdapterConfig) Base() string {
	var revision string
	if err := json.Unmarshal(orNull(c.values[revisionKey]), &revision); err != nil || revision == "" {
		return c.BaseModel
	}
	return c.BaseModel + "@" + revision
}

// SetBase sets the model as Base names it. PEFT has revisions in a key of their own.
func (c *AdapterConfig) SetBase(name string) error {
	c.BaseModel = name
	m, ok := hub.ParseName(name)
	if _, err := os.Stat(name); !ok || err == nil || m.String() == m.ID {
		return nil
	}
	c.BaseModel = m.ID
	return c.values.set(revisionKey, m.Revision)
}

const revisionKey = "revision"

func orNull(text json.RawMessage) json.RawMessage {
	if text == nil {
		return json.RawMessage("null")
	}
	return text
}

// pointers maps keys to fields. encoding/json can read all of their types.
func (c *AdapterConfig) pointers() map[string]any {
	return map[string]any{
		"base_model_name_or_path": &c.BaseModel, "task_type": &c.Task, "r": &c.Rank, "lora_alpha": &c.Alpha, "lora_dropout": &c.Dropout,
		"use_rslora": &c.RankStabilized, "use_dora": &c.DoRA, "bias": &c.Bias, "lora_bias": &c.LoRABias, "fan_in_fan_out": &c.FanInFanOut,
		"modules_to_save": &c.ModulesToSave, "rank_pattern": &c.RankPattern, "alpha_pattern": &c.AlphaPattern,
		"target_modules": &c.Targets, "exclude_modules": &c.Exclude, "layers_to_transform": &c.Layers, "layers_pattern": &c.LayersPattern,
		"init_lora_weights": &c.Init,
	}
}

func (c *AdapterConfig) read(o object) error {
	for key, at := range c.pointers() {
		if !o.has(key) {
			continue
		}
		if err := json.Unmarshal(o[key], at); err != nil {
			return fmt.Errorf("%s is %.80s: %w", key, o[key], err)
		}
	}
	return nil
}

// Check refuses values that no adapter can have.
func (c *AdapterConfig) Check() error {
	switch {
	case c.Rank < 1 || c.Rank > maxWidth:
		return fmt.Errorf("r is %d, it must be from 1 to %d", c.Rank, maxWidth)
	case !(math.Abs(c.Alpha) <= math.MaxFloat32):
		return fmt.Errorf("lora_alpha is %v, it must be a number", c.Alpha)
	case !(c.Dropout >= 0 && c.Dropout < 1):
		return fmt.Errorf("lora_dropout is %v, it must be at least 0 and below 1", c.Dropout)
	case !slices.Contains([]string{"none", "all", "lora_only"}, c.Bias):
		return fmt.Errorf("bias is %q; known are none, all and lora_only", c.Bias)
	}
	for _, n := range c.Layers.Numbers {
		if n < 0 {
			return fmt.Errorf("layers_to_transform has %d; layers are counted from 0", n)
		}
	}
	for module, r := range c.RankPattern {
		if r < 1 || r > maxWidth {
			return fmt.Errorf("the rank of %s is %d, it must be from 1 to %d", module, r, maxWidth)
		}
	}
	return nil
}

// harmlessKeys are the keys without a field that say nothing of what an adapter computes:
// where it comes from, how it was initialized, and how a trainer shards it.
var harmlessKeys = []string{
	"peft_type", "peft_version", "auto_mapping", "base_model_class", "parent_library", revisionKey, "inference_mode", "runtime_config",
	"loftq_config", "eva_config", "corda_config", "lora_ga_config", "megatron_config", "megatron_core", "ensure_weight_tying",
}

// Variants lists the keys of the file that may make the adapter something other than LoRA
// or DoRA, so that callers can refuse it: all that are not known and switched on.
func (c *AdapterConfig) Variants() (keys []string) {
	read := c.pointers()
	defaults, _ := peftDefaults() // parsed before
	for key, text := range c.values {
		_, known := read[key]
		off := slices.Contains([]string{"null", "false", "{}", "[]", `""`}, string(text)) || string(text) == string(defaults[key])
		if !known && !off && !slices.Contains(harmlessKeys, key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Encode returns the text of adapter_config.json as PEFT writes it.
func (c *AdapterConfig) Encode() ([]byte, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	base, err := peftDefaults()
	if err != nil {
		return nil, err
	}
	out := maps.Clone(base)
	maps.Copy(out, c.values)
	for key, at := range c.pointers() {
		if out[key], err = adapterValue(at); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	out["lora_dropout"] = formatFloat(c.Dropout) // a float in Python, so 0 is written as 0.0
	if err := out.set("inference_mode", true); err != nil {
		return nil, err
	}
	text, err := out.encode()
	if err != nil {
		return nil, err
	}
	return text[:len(text)-1], nil // without the newline at the end
}

// adapterValue writes one value. An empty string is null, and a float without fraction
// has no point.
func adapterValue(at any) (json.RawMessage, error) {
	switch v := at.(type) {
	case *string:
		if *v == "" {
			return json.RawMessage("null"), nil
		}
	case *map[string]int:
		if *v == nil {
			return json.RawMessage("{}"), nil
		}
	case *map[string]float64:
		if *v == nil {
			return json.RawMessage("{}"), nil
		}
	}
	return json.Marshal(at)
}
