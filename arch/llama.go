package arch

import (
	"strconv"

	"spillway/graph"
	"spillway/hf"
	"spillway/nn"
	"spillway/op"
)

func init() {
	Register("llama", Architecture{llama, Keys{
		Read:     append([]string{"attention_bias", "mlp_bias"}, llamaKeys...),
		Harmless: harmless(map[string]string{aboutWindows: "sliding_window use_sliding_window max_window_layers"}),
	}})
}

// llama is Llama 1 to 3.3: attention_bias puts biases on all four projections.
func llama(c *hf.Config) (nn.Model, Info, error) {
	return llamaFamily(c, llamaVariant{
		qkvBias: c.AttentionBias, outputBias: c.AttentionBias,
		window: func(int) int { return 0 },
	})
}

// Llama is the causal language model of Llama and its relatives: Mistral and Qwen are
// variants of it. Fields carry the names that weights have in a Hugging Face folder.
type Llama struct {
	Embed  *nn.Embedding `hf:"model.embed_tokens"`
	Layers []*LlamaLayer `hf:"model.layers"`
	Norm   *nn.RMSNorm   `hf:"model.norm"`
	Head   *nn.Linear    `hf:"lm_head"`
}

// LlamaLayer is attention and a gated MLP, each behind a norm and added to x.
type LlamaLayer struct {
	Attention     *nn.SelfAttention `hf:"self_attn"`
	MLP           *nn.GatedMLP      `hf:"mlp"`
	InputNorm     *nn.RMSNorm       `hf:"input_layernorm"`
	AttentionNorm *nn.RMSNorm       `hf:"post_attention_layernorm"`
	nn.Precision
}

// Blocks are the embedding, each layer, and the head with the last norm.
func (m *Llama) Blocks() []nn.Block {
	blocks := make([]nn.Block, 0, len(m.Layers)+2)
	blocks = append(blocks, nn.Block{Name: "model.embed_tokens", Forward: m.embed})
	for i, l := range m.Layers {
		blocks = append(blocks, nn.Block{Name: "model.layers." + strconv.Itoa(i), Forward: l.forward})
	}
	return append(blocks, nn.Block{Name: "lm_head", Forward: m.head})
}

// Output is lm_head, the linear layer that makes the logits.
func (m *Llama) Output() *nn.Linear { return m.Head }

func (m *Llama) embed(b *graph.Builder, _ []graph.Value) []graph.Value {
	return []graph.Value{m.Embed.Forward(b, nn.Tokens(b))}
}

func (l *LlamaLayer) forward(b *graph.Builder, in []graph.Value) []graph.Value {
	return []graph.Value{l.In(b, in[0], func(x graph.Value) graph.Value {
		x = b.Add(x, l.Attention.Forward(b, l.InputNorm.Forward(b, x)))
		return b.Add(x, l.MLP.Forward(b, l.AttentionNorm.Forward(b, x)))
	})}
}

func (m *Llama) head(b *graph.Builder, in []graph.Value) []graph.Value {
	return []graph.Value{nn.NextToken(b, m.Norm.Forward(b, in[0]), m.Head)}
}

// llamaVariant is in what the architectures of the family differ.
type llamaVariant struct {
	qkvBias, outputBias bool
	headNorms           bool
	window              func(layer int) int // positions a layer looks back, 0 for all
}

// llamaFamily makes the model of a config.
func llamaFamily(c *hf.Config, v llamaVariant) (nn.Model, Info, error) {
	rope, err := rope(c)
	if err != nil {
		return nil, Info{}, err
	}
	f, err := activation(c.Activation)
	if err != nil {
		return nil, Info{}, err
	}
	d := llamaBuilder{
		Config: c, llamaVariant: v, rope: rope, f: f,
		width: int64(c.HiddenSize), inner: int64(c.IntermediateSize), head: int64(c.HeadDim),
	}
	info := infoOf(c)
	info.Prefix, info.Buffers = "model.", []string{".rotary_emb.inv_freq"}
	return d.model(), info, nil
}

// llamaBuilder makes the layers of a model.
type llamaBuilder struct {
	*hf.Config
	llamaVariant
	rope               *nn.Rope
	f                  op.Func
	width, inner, head int64
}

func (d *llamaBuilder) model() *Llama {
	m := &Llama{
		Embed: &nn.Embedding{Weight: nn.NewParam(nn.Normal(d.InitializerRange), int64(d.VocabSize), d.width)},
		Norm:  nn.NewRMSNorm(d.width, d.NormEps),
		Head:  d.linear(d.width, int64(d.VocabSize), false),
	}
	if d.Tied {
		m.Head.Weight = m.Embed.Weight
	}
	for i := range d.Config.Layers {
		m.Layers = append(m.Layers, d.layer(i))
	}
	return m
}

func (d *llamaBuilder) layer(i int) *LlamaLayer {
	return &LlamaLayer{
		Attention: d.attention(i),
		MLP: &nn.GatedMLP{
			Gate: d.linear(d.width, d.inner, d.MLPBias),
			Up:   d.linear(d.width, d.inner, d.MLPBias),
			Down: d.linear(d.inner, d.width, d.MLPBias),
			Func: d.f,
		},
		InputNorm:     nn.NewRMSNorm(d.width, d.NormEps),
		AttentionNorm: nn.NewRMSNorm(d.width, d.NormEps),
	}
}

func (d *llamaBuilder) attention(i int) *nn.SelfAttention {
	heads, kvHeads := int64(d.Heads), int64(d.KVHeads)
	a := &nn.SelfAttention{
		Query:  d.linear(d.width, heads*d.head, d.qkvBias),
		Key:    d.linear(d.width, kvHeads*d.head, d.qkvBias),
		Value:  d.linear(d.width, kvHeads*d.head, d.qkvBias),
		Output: d.linear(heads*d.head, d.width, d.outputBias),
		Heads:  heads, KVHeads: kvHeads, HeadDim: d.head,
		Rope: d.rope, Window: int64(d.window(i)), Dropout: d.AttentionDropout,
	}
	if d.headNorms {
		a.QueryNorm, a.KeyNorm = nn.NewRMSNorm(d.head, d.NormEps), nn.NewRMSNorm(d.head, d.NormEps)
	}
	return a
}

func (d *llamaBuilder) linear(in, out int64, bias bool) *nn.Linear {
	l := &nn.Linear{Weight: nn.NewParam(nn.Normal(d.InitializerRange), out, in)}
	if bias {
		l.Bias = nn.NewParam(nn.Constant(0), out)
	}
	return l
}
