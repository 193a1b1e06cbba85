package hf

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"strconv"
	"strings"

	"spillway/dtype"
)

// field ties a field of Config to its keys in config.json: the usual one first, then those
// of other model types and older versions.
type field struct {
	keys    []string
	pointer func(*Config) any // a pointer to int, float64, bool, string, []string, []int or dtype.Type
}

var fields = []field{
	{[]string{"model_type"}, func(c *Config) any { return &c.ModelType }},
	{[]string{"architectures"}, func(c *Config) any { return &c.Architectures }},
	{[]string{"vocab_size"}, func(c *Config) any { return &c.VocabSize }},
	{[]string{"hidden_size", "n_embd"}, func(c *Config) any { return &c.HiddenSize }},
	{[]string{"intermediate_size", "n_inner"}, func(c *Config) any { return &c.IntermediateSize }},
	{[]string{"num_hidden_layers", "n_layer"}, func(c *Config) any { return &c.Layers }},
	{[]string{"num_attention_heads", "n_head"}, func(c *Config) any { return &c.Heads }},
	{[]string{"num_key_value_heads"}, func(c *Config) any { return &c.KVHeads }},
	{[]string{"head_dim"}, func(c *Config) any { return &c.HeadDim }},
	{[]string{"max_position_embeddings", "n_positions"}, func(c *Config) any { return &c.MaxPositions }},
	{[]string{"hidden_act", "activation_function"}, func(c *Config) any { return &c.Activation }},
	{[]string{"rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps"}, func(c *Config) any { return &c.NormEps }},
	{[]string{"initializer_range"}, func(c *Config) any { return &c.InitializerRange }},
	{[]string{"tie_word_embeddings"}, func(c *Config) any { return &c.Tied }},
	{[]string{"attention_bias"}, func(c *Config) any { return &c.AttentionBias }},
	{[]string{"mlp_bias"}, func(c *Config) any { return &c.MLPBias }},
	{[]string{"sliding_window"}, func(c *Config) any { return &c.SlidingWindow }},
	{[]string{"use_sliding_window"}, func(c *Config) any { return &c.UseSlidingWindow }},
	{[]string{"max_window_layers"}, func(c *Config) any { return &c.MaxWindowLayers }},
	{[]string{"layer_types"}, func(c *Config) any { return &c.LayerTypes }},
	{[]string{"attention_dropout", "attn_pdrop"}, func(c *Config) any { return &c.AttentionDropout }},
	{[]string{"resid_pdrop"}, func(c *Config) any { return &c.ResidualDropout }},
	{[]string{"embd_pdrop"}, func(c *Config) any { return &c.EmbeddingDropout }},
	{[]string{"dtype", "torch_dtype"}, func(c *Config) any { return &c.Type }},
	{[]string{"bos_token_id"}, func(c *Config) any { return &c.BOS }},
	{[]string{"eos_token_id"}, func(c *Config) any { return &c.EOS }},
}

// find returns the key under which an object has the field, "" if it does not have it.
func (f field) find(o object) string {
	for _, k := range f.keys {
		if _, ok := o[k]; ok {
			return k
		}
	}
	return ""
}

// read sets the fields that an object has values for; the others stay.
func (c *Config) read(o object) error {
	for _, f := range fields {
		key := f.find(o)
		if key == "" {
			continue
		}
		either := f.keys[0] == "dtype" // the one that says something, first dtype, as in transformers
		if other := f.keys[len(f.keys)-1]; either && isNull(o[key]) && o[other] != nil {
			key = other
		}
		for _, other := range f.keys {
			if text, ok := o[other]; ok && string(text) != string(o[key]) && !either {
				return fmt.Errorf("%s is %s and %s, which means the same, is %s: delete the wrong one from config.json", key, o[key], other, text)
			}
		}
		if err := parseInto(f.pointer(c), o[key]); err != nil {
			return fmt.Errorf("%s is %.80s: %w", key, o[key], err)
		}
	}
	return c.Rope.read(o)
}

