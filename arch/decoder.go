package arch

import (
	"encoding/json"
	"fmt"
	"strconv"

	"spillway/graph"
	"spillway/nn"
	"spillway/op"
)

// decoderConfig is the config.json the Llama family shares.
type decoderConfig struct {
	Vocab        int64    `json:"vocab_size"`
	Width        int64    `json:"hidden_size"`
	Intermediate int64    `json:"intermediate_size"`
	Layers       int64    `json:"num_hidden_layers"`
	Heads        int64    `json:"num_attention_heads"`
	KVHeads      *int64   `json:"num_key_value_heads"`
	HeadDim      *int64   `json:"head_dim"`
	Context      int64    `json:"max_position_embeddings"`
	Activation   string   `json:"hidden_act"`
	Eps          float64  `json:"rms_norm_eps"`
	InitStd      float64  `json:"initializer_range"`
	Dropout      float64  `json:"attention_dropout"`
	Tied         bool     `json:"tie_word_embeddings"`
	Bias         bool     `json:"attention_bias"`
	MLPBias      bool     `json:"mlp_bias"`
	Theta        *float64 `json:"rope_theta"`
	DType        string   `json:"dtype"`
	TorchDType   string   `json:"torch_dtype"`

	RopeParameters json.RawMessage `json:"rope_parameters"`
	RopeScaling    json.RawMessage `json:"rope_scaling"`

	Window          *int64   `json:"sliding_window"`
	UseWindow       bool     `json:"use_sliding_window"`
	MaxWindowLayers int64    `json:"max_window_layers"`
	LayerTypes      []string `json:"layer_types"`
}

// variant is what an architecture of the family adds to the config.
type variant struct {
	qkvBias, outputBias bool
	headNorms           bool
	window              func(layer int64) int64 // 0: all positions
}

// decoderDefaults are those transformers gives to most of the family.
func decoderDefaults() decoderConfig {
	return decoderConfig{
		Vocab: 32000, Width: 4096, Intermediate: 11008, Layers: 32, Heads: 32,
		Context: 2048, Activation: "silu", Eps: 1e-6, InitStd: 0.02,
	}
}

// complete reads a config over defaults, derives what is left out and checks all.
func (c *decoderConfig) complete(config []byte) error {
	if err := json.Unmarshal(config, c); err != nil {
		return fmt.Errorf("reading config.json: %w", err)
	}
	if c.KVHeads == nil {
		c.KVHeads = &c.Heads
	}
	err := firstError(
		inBounds(bound{"vocab_size", c.Vocab, maxVocab}, bound{"hidden_size", c.Width, maxWidth},
			bound{"intermediate_size", c.Intermediate, maxWidth}, bound{"num_hidden_layers", c.Layers, maxLayers},
			bound{"num_attention_heads", c.Heads, maxHeads}, bound{"num_key_value_heads", *c.KVHeads, maxHeads},
			bound{"max_position_embeddings", c.Context, maxSeq}),
		positive("rms_norm_eps", c.Eps), positive("initializer_range", c.InitStd), fraction("attention_dropout", c.Dropout))
	if err != nil {
		return err
	}
	return c.completeHeads()
}

func (c *decoderConfig) completeHeads() error {
	if c.HeadDim == nil {
		if c.Width%c.Heads != 0 {
			return fmt.Errorf("hidden_size %d does not divide into num_attention_heads %d, and head_dim is not given", c.Width, c.Heads)
		}
		c.HeadDim = pointer(c.Width / c.Heads)
	}
	if c.Heads%*c.KVHeads != 0 {
		return fmt.Errorf("num_attention_heads %d is no multiple of num_key_value_heads %d", c.Heads, *c.KVHeads)
	}
	if c.Window != nil {
		if err := inBounds(bound{"sliding_window", *c.Window, maxSeq}); err != nil {
			return err
		}
	}
	return inBounds(bound{"head_dim", *c.HeadDim, maxHead})
}

func (c *decoderConfig) info() (Info, error) {
	d, err := torchType(c.DType, c.TorchDType)
	return Info{
		DType: d, Vocab: c.Vocab, Context: c.Context, Layers: c.Layers, Width: c.Width,
		Tied: c.Tied, Prefix: "model.", Buffers: []string{".rotary_emb.inv_freq"},
	}, err
}

// Decoder is a causal language model of the Llama family.
type Decoder struct {
	Embed  *nn.Embedding   `hf:"model.embed_tokens"`
	Layers []*DecoderLayer `hf:"model.layers"`
	Norm   *nn.RMSNorm     `hf:"model.norm"`
	Head   *nn.Linear      `hf:"lm_head"`
}

