package gguf

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"spillway/dtype"
)

// config is the config.json that transformers would have for the model.
func (f *File) config() ([]byte, error) {
	m, a := f.Metadata, f.arch
	c := map[string]any{
		"model_type": a.kind.modelType, "architectures": []string{a.kind.class}, "hidden_act": "silu",
		"num_attention_heads": a.heads, "num_key_value_heads": a.kv,
		"tie_word_embeddings": !f.has("lm_head.weight"),
		"torch_dtype":         f.torchType(),
	}
	for key, from := range map[string]string{
		"hidden_size": "embedding_length", "intermediate_size": "feed_forward_length", "num_hidden_layers": "block_count", "max_position_embeddings": "context_length",
	} {
		n, err := a.count(m, from)
		if err != nil {
			return nil, err
		}
		c[key] = n
	}
	embedding, ok := f.Tensor("model.embed_tokens.weight")
	if !ok || len(embedding.Shape) != 2 {
		return nil, fmt.Errorf("it has no matrix token_embd.weight")
	}
	c["vocab_size"] = embedding.Shape[0]
	if c["rms_norm_eps"] = m.floatOr(a.name+".attention.layer_norm_rms_epsilon", -1); c["rms_norm_eps"] == -1.0 {
		return nil, fmt.Errorf("its metadata lacks %s.attention.layer_norm_rms_epsilon", a.name)
	}
	head := c["hidden_size"].(int64) / a.heads
	c["head_dim"] = m.intOr(a.name+".attention.key_length", head)
	if v := m.intOr(a.name+".attention.value_length", c["head_dim"].(int64)); v != c["head_dim"] {
		return nil, fmt.Errorf("its heads have keys of %v and values of %v elements, which must be equal", c["head_dim"], v)
	}
	if n := m.intOr(a.name+".rope.dimension_count", c["head_dim"].(int64)); n != c["head_dim"] {
		return nil, fmt.Errorf("it rotates %d of the %v elements of a head, which is not read", n, c["head_dim"])
	}
	if err := f.rope(c); err != nil {
		return nil, err
	}
	switch bias := f.has("model.layers.0.self_attn.q_proj.bias"); {
	case a.kind.modelType == "llama":
		c["attention_bias"], c["mlp_bias"] = bias, f.has("model.layers.0.mlp.up_proj.bias")
	case bias != a.kind.bias:
		return nil, fmt.Errorf("q has a bias: %v, in models of architecture %s: %v", bias, a.name, a.kind.bias)
	}
	if w := m.intOr(a.name+".attention.sliding_window", 0); w > 0 {
		if a.kind.modelType != "llama" {
			return nil, fmt.Errorf("it has a sliding window of %d, which is read of architecture llama only", w)
		}
		c["model_type"], c["architectures"], c["sliding_window"] = "mistral", []string{"MistralForCausalLM"}, w
		if c["attention_bias"] == true || c["mlp_bias"] == true {
			return nil, fmt.Errorf("it has a sliding window and biases, which no known model has")
		}
		delete(c, "attention_bias")
		delete(c, "mlp_bias")
	}
	for key, from := range map[string]string{"bos_token_id": "bos", "eos_token_id": "eos"} {
		if id := m.intOr("tokenizer.ggml."+from+"_token_id", -1); id >= 0 {
			c[key] = id
		} else if m.textOr("tokenizer.ggml.model", "") != "llama" {
			c[key] = nil // there is none; the defaults of the model type are those of SentencePiece
		}
	}
	return json.MarshalIndent(c, "", "  ")
}

func (f *File) has(tensor string) bool {
	_, ok := f.Tensor(tensor)
	return ok
}

// torchType is what the model is to be computed in: the type of most of its plain matrices,
// bf16 where it is quantized.
func (f *File) torchType() string {
	count := map[dtype.Type]int64{}
	for _, t := range f.Tensors() {
		if len(t.Shape) < 2 {
			continue
		}
		if t.Type.Block() {
			return dtype.BF16.Torch()
		}
		count[t.Type] += t.Bytes
	}
	most := dtype.F32
	for _, t := range slices.Sorted(maps.Keys(count)) {
		if count[t] > count[most] {
			most = t
		}
	}
	return most.Torch()
}

// rope adds how positions are rotated.
func (f *File) rope(c map[string]any) error {
	m, prefix := f.Metadata, f.arch.name+".rope."
	theta := m.floatOr(prefix+"freq_base", 10000)
	c["rope_theta"] = theta
	factors, err := f.factors()
	if err != nil {
		return err
	}
	kind := m.textOr(prefix+"scaling.type", "linear") // llama.cpp's default; old files have a factor and no type
	factor := cmp.Or(m.floatOr(prefix+"scaling.factor", 0), m.floatOr(prefix+"scale_linear", 0))
	original := m.intOr(prefix+"scaling.original_context_length", c["max_position_embeddings"].(int64))
	switch {
	case factors != nil && (kind == "none" || factor == 0 || factor == 1):
		scaling, err := llama3Scaling(factors, theta, c["head_dim"].(int64))
		c["rope_scaling"] = scaling
		return err
	case factors != nil:
		return fmt.Errorf("it scales positions both by %s and by the tensor %s", kind, ropeFactors)
	case kind == "none" || kind == "linear" && (factor == 0 || factor == 1):
		return nil
	case kind == "linear":
		c["rope_scaling"] = map[string]any{"rope_type": "linear", "factor": factor}
		return nil
	case kind == "yarn" && factor > 0 && original > 0:
		c["rope_scaling"] = map[string]any{"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
		return nil
	}
	return fmt.Errorf("it scales positions by %q with factor %v from %d positions, which is not read", kind, factor, original)
}

// factors are the numbers of the tensor of rotary factors, nil where there is none. It is no
// weight, so it is read past the list of tensors.
func (f *File) factors() ([]float32, error) {
	if f.ropeFactors.Name == "" {
		return nil, nil
	}
	list := make([]float32, f.ropeFactors.Shape.Elements())
	return list, f.ropeFactors.ReadF32(list, 0)
}

// llama3Scaling finds the scaling of Llama 3.1 and later that gives the factors: files have
// its result, config.json its settings.
func llama3Scaling(factors []float32, theta float64, head int64) (map[string]any, error) {
	const low, high = 1.0, 4.0
	factor := float64(slices.Max(append(slices.Clone(factors), 1)))
	if int64(len(factors)) != head/2 {
		return nil, fmt.Errorf("tensor %s has %d numbers for heads of %d elements", ropeFactors, len(factors), head)
	}
	for original := 32.0; original <= 1<<20; original *= 2 {
		fits := true
		for i, have := range factors {
			want := llama3Factor(theta, factor, low, high, original, i, int(head))
			fits = fits && math.Abs(float64(have)-want) <= 1e-4*want
		}
		if fits {
			return map[string]any{"rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high, "original_max_position_embeddings": int64(original)}, nil
		}
	}
	return nil, fmt.Errorf("the numbers of tensor %s are not those of Llama 3.1's scaling, the only one with such a tensor that is read", ropeFactors)
}

// llama3Factor is what Llama 3.1's scaling divides frequency i by.
func llama3Factor(theta, factor, low, high, original float64, i, head int) float64 {
	turns := original * math.Pow(theta, -2*float64(i)/float64(head)) / (2 * math.Pi)
	keep := min(max((turns-low)/(high-low), 0), 1)
	return 1 / ((1-keep)/factor + keep)
}

// Title is the name the file gives the model, "" for none.
func (f *File) Title() string { return strings.TrimSpace(f.Metadata.textOr("general.name", "")) }
