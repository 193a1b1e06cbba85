package hf

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/internal/bounded"
)

// testdata comes from transformers (tools/reference/hf_configs.py).

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := ParseConfig([]byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c
}

// differences names the fields in which two configs differ.
func differences(a, b *Config) []string {
	var out []string
	for _, f := range fields {
		if !reflect.DeepEqual(f.pointer(a), f.pointer(b)) {
			out = append(out, f.keys[0])
		}
	}
	if !reflect.DeepEqual(a.Rope, b.Rope) {
		out = append(out, "rope")
	}
	return out
}

type resolvedCase struct{ Given, Resolved json.RawMessage }

func resolvedCases(t testing.TB) map[string]resolvedCase {
	raw, err := os.ReadFile("testdata/resolved.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string]resolvedCase
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// Defaults and derived values against what transformers makes of the same text.
func TestResolvesLikeTransformers(t *testing.T) {
	cases := resolvedCases(t)
	if len(cases) < 15 {
		t.Fatalf("only %d cases", len(cases))
	}
	// These are as given; Window says what they amount to.
	windows := []string{"sliding_window", "layer_types"}
	for name, c := range cases {
		got, want := parse(t, string(c.Given)), parse(t, string(c.Resolved))
		for _, d := range differences(got, want) {
			if !slices.Contains(windows, d) {
				t.Errorf("%s: %s differs:\n%+v\n%+v", name, d, got, want)
			}
		}
		var r struct {
			LayerTypes    []string `json:"layer_types"`
			SlidingWindow int      `json:"sliding_window"`
		}
		if err := json.Unmarshal(c.Resolved, &r); err != nil {
			t.Fatal(err)
		}
		for i := range got.Layers {
			window := r.SlidingWindow
			if r.LayerTypes != nil && r.LayerTypes[i] == "full_attention" {
				window = 0
			}
			if got.Window(i) != window {
				t.Errorf("%s: the window of layer %d is %d, want %d", name, i, got.Window(i), window)
			}
		}
	}
}

func TestReadsEveryField(t *testing.T) {
	got := parse(t, `{"model_type": "llama", "architectures": ["A", "B"], "vocab_size": 11, "hidden_size": 12, "intermediate_size": 13,
		"num_hidden_layers": 14, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 15, "max_position_embeddings": 16,
		"hidden_act": "gelu", "rms_norm_eps": 1e-7, "initializer_range": 0.5, "tie_word_embeddings": true, "attention_bias": true,
		"mlp_bias": true, "sliding_window": 17, "use_sliding_window": false, "max_window_layers": 18, "attention_dropout": 0.1,
		"resid_pdrop": 0.2, "embd_pdrop": 0.3, "torch_dtype": "torch.bfloat16", "bos_token_id": 1, "eos_token_id": [2, 3],
		"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
		"original_max_position_embeddings": 19}}`)
	want := &Config{
		ModelType: "llama", Architectures: []string{"A", "B"}, VocabSize: 11, HiddenSize: 12, IntermediateSize: 13,
		Layers: 14, Heads: 4, KVHeads: 2, HeadDim: 15, MaxPositions: 16,
		Activation: "gelu", NormEps: 1e-7, InitializerRange: 0.5, Tied: true, AttentionBias: true, MLPBias: true,
		SlidingWindow: 17, MaxWindowLayers: 18, AttentionDropout: 0.1, ResidualDropout: 0.2, EmbeddingDropout: 0.3,
		Type: dtype.BF16, BOS: []int{1}, EOS: []int{2, 3},
		Rope: Rope{Type: "llama3", Theta: 5e5, PartialFactor: 1, Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 19},
	}
	if d := differences(got, want); d != nil {
		t.Errorf("%v differ:\n%+v\n%+v", d, got, want)
	}
}

func TestUnknownTypesAreKept(t *testing.T) {
	c := parse(t, `{"model_type": "mamba", "hidden_size": 8, "state_size": 16, "nothing": null}`)
	if c.HiddenSize != 8 || c.Layers != 0 || c.Rope.Type != "" {
		t.Errorf("%+v", c)
	}
	if v, ok := c.Value("state_size"); !ok || string(v) != "16" {
		t.Errorf("state_size is %s, %v", v, ok)
	}
	if _, ok := c.Value("nothing"); ok {
		t.Error("null is a value")
	}
	per := parse(t, `{"model_type": "gemma3", "rope_parameters": {"full_attention": {"rope_type": "default"}}}`)
	if per.Rope.Type != PerLayer {
		t.Errorf("rotation %+v", per.Rope)
	}
}

func TestEncodeKeepsTheBytes(t *testing.T) {
	for _, text := range []string{
		`{"model_type":"llama",   "hidden_act":"silu" , "x":[1.50,{"b":1,"a":2}]}`,
		"{}", "{\n\t\"vocab_size\": 5\n}\n\n",
	} {
		got, err := parse(t, text).Encode()
		if err != nil || string(got) != text {
			t.Errorf("%q became %q, %v", text, got, err)
		}
	}
}

// The defaults were written by Python: our writer must produce its bytes.
func TestEncodeLikePython(t *testing.T) {
	if _, err := allDefaults(); err != nil || len(knownTypes()) != 5 {
		t.Errorf("known are %v: %v", knownTypes(), err)
	}
	for _, name := range knownTypes() {
		c, err := newConfig(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Encode()
		want, _ := defaultFiles.ReadFile("defaults/" + name + ".json")
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, want)
		}
	}
	c := parse(t, `{"z": "é漢🙂\u2028<&>\u0001\u007f", "a": {"b": [], "a": {}, "c": [1, 2.50]}, "e": 1e-5, "vocab_size": 3}`)
	c.VocabSize = 4
	got, err := c.Encode()
	want := `{
  "a": {
    "a": {},
    "b": [],
    "c": [
      1,
      2.50
    ]
  },
  "e": 1e-5,
  "vocab_size": 4,
  "z": "\u00e9\u6f22\ud83d\ude42\u2028<&>\u0001` + "\x7f" + `"
}
`
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}

func TestFloatsLikePython(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.0", 10000: "10000.0", 1e-5: "1e-05", 1e-4: "0.0001", 0.02: "0.02", 1e15: "1000000000000000.0", 1e16: "1e+16", -2.5: "-2.5", 1e-300: "1e-300",
	} {
		if got := string(formatFloat(v)); got != want {
			t.Errorf("%g is written %s, want %s", v, got, want)
		}
	}
}