// parseInto reads one value; null gives the zero value.
func parseInto(p any, text json.RawMessage) error {
	switch p := p.(type) {
	case *int:
		return parseInt(p, text)
	case *[]int:
		return parseInts(p, text)
	case *float64:
		*p = 0
		return json.Unmarshal(text, p)
	case *bool:
		*p = false
		return json.Unmarshal(text, p)
	case *string:
		*p = ""
		return json.Unmarshal(text, p)
	case *[]string:
		*p = nil
		return json.Unmarshal(text, p)
	case *dtype.Type:
		return parseType(p, text)
	}
	return fmt.Errorf("cannot read a %T", p)
}

// parseInt accepts integers in plain decimal and refuses floats.
func parseInt(p *int, text json.RawMessage) error {
	*p = 0
	if isNull(text) {
		return nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n > math.MaxInt32 || n < math.MinInt32 {
		return fmt.Errorf("an integer of at most 31 bits is needed")
	}
	*p = int(n)
	return nil
}

// parseInts accepts a number or a list of numbers.
func parseInts(p *[]int, text json.RawMessage) error {
	*p = nil
	if isNull(text) {
		return nil
	}
	var items []json.RawMessage
	if text[0] != '[' {
		items = []json.RawMessage{text}
	} else if err := json.Unmarshal(text, &items); err != nil {
		return err
	}
	for _, item := range items {
		var n int
		if err := parseInt(&n, item); err != nil {
			return err
		}
		*p = append(*p, n)
	}
	return nil
}

func parseType(p *dtype.Type, text json.RawMessage) error {
	*p = dtype.Invalid
	var name *string
	if err := json.Unmarshal(text, &name); err != nil || name == nil {
		return err
	}
	t, err := dtype.Parse(strings.TrimPrefix(*name, "torch."))
	*p = t
	return err
}

// merge returns the values that the config was read from, with those changed whose
// fields differ from before, under the keys used there. It reports whether there were
// any.
func (c *Config) merge(before *Config) (object, bool, error) {
	out := maps.Clone(c.values)
	base, _ := defaults(c.ModelType)
	changed := false
	for _, f := range fields {
		if reflect.DeepEqual(f.pointer(c), f.pointer(before)) {
			continue
		}
		key := f.find(out)
		if key == "" && c.derived(f.keys[0]) {
			continue
		}
		changed = true
		if key == "" {
			key = f.find(base)
		}
		if key == "" {
			key = f.keys[0]
		}
		text, err := format(f.pointer(c))
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", key, err)
		}
		out[key] = text
		f.dropOthers(out, key)
	}
	if !reflect.DeepEqual(c.Rope, before.Rope) {
		changed = true
		if err := c.Rope.write(out); err != nil {
			return nil, false, err
		}
	}
	return out, changed, nil
}

// dropOthers removes the other names of a key that was just set.
func (f field) dropOthers(o object, key string) {
	for _, k := range f.keys {
		if k != key {
			delete(o, k)
		}
	}
}

// format writes one value; an empty list and an invalid type are null.
func format(p any) (json.RawMessage, error) {
	switch p := p.(type) {
	case *float64:
		return formatFloat(*p), nil
	case *[]int:
		switch len(*p) {
		case 0:
			return json.RawMessage("null"), nil
		case 1:
			return json.Marshal((*p)[0])
		}
		return json.Marshal(*p)
	case *dtype.Type:
		if *p == dtype.Invalid {
			return json.RawMessage("null"), nil
		}
		return json.Marshal(p.Torch())
	}
	return json.Marshal(p)
}

// formatFloat writes a float as Python does: 10000.0, 1e-05.
func formatFloat(v float64) json.RawMessage {
	if a := math.Abs(v); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(nil, v, 'e', -1, 64)
	}
	text := strconv.AppendFloat(nil, v, 'f', -1, 64)
	if !strings.Contains(string(text), ".") {
		text = append(text, ".0"...)
	}
	return text
}