// DecoderLayer is attention and a gated MLP, each behind a norm and added to x.
type DecoderLayer struct {
	Attention     *nn.SelfAttention `hf:"self_attn"`
	MLP           *nn.GatedMLP      `hf:"mlp"`
	InputNorm     *nn.RMSNorm       `hf:"input_layernorm"`
	AttentionNorm *nn.RMSNorm       `hf:"post_attention_layernorm"`
}

// decoder builds the model.
func (c *decoderConfig) decoder(v variant) (nn.Model, Info, error) {
	ropes, err := parseRope(c.RopeParameters, c.RopeScaling, c.Theta)
	if err != nil {
		return nil, Info{}, err
	}
	rope, err := ropes.rope(*c.HeadDim, c.Context)
	if err != nil {
		return nil, Info{}, err
	}
	f, err := activation(c.Activation)
	if err != nil {
		return nil, Info{}, err
	}
	m := &Decoder{
		Embed: &nn.Embedding{Weight: nn.NewParam(nn.Normal(c.InitStd), c.Vocab, c.Width)},
		Norm:  nn.NewRMSNorm(c.Width, c.Eps),
		Head:  c.linear(c.Width, c.Vocab, false),
	}
	if c.Tied {
		m.Head.Weight = m.Embed.Weight
	}
	for i := range c.Layers {
		m.Layers = append(m.Layers, c.layer(v, rope, f, i))
	}
	info, err := c.info()
	return m, info, err
}

func (c *decoderConfig) layer(v variant, rope *nn.Rope, f op.Func, i int64) *DecoderLayer {
	return &DecoderLayer{
		Attention: c.attention(v, rope, i),
		MLP: &nn.GatedMLP{
			Gate: c.linear(c.Width, c.Intermediate, c.MLPBias),
			Up:   c.linear(c.Width, c.Intermediate, c.MLPBias),
			Down: c.linear(c.Intermediate, c.Width, c.MLPBias),
			Func: f,
		},
		InputNorm:     nn.NewRMSNorm(c.Width, c.Eps),
		AttentionNorm: nn.NewRMSNorm(c.Width, c.Eps),
	}
}

func (c *decoderConfig) attention(v variant, rope *nn.Rope, i int64) *nn.SelfAttention {
	q, kv := c.Heads**c.HeadDim, *c.KVHeads**c.HeadDim
	a := &nn.SelfAttention{
		Query:  c.linear(c.Width, q, v.qkvBias),
		Key:    c.linear(c.Width, kv, v.qkvBias),
		Value:  c.linear(c.Width, kv, v.qkvBias),
		Output: c.linear(q, c.Width, v.outputBias),
		Heads:  c.Heads, KVHeads: *c.KVHeads, HeadDim: *c.HeadDim,
		Rope: rope, Window: v.window(i), Dropout: c.Dropout,
	}
	if v.headNorms {
		a.QueryNorm, a.KeyNorm = nn.NewRMSNorm(*c.HeadDim, c.Eps), nn.NewRMSNorm(*c.HeadDim, c.Eps)
	}
	return a
}

func (c *decoderConfig) linear(in, out int64, bias bool) *nn.Linear {
	l := &nn.Linear{Weight: nn.NewParam(nn.Normal(c.InitStd), out, in)}
	if bias {
		l.Bias = nn.NewParam(nn.Constant(0), out)
	}
	return l
}

// Blocks are the embedding, each layer, and the head with the last norm.
func (m *Decoder) Blocks() []nn.Block {
	blocks := make([]nn.Block, 0, len(m.Layers)+2)
	blocks = append(blocks, nn.Block{Name: "model.embed_tokens", Forward: m.embed})
	for i, l := range m.Layers {
		blocks = append(blocks, nn.Block{Name: "model.layers." + strconv.Itoa(i), Forward: l.forward})
	}
	return append(blocks, nn.Block{Name: "lm_head", Forward: m.head})
}

// Output is the product that makes the logits.
func (m *Decoder) Output() *nn.Linear { return m.Head }

func (m *Decoder) embed(b *graph.Builder, _ []graph.Value) []graph.Value {
	return []graph.Value{m.Embed.Forward(b, nn.Tokens(b))}
}

func (l *DecoderLayer) forward(b *graph.Builder, in []graph.Value) []graph.Value {
	x := in[0]
	x = b.Add(x, l.Attention.Forward(b, l.InputNorm.Forward(b, x)))
	x = b.Add(x, l.MLP.Forward(b, l.AttentionNorm.Forward(b, x)))
	return []graph.Value{x}
}

func (m *Decoder) head(b *graph.Builder, in []graph.Value) []graph.Value {
	return []graph.Value{nn.NextToken(b, m.Norm.Forward(b, in[0]), m.Head)}
}