// Every field that is set comes back, whatever the type calls it.
func TestChangesComeBack(t *testing.T) {
	for _, name := range knownTypes() {
		c, err := newConfig(name)
		if err != nil {
			t.Fatal(err)
		}
		c.Architectures, c.VocabSize, c.HiddenSize, c.IntermediateSize = []string{"X"}, 100, 48, 77
		c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.MaxPositions = 3, 6, 2, 10, 32
		c.Activation, c.NormEps, c.InitializerRange = "relu", 1e-3, 0.1
		c.Tied, c.AttentionBias, c.MLPBias = !c.Tied, true, true
		c.SlidingWindow, c.UseSlidingWindow, c.MaxWindowLayers = 9, !c.UseSlidingWindow, 1
		c.LayerTypes = []string{"full_attention", slidingAttention, "full_attention"}
		c.AttentionDropout, c.ResidualDropout, c.EmbeddingDropout = 0.5, 0.25, 0.125
		c.Type, c.BOS, c.EOS = dtype.F16, nil, []int{4, 5}
		c.Rope = Rope{Type: "longrope", Theta: 77, PartialFactor: 0.5, Factor: 2, OriginalMaxPositions: 16, AttentionFactor: 1.5,
			BetaFast: 3, BetaSlow: 2, LowFreqFactor: 1, HighFreqFactor: 4, ShortFactor: []float64{1, 2.5}, LongFactor: []float64{1e-5}}
		text, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back := parse(t, string(text))
		if d := differences(c, back); d != nil {
			t.Errorf("%s: %v were lost\n%s", name, d, text)
		}
		if name == "gpt2" && (strings.Contains(string(text), "hidden_size") || !strings.Contains(string(text), `"n_embd": 48`)) {
			t.Errorf("gpt2's own names are not used:\n%s", text)
		}
	}
}

