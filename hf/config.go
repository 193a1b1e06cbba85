package hf

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"spillway/dtype"
)

// Config is what a config.json says of a model. A value that the file does not have is the
// default of transformers for the model type. An unknown type has no defaults, so its values
// are zero; package arch refuses it.
type Config struct {
	ModelType     string // "llama"
	Architectures []string

	VocabSize        int
	HiddenSize       int // width of the residual stream
	IntermediateSize int // width inside the feed-forward part
	Layers           int
	Heads            int // query heads
	KVHeads          int // key and value heads; divides Heads
	HeadDim          int // width of one head
	MaxPositions     int

	Activation       string // "silu"
	NormEps          float64
	InitializerRange float64 // standard deviation of random initial weights
	Tied             bool    // lm_head shares the weights of the embedding
	AttentionBias    bool
	MLPBias          bool
	Rope             Rope

	SlidingWindow    int      // tokens, 0 for none; the method Window gives that of a layer
	UseSlidingWindow bool     // true also if the model type has no such switch
	MaxWindowLayers  int      // layers below this one attend to everything
	LayerTypes       []string // per layer, nil if the file does not say

	AttentionDropout float64
	ResidualDropout  float64
	EmbeddingDropout float64

	Type     dtype.Type // of the weights; Invalid if the file does not say
	BOS, EOS []int      // token ids that begin and end a text; none, one or several

	raw    []byte // the file, nil for a config with other values
	values object // the file's values
}

//go:embed defaults/*.json
var defaultFiles embed.FS

// allDefaults are the embedded files by model type. A test checks that all of them
// parse.
var allDefaults = sync.OnceValues(func() (map[string]object, error) {
	entries, err := defaultFiles.ReadDir("defaults")
	if err != nil {
		return nil, err
	}
	all := map[string]object{}
	for _, e := range entries {
		raw, err := defaultFiles.ReadFile("defaults/" + e.Name())
		if err != nil {
			return nil, err
		}
		if all[strings.TrimSuffix(e.Name(), ".json")], err = parseObject(raw); err != nil {
			return nil, fmt.Errorf("the defaults in %s: %w", e.Name(), err)
		}
	}
	return all, nil
})

// defaults returns the values that transformers assumes for a model type. They must not
// be changed. ok reports whether the type is known.
func defaults(modelType string) (values object, ok bool) {
	all, _ := allDefaults()
	values, ok = all[modelType]
	return values, ok
}

// ParseConfig reads and checks the text of a config.json.
func ParseConfig(raw []byte) (*Config, error) {
	values, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	c, err := resolve(values)
	if err != nil {
		return nil, err
	}
	c.raw = bytes.Clone(raw)
	return c, c.Check()
}

// resolve makes a config of a file's values and, for keys that it lacks, the defaults
// of its model type.
func resolve(values object) (*Config, error) {
	c := &Config{UseSlidingWindow: true, values: values}
	if values.has("model_type") {
		if err := parseInto(&c.ModelType, values["model_type"]); err != nil {
			return nil, fmt.Errorf("model_type: %w", err)
		}
	}
	if base, ok := defaults(c.ModelType); ok {
		if err := c.read(base); err != nil {
			return nil, err
		}
	}
	if err := c.read(values); err != nil {
		return nil, err
	}
	c.derive()
	return c, nil
}

// derive fills in values that follow from others.
func (c *Config) derive() {
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.HeadDim == 0 && c.Heads > 0 {
		c.HeadDim = c.HiddenSize / c.Heads
	}
	if c.IntermediateSize == 0 && c.ModelType == "gpt2" {
		c.IntermediateSize = 4 * c.HiddenSize
	}
}

// derived reports whether a field has the value that derive would give it.
func (c *Config) derived(key string) bool {
	switch key {
	case "num_key_value_heads":
		return c.KVHeads == c.Heads
	case "head_dim":
		return c.Heads > 0 && c.HeadDim == c.HiddenSize/c.Heads
	case "intermediate_size":
		return c.ModelType == "gpt2" && c.IntermediateSize == 4*c.HiddenSize
	}
	return false
}

// slidingAttention is the type of layers that attend to a sliding window.
const slidingAttention = "sliding_attention"

// Window returns how many tokens, its own included, a position of the layer attends to;
// 0 means all tokens before it.
func (c *Config) Window(layer int) int {
	if !c.UseSlidingWindow {
		return 0
	}
	if c.LayerTypes != nil && layer < len(c.LayerTypes) {
		if c.LayerTypes[layer] != slidingAttention {
			return 0
		}
		return c.SlidingWindow
	}
	if layer < c.MaxWindowLayers {
		return 0
	}
	return c.SlidingWindow
}

// Keys lists the keys of the file that have a value, sorted.
func (c *Config) Keys() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.values)), func(key string) bool { return !c.values.has(key) })
}

// Value returns the file's own text for a key that Config has no field for. ok is false
// if the key is missing or null.
func (c *Config) Value(key string) (text json.RawMessage, ok bool) {
	return c.values[key], c.values.has(key)
}

// Encode returns the text of config.json. If no field has changed, these are the bytes
// that were read; else the values with the changes, written as transformers writes
// them.
func (c *Config) Encode() ([]byte, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	before, err := resolve(c.values)
	if err != nil {
		return nil, err
	}
	values, changed, err := c.merge(before)
	if err != nil {
		return nil, err
	}
	if !changed && c.raw != nil {
		return slices.Clone(c.raw), nil
	}
	return values.encode()
}
