package hf

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
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
	Heads            int // of queries
	KVHeads          int // of keys and values; divides Heads
	HeadDim          int // width of one head
	MaxPositions     int

	Activation       string // "silu"
	NormEps          float64
	InitializerRange float64 // standard deviation of random initial weights
	Tied             bool    // the output layer is the embedding
	AttentionBias    bool
	MLPBias          bool
	Rope             Rope

	SlidingWindow    int      // tokens, 0 for none; ask Window, which knows the layer
	UseSlidingWindow bool     // true also where a model type has no such switch
	MaxWindowLayers  int      // layers below this one attend to everything
	LayerTypes       []string // per layer, nil where the file does not say

	AttentionDropout float64
	ResidualDropout  float64
	EmbeddingDropout float64

	Type     dtype.Type // of the weights; Invalid where the file does not say
	BOS, EOS []int      // token ids that begin and end a text; none, one or several

	raw    []byte // the file, nil for a config with other values
	values object // the file's values
}

//go:embed defaults/*.json
var defaultFiles embed.FS

// allDefaults are the embedded files by model type; a test makes sure that all parse.
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

// defaults gives what transformers assumes for a model type, not to be changed; ok
// says whether the type is known here.
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

// resolve makes a config of the defaults of its type and a file's values, which win.
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

// derive fills in what follows from other values.
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

// derived says whether a field has the value that derive would give it.
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

// Window is how many tokens, its own included, a position of the layer attends to;
// 0 means all before it.
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

// Value gives the file's own text for a key, for what Config has no field for. ok
// is false where the key is missing or null.
func (c *Config) Value(key string) (text json.RawMessage, ok bool) {
	return c.values[key], c.values.has(key)
}

// Encode gives the text of config.json: the bytes that were read where no field has
// changed since, and otherwise those values with the changes, as transformers
// would write them.
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