// A small config as people make it: only what differs, derived values not needed.
func TestDerivedValuesFollow(t *testing.T) {
	c, err := newConfig("gpt2")
	if err != nil {
		t.Fatal(err)
	}
	c.HiddenSize, c.Heads, c.KVHeads, c.HeadDim, c.IntermediateSize = 8, 2, 2, 4, 32
	text, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if d := differences(c, parse(t, string(text))); d != nil {
		t.Errorf("%v differ\n%s", d, text)
	}
	for _, key := range []string{"head_dim", "num_key_value_heads"} {
		if strings.Contains(string(text), key) {
			t.Errorf("gpt2 has no %s:\n%s", key, text)
		}
	}
	c = parse(t, `{"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 32, "dtype": "float32"}`)
	c.Heads, c.KVHeads, c.Type = 16, 16, dtype.Invalid
	text, err = c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if back := parse(t, string(text)); back.KVHeads != 16 || back.Type != dtype.Invalid {
		t.Errorf("%d heads of keys\n%s", back.KVHeads, text)
	}
}

// The type of the weights is dtype where torch_dtype says another, as in transformers.
func TestTypeUnderTwoNames(t *testing.T) {
	for text, want := range map[string]dtype.Type{
		`"dtype":"float32","torch_dtype":"bfloat16"`:      dtype.F32,
		`"dtype":null,"torch_dtype":"bfloat16"`:           dtype.BF16,
		`"dtype":"bfloat16","torch_dtype":null`:           dtype.BF16,
		`"dtype":"torch.float16","torch_dtype":"float16"`: dtype.F16,
	} {
		if got := parse(t, `{`+text+`}`).Type; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// refused are config.json texts with a part of their error.
var refused = map[string]string{
	``:                                    "not a JSON object",
	`null`:                                "not a JSON object",
	`[]`:                                  "not a JSON object",
	`{"a":1}x`:                            "not a JSON object",
	"{\"a\":\"\xff\"}":                    "UTF-8",
	`{"a":1,"a":1}`:                       "given twice",
	`{"a":[{"b":1,"b":2}]}`:               "given twice",
	`{"model_type":1}`:                    "model_type",
	`{"hidden_size":-1}`:                  "hidden_size is -1",
	`{"hidden_size":1048577}`:             "from 0 to 1048576",
	`{"vocab_size":1e3}`:                  "integer",
	`{"vocab_size":4.0}`:                  "integer",
	`{"vocab_size":"4"}`:                  "integer",
	`{"vocab_size":16777217}`:             "vocab_size",
	`{"vocab_size":99999999999999999999}`: "integer",
	`{"num_hidden_layers":4097}`:          "num_hidden_layers",
	`{"model_type":"llama","num_hidden_layers":0}`:                                "from 1 to",
	`{"model_type":"llama","hidden_size":null}`:                                   "from 1 to",
	`{"model_type":"llama","num_key_value_heads":5}`:                              "does not divide",
	`{"model_type":"llama","hidden_size":100}`:                                    "does not divide",
	`{"num_attention_heads":65536,"head_dim":1048576}`:                            "wider than",
	`{"model_type":"gpt2","n_embd":64,"hidden_size":32}`:                          "delete the wrong one",
	`{"layer_types":["full_attention"]}`:                                          "1 entries for 0 layers",
	`{"layer_types":[1]}`:                                                         "layer_types",
	`{"rms_norm_eps":-1}`:                                                         "epsilon",
	`{"rms_norm_eps":1e999}`:                                                      "rms_norm_eps",
	`{"rms_norm_eps":NaN}`:                                                        "not a JSON object",
	`{"attn_pdrop":1.5}`:                                                          "dropout",
	`{"tie_word_embeddings":1}`:                                                   "tie_word_embeddings",
	`{"eos_token_id":[1,-2]}`:                                                     "negative",
	`{"eos_token_id":"a"}`:                                                        "integer",
	`{"eos_token_id":{}}`:                                                         "integer",
	`{"dtype":"float31"}`:                                                         "unknown element type",
	`{"rope_theta":0}`:                                                            "rope_theta",
	`{"rope_theta":"a"}`:                                                          "rope_theta",
	`{"rope_scaling":1}`:                                                          "rope_scaling",
	`{"rope_scaling":{"type":"linear"}}`:                                          "no factor",
	`{"rope_scaling":{"type":"linear","factor":-1}}`:                              "negative",
	`{"rope_scaling":{"type":"longrope","long_factor":[-1]}}`:                     "negative",
	`{"rope_scaling":{"type":"llama3","factor":8,"low_freq_factor":4}}`:           "low_freq_factor",
	`{"rope_parameters":{"rope_type":"x","partial_rotary_factor":2}}`:             "partial_rotary_factor",
	`{"rope_parameters":{"rope_type":"x","original_max_position_embeddings":-1}}`: "original_max",
	`{"rope_parameters":{"rope_type":"x","rope_type":"y"}}`:                       "given twice",
	`{"rope_parameters":{"rope_type":"x","beta_fast":"1"}}`:                       "beta_fast",
	`{"sliding_window":-4}`:                                                       "sliding_window",
	`{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`:       "depth",
}

func TestConfigRefuses(t *testing.T) {
	for text, want := range refused {
		if _, err := ParseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: %v, want %q", text, err, want)
		}
	}
	c, _ := newConfig("llama")
	c.NormEps = math.NaN()
	if _, err := c.Encode(); err == nil {
		t.Error("NaN was written")
	}
	c, _ = newConfig("llama")
	c.Rope.Theta = math.Inf(1)
	if _, err := c.Encode(); err == nil {
		t.Error("an infinite theta was written")
	}
	if _, err := newConfig("../llama"); err == nil {
		t.Error("defaults outside their folder")
	}
}

// FuzzConfig: what is accepted is written back byte for byte, and a change to it
// survives writing and reading.
func FuzzConfig(f *testing.F) {
	for text := range refused {
		f.Add([]byte(text))
	}
	for _, c := range resolvedCases(f) {
		f.Add([]byte(c.Given))
		f.Add([]byte(c.Resolved))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		bounded.Check(t, len(text), func() { readConfig(t, text) })
	})
}

// readConfig reads a config and writes it again, as it was and with changes.
func readConfig(t *testing.T, text []byte) {
	c, err := ParseConfig(text)
	if err != nil {
		return
	}
	same, err := c.Encode()
	if err != nil || string(same) != string(text) {
		t.Fatalf("%q became %q: %v", text, same, err)
	}
	c.Tied, c.VocabSize, c.NormEps = !c.Tied, maxVocab-c.VocabSize/2, c.NormEps/2
	changed, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if d := differences(c, parse(t, string(changed))); d != nil {
		t.Fatalf("%v were lost in\n%s", d, changed)
	}
}

// knownTypes lists the model types whose defaults are known, sorted.
func knownTypes() []string {
	all, _ := allDefaults()
	return slices.Sorted(maps.Keys(all))
}

// newConfig is the config transformers makes of a model type alone.
func newConfig(modelType string) (*Config, error) {
	values, ok := defaults(modelType)
	if !ok {
		return nil, fmt.Errorf("model type %q has no known defaults", modelType)
	}
	return resolve(values)
}
