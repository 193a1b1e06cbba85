package arch

import (
	"fmt"
	"math"
	"strconv"

	"spillway/graph"
	"spillway/hf"
	"spillway/nn"
	"spillway/op"
)

func init() {
	Register("gpt2", Architecture{gpt2, Keys{
		Read: []string{
			"n_embd", "hidden_size", "n_layer", "num_hidden_layers", "n_head", "num_attention_heads", "n_inner", "intermediate_size",
			"n_positions", "max_position_embeddings", "activation_function", "hidden_act", "layer_norm_epsilon", "attn_pdrop", "resid_pdrop", "embd_pdrop",
			"scale_attn_weights", "scale_attn_by_inverse_layer_idx",
		},
		Harmless: harmless(map[string]string{
			aboutHow:     "n_ctx", // how large a table of old versions is
			aboutWindows: "sliding_window use_sliding_window max_window_layers",
			"the width divided by the heads is all that GPT-2 has": "head_dim num_key_value_heads",
			aboutLabels: "summary_activation summary_first_dropout summary_last_dropout summary_proj_to_labels summary_type summary_use_proj",
		}),
	}})
}

// gpt2Config has the keys of GPT-2's config.json that hf.Config has no fields for.
type gpt2Config struct {
	ScaleAttn    bool `json:"scale_attn_weights"`
	ScaleByLayer bool `json:"scale_attn_by_inverse_layer_idx"`
}

// gpt2 has learned positions, layer norms, and linear weights stored as [in out].
func gpt2(c *hf.Config) (nn.Model, Info, error) {
	own := gpt2Config{ScaleAttn: true}
	if err := extraConfig(c, &own); err != nil {
		return nil, Info{}, err
	}
	f, err := activation(c.Activation)
	switch {
	case err != nil:
		return nil, Info{}, err
	case c.HiddenSize%c.Heads != 0:
		return nil, Info{}, fmt.Errorf("n_embd %d does not divide into n_head %d", c.HiddenSize, c.Heads)
	}
	info := infoOf(c)
	info.Transposed, info.Prefix, info.Buffers = true, "transformer.", []string{".attn.bias", ".attn.masked_bias"}
	maker := gpt2Builder{Config: c, own: own, f: f, width: int64(c.HiddenSize), inner: int64(c.IntermediateSize)}
	return maker.model(), info, nil
}

// GPT2 is the language model of GPT-2.
type GPT2 struct {
	Tokens    *nn.Embedding `hf:"transformer.wte"`
	Positions *nn.Embedding `hf:"transformer.wpe"`
	Layers    []*GPT2Layer  `hf:"transformer.h"`
	Norm      *nn.LayerNorm `hf:"transformer.ln_f"`
	Head      *nn.Linear    `hf:"lm_head"`
	Dropout   nn.Dropout    // of the embeddings
}

// GPT2Layer is attention and an MLP, each behind a norm and added to x.
type GPT2Layer struct {
	Norm1     *nn.LayerNorm `hf:"ln_1"`
	QKV       *nn.Conv1D    `hf:"attn.c_attn"` // queries, keys and values side by side
	Output    *nn.Conv1D    `hf:"attn.c_proj"`
	Norm2     *nn.LayerNorm `hf:"ln_2"`
	Up        *nn.Conv1D    `hf:"mlp.c_fc"`
	Down      *nn.Conv1D    `hf:"mlp.c_proj"`
	Func      nn.Activation
	Attention op.Attr
	Dropout   nn.Dropout // of what is added to x
	nn.Precision
}

// gpt2Builder makes the layers of a model.
type gpt2Builder struct {
	*hf.Config
	own          gpt2Config
	f            op.Func
	width, inner int64
}

