package arch

import (
	"embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"spillway/internal/suggest"
)

// presetFiles are published models, as the config.json their makers gave them. tiny-*, small-*
// and llama-50m are ours, for demonstrations and benchmarks.
//
//go:embed presets/*.json
var presetFiles embed.FS

// Presets lists the names of models that are known without files, sorted.
func Presets() []string {
	entries, err := presetFiles.ReadDir("presets")
	if err != nil { // the folder is part of the binary
		panic(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".json")
	}
	slices.Sort(names)
	return names
}

// Preset is the config.json of a published model, by its name.
func Preset(name string) ([]byte, error) {
	config, err := presetFiles.ReadFile("presets/" + name + ".json")
	if err != nil && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/") || strings.HasPrefix(name, "~")) {
		return nil, fmt.Errorf("there is no folder and no file %s; check the name, and the folder it is looked for in", name)
	}
	if err != nil {
		return nil, fmt.Errorf("there is no folder and no preset %q%s; known are %s", name, PresetHint(name), strings.Join(Presets(), ", "))
	}
	return config, nil
}

// Ours says whether a preset is one of ours, that nobody published.
func Ours(preset string) bool {
	return strings.HasPrefix(preset, "tiny-") || strings.HasPrefix(preset, "small-") || preset == "llama-50m"
}

// OfSize is a config.json of Llama's shape with about so many params, for a model of which
// nothing else is known. Shapes follow those of published models: heads of 128, a layer for every
// 128 of the width, a key for four heads, an MLP of 3.5 times the width.
func OfSize(params int64) ([]byte, error) {
	const smallest, largest = 1e6, 1e13
	if params < smallest || params > largest {
		return nil, fmt.Errorf("a model of %d params of 2 bytes; it is between %.0e and %.0e of them, such as 40GB", params, smallest, largest)
	}
	vocab := int64(128256)
	if params < 1e9 {
		vocab = 32000
	}
	if params < 1e8 {
		vocab = 4096
	}
	count := func(width, layers int64) int64 {
		kv := 128 * keysOf(width)
		return layers*(2*width*width+2*width*kv+3*width*mlpOf(width)+2*width) + 2*vocab*width + width
	}
	width := int64(128)
	for count(width+128, (width+128)/128) <= params {
		width += 128
	}
	// The number of layers that comes nearest, for a width and the next.
	type shape struct{ width, layers int64 }
	var best shape
	off := int64(math.MaxInt64)
	for _, w := range []int64{width, width + 128} {
		each := count(w, 1) - count(w, 0)
		for _, layers := range []int64{max((params-count(w, 0))/each, 1), max((params-count(w, 0))/each, 1) + 1} {
			if d := count(w, layers) - params; max(d, -d) < off {
				best, off = shape{w, layers}, max(d, -d)
			}
		}
	}
	return json.Marshal(map[string]any{
		"model_type": "llama", "architectures": []string{"LlamaForCausalLM"}, "vocab_size": vocab, "hidden_size": best.width, "intermediate_size": mlpOf(best.width),
		"num_hidden_layers": best.layers, "num_attention_heads": best.width / 128, "num_key_value_heads": keysOf(best.width), "head_dim": 128,
		"hidden_act": "silu", "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
	})
}

// mlpOf is the width of an MLP, a multiple of 256.
func mlpOf(width int64) int64 { return max(width*7/2/256, 1) * 256 }

// keysOf is how many heads of keys a width has: they divide the heads.
func keysOf(width int64) int64 {
	n := max(width/512, 1)
	for width/128%n != 0 {
		n--
	}
	return n
}

// PresetHint says which preset a name may mean: "; did you mean llama-3-8b?", or nothing.
func PresetHint(name string) string {
	wanted := strings.ToLower(name[strings.LastIndexByte(name, '/')+1:]) // of meta-llama/Llama-3.1-8B
	return suggest.Hint(wanted, Presets())
}
