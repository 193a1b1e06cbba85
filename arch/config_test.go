package arch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/hf"
	"spillway/nn"
	"spillway/op"
	"spillway/spec"
)

var train = graph.Config{MicroBatchSize: 1, Seq: 512, DType: dtype.BF16, Task: graph.Train}

// trace makes and traces the model of a config, or ends the test.
func trace(t testing.TB, config string, c graph.Config) *spec.Model {
	t.Helper()
	m, info, err := FromConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Trace("model", info.Type, m, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// small is a config of four layers, with more words in it.
func small(modelType, words string) string {
	return fmt.Sprintf(`{"model_type":%q,"vocab_size":50,"hidden_size":16,"intermediate_size":24,
"num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":4,"max_position_embeddings":64%s}`, modelType, words)
}

// paramNames of block i.
func paramNames(m *spec.Model, i int) (names []string) {
	for _, p := range m.Blocks[i].Params {
		names = append(names, m.Params[p].Name)
	}
	slices.Sort(names)
	return names
}

func TestBiasesAndNormsAreNamedAsTransformersDoes(t *testing.T) {
	always := []string{
		"input_layernorm.weight", "mlp.down_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", "post_attention_layernorm.weight",
		"self_attn.k_proj.weight", "self_attn.o_proj.weight", "self_attn.q_proj.weight", "self_attn.v_proj.weight",
	}
	qkv := []string{"self_attn.k_proj.bias", "self_attn.q_proj.bias", "self_attn.v_proj.bias"}
	all := append([]string{"self_attn.o_proj.bias"}, qkv...)
	mlp := []string{"mlp.down_proj.bias", "mlp.gate_proj.bias", "mlp.up_proj.bias"}
	heads := []string{"self_attn.k_norm.weight", "self_attn.q_norm.weight"}
	for _, c := range []struct {
		config string
		more   []string
	}{
		{small("llama", ""), nil},
		{small("llama", `,"attention_bias":true`), all},
		{small("llama", `,"mlp_bias":true`), mlp},
		{small("mistral", ""), nil},
		{small("qwen2", ""), qkv},
		{small("qwen3", ""), heads},
		{small("qwen3", `,"attention_bias":true`), append(heads, all...)},
	} {
		var want []string
		for _, name := range append(slices.Clone(always), c.more...) {
			want = append(want, "model.layers.1."+name)
		}
		slices.Sort(want)
		if got := paramNames(trace(t, c.config, train), 2); !slices.Equal(got, want) {
			t.Errorf("%s:\n has %q\nwant %q", c.config, got, want)
		}
	}
}

// windows lists the attention window of each layer.
func windows(m *spec.Model) (all []int64) {
	for i := range m.Blocks {
		for _, n := range m.Program(i).Nodes {
			if n.Kind == op.Attention {
				all = append(all, n.Attr.Window)
			}
		}
	}
	return all
}

func TestWindows(t *testing.T) {
	types := `,"layer_types":["sliding_attention","full_attention","full_attention","sliding_attention"]`
	for _, c := range []struct {
		config string
		want   []int64
	}{
		{small("llama", `,"sliding_window":8`), []int64{0, 0, 0, 0}}, // not a word of Llama
		{small("mistral", `,"sliding_window":8`), []int64{8, 8, 8, 8}},
		{small("mistral", `,"sliding_window":null`), []int64{0, 0, 0, 0}},
		{small("mistral", ""), []int64{4096, 4096, 4096, 4096}}, // the default
		{small("qwen2", `,"sliding_window":8`), []int64{0, 0, 0, 0}},
		{small("qwen2", `,"sliding_window":8,"use_sliding_window":true,"max_window_layers":3`), []int64{0, 0, 0, 8}},
		{small("qwen3", `,"sliding_window":8,"use_sliding_window":true,"max_window_layers":1`), []int64{0, 8, 8, 8}},
		{small("qwen3", `,"sliding_window":8,"use_sliding_window":true`+types), []int64{8, 0, 0, 8}},
	} {
		if got := windows(trace(t, c.config, train)); !slices.Equal(got, c.want) {
			t.Errorf("%s: windows %v, want %v", c.config, got, c.want)
		}
	}
}

// Dropout is in programs for training, and in no other.
func TestDropoutOnlyTrains(t *testing.T) {
	for config, want := range map[string]int{
		`{"model_type":"gpt2","n_embd":16,"n_head":2,"n_layer":1,"vocab_size":9}`:                            4, // embeddings, attention, two sums
		small("llama", `,"attention_dropout":0.1`):                                                           4, // an attention per layer
		`{"model_type":"transformer_encoder","d_model":8,"nhead":2,"num_layers":1,"dim_feedforward":8}`:      4, // attention, inside, two sums
		`{"model_type":"transformer_encoder","d_model":8,"nhead":2,"num_layers":1,"dropout":0,"bias":false}`: 0,
	} {
		for task, want := range map[graph.Task]int{graph.Train: want, graph.Eval: 0, graph.Infer: 0} {
			c := train
			c.Task = task
			m, got, streams := trace(t, config, c), 0, map[string]bool{}
			for i, b := range m.Blocks {
				for _, n := range m.Program(i).Nodes {
					if n.Attr.Prob > 0 {
						got++
						streams[fmt.Sprint(b.Name, n.Attr.Stream)] = true
					}
				}
			}
			if got != want || len(streams) != want {
				t.Errorf("%s, %s: %d dropouts on %d streams, want %d", config, task, got, len(streams), want)
			}
		}
	}
}

// The result is the logits, or a loss in f32 made without them.
func TestResults(t *testing.T) {
	for _, d := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
		for task, want := range map[graph.Task]string{graph.Infer: d.String() + "[2 6 50]", graph.Eval: "f32[1]", graph.Train: "f32[1]"} {
			m := trace(t, small("llama", ""), graph.Config{MicroBatchSize: 2, Seq: 6, DType: d, Task: task, Packed: true})
			p := m.Program(len(m.Blocks) - 1)
			if got := p.Type(p.Outputs[0].Value).String(); got != want {
				t.Errorf("%s in %v gives %s, want %s", task, d, got, want)
			}
			for _, w := range m.Params {
				if w.Type.DType != d {
					t.Errorf("%s is %v in a run in %v", w.Name, w.Type, d)
				}
			}
		}
	}
}

func TestTiedHeadIsOneParam(t *testing.T) {
	for tied, want := range map[bool]int{true: 0, false: 1} {
		m := trace(t, small("llama", fmt.Sprintf(`,"tie_word_embeddings":%v`, tied)), train)
		heads := 0
		for _, p := range m.Params {
			if p.Name == "lm_head.weight" {
				heads++
			}
		}
		last := m.Blocks[len(m.Blocks)-1]
		if shared := slices.Contains(last.Params, m.Blocks[0].Params[0]); heads != want || shared != tied {
			t.Errorf("tied %v: %d params of the head, the last block reads the embedding: %v", tied, heads, shared)
		}
	}
}

// What a folder may call a param, and what in it is no weight.
func TestNamesInFiles(t *testing.T) {
	_, info, err := FromConfig([]byte(`{"model_type":"gpt2"}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.FileNames("transformer.h.0.ln_1.weight"); !slices.Equal(got, []string{"transformer.h.0.ln_1.weight", "h.0.ln_1.weight"}) {
		t.Errorf("names are %q", got)
	}
	if got := info.FileNames("lm_head.weight"); !slices.Equal(got, []string{"lm_head.weight"}) {
		t.Errorf("names are %q", got)
	}
	for name, want := range map[string]bool{"h.0.attn.bias": true, "transformer.h.3.attn.masked_bias": true, "lm_head.weight": true,
		"h.0.attn.c_attn.bias": false, "wte.weight": false} {
		if info.IsBuffer(name) != want {
			t.Errorf("%s is a buffer: %v, want %v", name, !want, want)
		}
	}
}

func TestUnsupportedConfigsAreRefused(t *testing.T) {
	for config, want := range map[string]string{
		`{`:                                     "reading config.json",
		`{"model_type":"mamba"}`:                `model_type "mamba" is not known; known are gpt2, llama, mistral, qwen2, qwen3, transformer_encoder`,
		`{"vocab_size":5}`:                      `model_type "" is not known`,
		small("llama", `,"hidden_act":"xielu"`): `activation "xielu" is not supported`,
		small("llama", `,"rope_scaling":{"type":"dynamic","factor":2.0}`):                                         `rope type "dynamic" is not supported`,
		small("llama", `,"rope_scaling":{"type":"linear"}`):                                                       "has no factor",
		small("llama", `,"rope_theta":1e4,"partial_rotary_factor":0.5`):                                           "partial_rotary_factor 0.5 is not supported",
		small("llama", `,"num_hidden_layers":1000000000`):                                                         "num_hidden_layers",
		`{"model_type":"llama","head_dim":5}`:                                                                     "heads of 5 elements cannot be rotated",
		`{"model_type":"llama","hidden_size":30,"num_attention_heads":4}`:                                         "num_attention_heads 4 does not divide",
		`{"model_type":"llama","num_key_value_heads":5}`:                                                          "num_key_value_heads 5 does not divide",
		`{"model_type":"gpt2","n_embd":10,"n_head":3,"head_dim":4}`:                                               "n_embd 10 does not divide into n_head 3",
		`{"model_type":"gpt2","add_cross_attention":true}`:                                                        "add_cross_attention is true",
		small("qwen2", `,"layer_types":["a","b","c","d"]`):                                                        `layer 0 has attention "a"`,
		small("qwen2", `,"layer_types":["full_attention"]`):                                                       "layer_types has 1 entries for 4 layers",
		small("qwen3", `,"layer_types":["full_attention","sliding_attention","full_attention","full_attention"]`): "layer 1 has sliding_attention",
		`{"model_type":"transformer_encoder"}`:                                                                    "d_model is 0",
		`{"model_type":"transformer_encoder","d_model":9,"nhead":2,"num_layers":1}`:                               "d_model 9 does not divide into nhead 2",
		`{"model_type":"transformer_encoder","d_model":8,"nhead":2,"num_layers":99999999}`:                        "num_layers is 99999999",
		`{"model_type":"transformer_encoder","d_model":8,"nhead":2,"num_layers":1,"dropout":1}`:                   "dropout is 1",
	} {
		if _, _, err := FromConfig([]byte(config)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", config, err, want)
		}
	}
}

func TestGPT2RefusesPositionsItHasNotLearned(t *testing.T) {
	m, _, err := FromConfig([]byte(`{"model_type":"gpt2","n_positions":32,"n_layer":1}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = spec.Trace("gpt2", "gpt2", m, graph.Config{MicroBatchSize: 1, Seq: 33, DType: dtype.F32, Task: graph.Eval})
	if err == nil || !strings.Contains(err.Error(), "33 positions, the model has learned 32") {
		t.Errorf("got %v", err)
	}
}

func TestRegistry(t *testing.T) {
	if types := Types(); !slices.IsSorted(types) || !slices.Contains(types, "llama") {
		t.Errorf("types are %q", types)
	}
	defer func() {
		if recover() == nil {
			t.Error("a second registration went unnoticed")
		}
	}()
	Register("llama", Architecture{Make: func(*hf.Config) (nn.Model, Info, error) { return nil, Info{}, nil }})
}

func BenchmarkTrace405b(b *testing.B) {
	config, err := Preset("llama-3-405b")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		trace(b, string(config), train)
	}
}
