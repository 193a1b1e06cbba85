package arch

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/nn"
	"spillway/spec/spectest"
)

// keyCase is a config with one key changed, and what transformers makes of it: a loss or
// an error.
type keyCase struct {
	Key   string          `json:"key"`
	Rope  string          `json:"rope"` // the key of rope_scaling that was changed
	Value json.RawMessage `json:"value"`
	More  map[string]any  `json:"more"`
	Loss  *float64        `json:"loss"`
	Error string          `json:"error"`
}

// Whatever key of config.json has another value, the loss is that of transformers, or the
// key is refused by its name.
func TestConfigKeysAgreeWithTransformers(t *testing.T) {
	var all map[string][]keyCase
	if err := json.Unmarshal(read(t, filepath.Join(fixtures, "config_keys.json")), &all); err != nil {
		t.Fatal(err)
	}
	for name, cases := range all {
		t.Run(name, func(t *testing.T) {
			f := open(t, name)
			for _, c := range cases {
				f.checkKey(t, c)
			}
		})
	}
}

func (f fixture) checkKey(t *testing.T, c keyCase) {
	t.Helper()
	var values map[string]any
	if err := json.Unmarshal(f.config, &values); err != nil {
		t.Fatal(err)
	}
	maps.Copy(values, c.More)
	values[c.Key] = c.Value
	config, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	net, _, err := FromConfig(config)
	if err != nil {
		if c.Loss != nil && !names(err, c) {
			t.Errorf("%s %s: %v, without its name", c.Key, c.Value, err)
		}
		return
	}
	if c.Loss == nil || !f.fits(t, net) {
		return
	}
	ids := f.expect["input_ids"].Type.Shape
	in := spectest.Inputs{Params: f.weights, Batch: languageBatch(f.expect["input_ids"], f.expect["targets"])}
	out, err := spectest.Forward(trace(t, string(config), graph.Config{MicroBatchSize: ids[0], Seq: ids[1], DType: dtype.F32, Task: graph.Eval}), in)
	if err != nil {
		t.Errorf("%s %s: %v", c.Key, c.Value, err)
		return
	}
	if loss := out[0].F[0]; !(loss-*c.Loss <= tolerance*loss && *c.Loss-loss <= tolerance*loss) {
		t.Errorf("%s %s: a loss of %v, transformers has %v", c.Key, c.Value, loss, *c.Loss)
	}
}

// names says whether an error names the key, or what the key sets.
func names(err error, c keyCase) bool {
	for _, word := range []string{c.Key, c.Rope, "rope", "activation", "heads"} {
		if word != "" && strings.Contains(err.Error(), word) {
			return true
		}
	}
	return false
}

// fits says whether a model has the fixture's weights in their shapes; a folder whose
// weights do not fit is refused when they are read.
func (f fixture) fits(t *testing.T, net nn.Model) bool {
	t.Helper()
	params, err := nn.Bind(net)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range params {
		if w, ok := f.weights[p.Name]; !ok || !w.Type.Shape.Equal(p.Shape) {
			return false
		}
	}
	return len(params) == len(f.weights)
}

// A key that no list has is refused by its name, whether transformers reads it or not.
func TestUnknownKeysAreRefused(t *testing.T) {
	for key, config := range map[string]string{
		"logit_scale":          `{"model_type":"llama","logit_scale":2}`,
		"clip_qkv":             `{"model_type":"gpt2","clip_qkv":1}`,
		"num_experts":          `{"model_type":"qwen3","num_experts":8}`,
		"attn_logit_softcap":   `{"model_type":"qwen2","attn_logit_softcap":30.0}`,
		"layer_types":          `{"model_type":"mistral","num_hidden_layers":2,"layer_types":["full_attention","sliding_attention"]}`,
		"is_encoder_decoder":   `{"model_type":"llama","is_encoder_decoder":true}`,
		"pruned_heads":         `{"model_type":"gpt2","pruned_heads":{"0":[1]}}`,
		"mrope_section":        `{"model_type":"qwen2","rope_scaling":{"rope_type":"default","mrope_section":[1,2]}}`,
		"use_src_bias":         `{"model_type":"transformer_encoder","d_model":8,"nhead":2,"num_layers":1,"use_src_bias":true}`,
		"rope_local_base_freq": `{"model_type":"llama","rope_local_base_freq":10000}`,
	} {
		if _, _, err := FromConfig([]byte(config)); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", config, err)
		}
	}
	for _, config := range []string{`{"model_type":"llama","logit_scale":null}`, `{"model_type":"llama","_private":1,"use_cache":false}`} {
		if _, _, err := FromConfig([]byte(config)); err != nil {
			t.Errorf("%s: %v", config, err)
		}
	}
}
