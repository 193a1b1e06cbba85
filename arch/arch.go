// Package arch makes models from config.json. Each architecture is one file, which
// registers itself by the model_type it is for; llama.go is the one to read first.
package arch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"spillway/dtype"
	"spillway/hf"
	"spillway/nn"
)

// Info is what others need to know of a model beyond its blocks.
type Info struct {
	Type    string     // model_type: "llama"
	DType   dtype.Type // of the published weights; Invalid where the config does not say
	Vocab   int64      // 0: the model takes no tokens
	Context int64      // positions it was made for, 0 for any number
	Layers  int64
	Width   int64 // of the carry from block to block
	// Tied: lm_head uses the weight of the embedding.
	Tied bool
	// Transposed: linear weights are stored as [in out].
	Transposed bool
	// Prefix begins the names of params: "transformer.". A folder that was saved from the
	// bare model, without a head, leaves it out.
	Prefix string
	// Buffers are how the names of tensors end that some folders have and that are not
	// weights: PyTorch's buffers.
	Buffers []string
	// OtherNames are further names of params that several fields of the model share (tied), by their own.
	OtherNames map[string][]string
}

// infoOf is the part of Info that a config gives, whatever the architecture.
func infoOf(c *hf.Config) Info {
	return Info{
		DType: c.Type, Vocab: int64(c.VocabSize), Context: int64(c.MaxPositions),
		Layers: int64(c.Layers), Width: int64(c.HiddenSize), Tied: c.Tied,
	}
}

// Maker builds the model of a config that has been checked.
type Maker func(c *hf.Config) (nn.Model, Info, error)

// Architecture is how models of a model_type are made.
type Architecture struct {
	Make Maker
	Keys Keys // of config.json
}

var (
	mu    sync.RWMutex
	known = map[string]Architecture{}
)

// Register makes an architecture known. It is called by init functions and panics on
// a second registration of the same model_type.
func Register(modelType string, a Architecture) {
	mu.Lock()
	defer mu.Unlock()
	if modelType == "" || a.Make == nil || known[modelType].Make != nil {
		panic("arch: empty or second registration of model_type " + modelType)
	}
	known[modelType] = a
}

// Types lists the known model_types, sorted.
func Types() []string {
	mu.RLock()
	defer mu.RUnlock()
	return slices.Sorted(maps.Keys(known))
}

// FromConfig makes the model that the text of a config.json describes.
func FromConfig(config []byte) (nn.Model, Info, error) {
	c, err := hf.ParseConfig(config)
	if err != nil {
		return nil, Info{}, fmt.Errorf("reading config.json: %w", err)
	}
	return New(c)
}

// New makes the model of a config, such as a folder's. Its params are named.
func New(c *hf.Config) (nn.Model, Info, error) {
	if err := c.Check(); err != nil {
		return nil, Info{}, err
	}
	mu.RLock()
	a, ok := known[c.ModelType]
	mu.RUnlock()
	if !ok {
		return nil, Info{}, fmt.Errorf("model_type %q is not known; known are %s", c.ModelType, strings.Join(Types(), ", "))
	}
	if err := a.Keys.check(c); err != nil {
		return nil, Info{}, fmt.Errorf("%s: %w", c.ModelType, err)
	}
	m, info, err := a.Make(c)
	if err == nil {
		_, err = nn.Bind(m)
	}
	if err != nil {
		return nil, Info{}, fmt.Errorf("%s: %w", c.ModelType, err)
	}
	info.Type = c.ModelType
	return m, info, nil
}

// FileNames are the names a param may have in a folder, likeliest first.
func (i Info) FileNames(param string) []string {
	names := []string{param}
	if bare, ok := strings.CutPrefix(param, i.Prefix); ok && i.Prefix != "" {
		names = append(names, bare)
	}
	return append(names, i.OtherNames[param]...)
}

// IsBuffer says whether a tensor of a folder is known not to be a weight: a table that old
// versions saved by mistake, or the second copy of a tied lm_head.
func (i Info) IsBuffer(tensor string) bool {
	if i.Tied && tensor == "lm_head.weight" {
		return true
	}
	return slices.ContainsFunc(i.Buffers, func(end string) bool { return strings.HasSuffix(tensor, end) })
}