func (g *gpt2Builder) model() *GPT2 {
	embedding := func(rows int) *nn.Embedding {
		return &nn.Embedding{Weight: nn.NewParam(nn.Normal(g.InitializerRange), int64(rows), g.width)}
	}
	m := &GPT2{
		Tokens:    embedding(g.VocabSize),
		Positions: embedding(g.MaxPositions),
		Norm:      nn.NewLayerNorm(g.width, g.NormEps),
		Dropout:   nn.Dropout(g.EmbeddingDropout),
	}
	m.Head = &nn.Linear{Weight: m.Tokens.Weight}
	if !g.Tied {
		m.Head.Weight = embedding(g.VocabSize).Weight
	}
	for i := range g.Layers {
		m.Layers = append(m.Layers, g.layer(i))
	}
	return m
}

func (g *gpt2Builder) layer(i int) *GPT2Layer {
	std := g.InitializerRange
	// What is added to x starts smaller the more layers add to it.
	added := std / math.Sqrt(2*float64(g.Layers))
	heads := int64(g.Heads)
	return &GPT2Layer{
		Norm1:     nn.NewLayerNorm(g.width, g.NormEps),
		QKV:       nn.NewConv1D(g.width, 3*g.width, std),
		Output:    nn.NewConv1D(g.width, g.width, added),
		Norm2:     nn.NewLayerNorm(g.width, g.NormEps),
		Up:        nn.NewConv1D(g.width, g.inner, std),
		Down:      nn.NewConv1D(g.inner, g.width, added),
		Func:      nn.Activation(g.f),
		Attention: op.Attr{Heads: heads, KVHeads: heads, Scale: g.scale(i), Prob: g.AttentionDropout},
		Dropout:   nn.Dropout(g.ResidualDropout),
	}
}

// scale of the attention scores of a layer.
func (g *gpt2Builder) scale(layer int) float64 {
	s := 1.0
	if g.own.ScaleAttn {
		s = 1 / math.Sqrt(float64(g.HiddenSize/g.Heads))
	}
	if g.own.ScaleByLayer {
		s /= float64(layer + 1)
	}
	return s
}

// Blocks are the embeddings, each layer, and the head with the last norm.
func (m *GPT2) Blocks() []nn.Block {
	blocks := []nn.Block{{Name: "transformer.wte", Forward: m.embed}}
	for i, l := range m.Layers {
		blocks = append(blocks, nn.Block{Name: "transformer.h." + strconv.Itoa(i), Forward: l.forward})
	}
	return append(blocks, nn.Block{Name: "lm_head", Forward: m.head})
}

// Output is lm_head, the linear layer that makes the logits.
func (m *GPT2) Output() *nn.Linear { return m.Head }

func (m *GPT2) embed(b *graph.Builder, _ []graph.Value) []graph.Value {
	seq, learned := b.Seq, m.Positions.Weight.Shape[0]
	if b.Cache != nil {
		seq = b.Cache.Context
	}
	if seq > learned {
		b.Fail("sequences have %d positions, the model has learned %d and has no others; use at most %d (--seq-len)", seq, learned, learned)
	}
	x := b.Add(m.Tokens.Forward(b, nn.Tokens(b)), m.Positions.Forward(b, nn.Positions(b)))
	return []graph.Value{m.Dropout.Forward(b, x)}
}

func (l *GPT2Layer) forward(b *graph.Builder, in []graph.Value) []graph.Value {
	return []graph.Value{l.In(b, in[0], func(x graph.Value) graph.Value {
		x = b.Add(x, l.Dropout.Forward(b, l.attend(b, l.Norm1.Forward(b, x))))
		h := l.Func.Forward(b, l.Up.Forward(b, l.Norm2.Forward(b, x)))
		return b.Add(x, l.Dropout.Forward(b, l.Down.Forward(b, h)))
	})}
}

func (l *GPT2Layer) attend(b *graph.Builder, x graph.Value) graph.Value {
	width := b.TypeOf(x).Shape.Last()
	qkv := b.Split(l.QKV.Forward(b, x), width, width, width)
	return l.Output.Forward(b, nn.CausalAttention(b, l.Attention, qkv[0], qkv[1], qkv[2]))
}

func (m *GPT2) head(b *graph.Builder, in []graph.Value) []graph.Value {
	return []graph.Value{nn.NextToken(b, m.Norm.Forward(b, in[0]), m.Head)}
}
