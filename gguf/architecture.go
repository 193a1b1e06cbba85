package gguf

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// architecture is a kind of model and its sizes, as the metadata of a file gives them.
type architecture struct {
	name  string // in the file: "llama"
	kind  kindOfModel
	heads int64
	kv    int64 // heads of keys and values
}

// kindOfModel is what an architecture is called in transformers.
type kindOfModel struct {
	modelType string // of config.json
	class     string
	permuted  bool // rows of q and k are in the order of interleaved rotary pairs
	bias      bool // q, k and v have one without being asked
}

// models are the architectures that are read, by their names in files.
var models = map[string]kindOfModel{
	"llama": {"llama", "LlamaForCausalLM", true, false},
	"qwen2": {"qwen2", "Qwen2ForCausalLM", false, true},
	"qwen3": {"qwen3", "Qwen3ForCausalLM", false, false},
}

// otherKinds are files that are no models, by what they call themselves, with what to do.
var otherKinds = map[string]string{
	"adapter": "an adapter of llama.cpp for one: give the adapter's folder as PEFT has it, with --adapter, or a model that it is merged into",
	"mmproj":  "the part of one that sees or hears: name the file of the model that reads text",
	"imatrix": "statistics that a model is quantized with: name the file of the model",
}

// architectureOf finds the architecture of a file, and refuses what would compute something
// else than the file means.
func architectureOf(m Metadata) (*architecture, error) {
	if kind := m.textOr("general.type", "model"); otherKinds[kind] != "" {
		return nil, fmt.Errorf("it is no model but %s", otherKinds[kind])
	}
	a := &architecture{name: m.textOr("general.architecture", "")}
	if a.name == "clip" { // of files that do not say their kind
		return nil, fmt.Errorf("it is no model but %s", otherKinds["mmproj"])
	}
	known := false
	if a.kind, known = models[a.name]; !known {
		return nil, fmt.Errorf("its architecture is %q; read are %s", a.name, strings.Join(slices.Sorted(maps.Keys(models)), ", "))
	}
	if err := a.checkKeys(m); err != nil {
		return nil, err
	}
	var err error
	if a.heads, err = a.count(m, "attention.head_count"); err != nil {
		return nil, err
	}
	a.kv = a.heads
	if _, has := m[a.name+".attention.head_count_kv"]; has {
		a.kv, err = a.count(m, "attention.head_count_kv")
	}
	return a, err
}

// count reads a number above 0; a list of equal numbers, one for each layer, is such a
// number too.
func (a *architecture) count(m Metadata, key string) (int64, error) {
	key = a.name + "." + key
	n := m.intOr(key, 0)
	if list, ok := m[key].([]int64); ok && len(list) > 0 {
		n = list[0]
		if slices.ContainsFunc(list, func(x int64) bool { return x != n }) {
			return 0, fmt.Errorf("%s differs from layer to layer, which is not read", key)
		}
	}
	switch {
	case m[key] == nil:
		return 0, fmt.Errorf("its metadata lacks %s", key)
	case n < 1 || n > math.MaxInt32:
		return 0, fmt.Errorf("%s is %s, an integer above 0 is needed", key, m.shown(key))
	}
	return n, nil
}

// Keys after the name of an architecture: those that config.go reads, and those that change
// nothing of what is computed.
var (
	readKeys = []string{
		"context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size",
		"attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon", "attention.sliding_window",
		"rope.dimension_count", "rope.freq_base", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length", "rope.scaling.finetuned", "rope.scale_linear",
	}
	harmlessKeys = []string{"tensor_data_layout"}
	neutralKeys  = map[string]float64{"expert_count": 0, "expert_used_count": 0, "rope.scaling.attn_factor": 1, "attention.clamp_kqv": 0, "attention.max_alibi_bias": 0, "logit_scale": 1}
)

// checkKeys refuses metadata of the architecture that is not understood: it may change what
// the model computes.
func (a *architecture) checkKeys(m Metadata) error {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		rest, own := strings.CutPrefix(key, a.name+".")
		if !own || slices.Contains(harmlessKeys, rest) {
			continue
		}
		if slices.Contains(readKeys, rest) {
			if err := m.checkKind(key, rest); err != nil {
				return err
			}
			continue
		}
		if rest == "attention.causal" && m[key] == true { // as all are that are read
			continue
		}
		if neutral, ok := neutralKeys[rest]; ok && m.floatOr(key, neutral) == neutral {
			continue
		}
		return fmt.Errorf("its metadata has %s = %s, which is not understood and may change what the model computes", key, m.shown(key))
	}
	return nil
}

// checkKind refuses a value of a key that is read where its type is another one: a number, but for a text and a truth value.
func (m Metadata) checkKind(key, rest string) error {
	want, fits := "a number", false
	switch m[key].(type) {
	case string:
		fits = rest == "rope.scaling.type"
	case bool:
		fits = rest == "rope.scaling.finetuned"
	case int64, uint64, float64, []int64:
		fits = rest != "rope.scaling.type"
	}
	if rest == "rope.scaling.type" {
		want = "a text"
	}
	if !fits {
		return fmt.Errorf("%s is %s, %s is needed", key, m.shown(key), want)
	}
	return nil
}

// shown is the value of a key for errors, a text in quotes.
func (m Metadata) shown(key string) string {
	text := fmt.Sprint(m[key])
	if s, ok := m[key].(string); ok {
		text = strconv.Quote(s)
	}
	const most = 60
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// Names of tensors in transformers, by those in files. "" is one that is not a weight.
var (
	outerNames = map[string]string{
		"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight",
		ropeFactors: "",
	}
	layerNames = map[string]string{
		"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
		"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
		"ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
	}
	layerPattern = regexp.MustCompile(`^blk\.(0|[1-9]\d{0,5})\.([a-z_]+)\.(weight|bias)$`)
)

// ropeFactors is the tensor by whose numbers rotary frequencies are divided.
const ropeFactors = "rope_freqs.weight"

// tensorName is what transformers calls a tensor of the file.
func (a *architecture) tensorName(name string) (string, error) {
	if to, ok := outerNames[name]; ok {
		return to, nil
	}
	if m := layerPattern.FindStringSubmatch(name); m != nil && layerNames[m[2]] != "" {
		return "model.layers." + m[1] + "." + layerNames[m[2]] + "." + m[3], nil
	}
	return "", fmt.Errorf("it has a tensor %q, which a model of architecture %s does not have", name, a.name)
}

// permutedHeads is how many heads the rows of a tensor are in whose order differs from that
// of transformers; 0 for none.
func (a *architecture) permutedHeads(name string) int64 {
	m := layerPattern.FindStringSubmatch(name)
	if m == nil || !a.kind.permuted {
		return 0
	}
	switch m[2] {
	case "attn_q":
		return a.heads
	case "attn_k":
		return a.kv
	}
	return 0
}
