package arch

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"spillway/graph"
	"spillway/nn"
	"spillway/op"
)

func init() { Register("gpt2", gpt2) }

type gpt2Config struct {
	Vocab          int64   `json:"vocab_size"`
	Context        int64   `json:"n_positions"`
	Width          int64   `json:"n_embd"`
	Layers         int64   `json:"n_layer"`
	Heads          int64   `json:"n_head"`
	Inner          *int64  `json:"n_inner"`
	Activation     string  `json:"activation_function"`
	ResidDropout   float64 `json:"resid_pdrop"`
	EmbedDropout   float64 `json:"embd_pdrop"`
	AttnDropout    float64 `json:"attn_pdrop"`
	Eps            float64 `json:"layer_norm_epsilon"`
	InitStd        float64 `json:"initializer_range"`
	ScaleAttn      bool    `json:"scale_attn_weights"`
	ScaleByLayer   bool    `json:"scale_attn_by_inverse_layer_idx"`
	Tied           bool    `json:"tie_word_embeddings"`
	CrossAttention bool    `json:"add_cross_attention"`
	DType          string  `json:"dtype"`
	TorchDType     string  `json:"torch_dtype"`
}

// gpt2 has learned positions, layer norms, and products stored as [in out].
func gpt2(config []byte) (nn.Model, Info, error) {
	c := gpt2Config{
		Vocab: 50257, Context: 1024, Width: 768, Layers: 12, Heads: 12, Activation: "gelu_new",
		ResidDropout: 0.1, EmbedDropout: 0.1, AttnDropout: 0.1, Eps: 1e-5, InitStd: 0.02,
		ScaleAttn: true, Tied: true,
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return nil, Info{}, fmt.Errorf("reading config.json: %w", err)
	}
	if c.Inner == nil {
		c.Inner = pointer(4 * c.Width)
	}
	if err := c.check(); err != nil {
		return nil, Info{}, err
	}
	f, err := activation(c.Activation)
	if err != nil {
		return nil, Info{}, err
	}
	d, err := torchType(c.DType, c.TorchDType)
	return c.model(f), Info{
		DType: d, Vocab: c.Vocab, Context: c.Context, Layers: c.Layers, Width: c.Width, Tied: c.Tied,
		Prefix: "transformer.", Buffers: []string{".attn.bias", ".attn.masked_bias"},
	}, err
}

func (c *gpt2Config) check() error {
	err := firstError(
		inBounds(bound{"vocab_size", c.Vocab, maxVocab}, bound{"n_positions", c.Context, maxSeq},
			bound{"n_embd", c.Width, maxWidth}, bound{"n_layer", c.Layers, maxLayers},
			bound{"n_head", c.Heads, maxHeads}, bound{"n_inner", *c.Inner, 4 * maxWidth}),
		positive("layer_norm_epsilon", c.Eps), positive("initializer_range", c.InitStd),
		fraction("resid_pdrop", c.ResidDropout), fraction("embd_pdrop", c.EmbedDropout), fraction("attn_pdrop", c.AttnDropout))
	switch {
	case err != nil:
		return err
	case c.Width%c.Heads != 0:
		return fmt.Errorf("n_embd %d does not divide into n_head %d", c.Width, c.Heads)
	case c.CrossAttention:
		return fmt.Errorf("add_cross_attention is not supported")
	}
	return nil
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
}

func (c *gpt2Config) model(f op.Func) *GPT2 {
	m := &GPT2{
		Tokens:    &nn.Embedding{Weight: nn.NewParam(nn.Normal(c.InitStd), c.Vocab, c.Width)},
		Positions: &nn.Embedding{Weight: nn.NewParam(nn.Normal(c.InitStd), c.Context, c.Width)},
		Norm:      nn.NewLayerNorm(c.Width, c.Eps),
		Dropout:   nn.Dropout(c.EmbedDropout),
	}
	m.Head = &nn.Linear{Weight: m.Tokens.Weight}
	if !c.Tied {
		m.Head.Weight = nn.NewParam(nn.Normal(c.InitStd), c.Vocab, c.Width)
	}
	for i := range c.Layers {
		m.Layers = append(m.Layers, c.layer(f, i))
	}
	return m
}

func (c *gpt2Config) layer(f op.Func, i int64) *GPT2Layer {
	// What is added to x starts smaller the more layers add to it.
	added := c.InitStd / math.Sqrt(2*float64(c.Layers))
	return &GPT2Layer{
		Norm1:     nn.NewLayerNorm(c.Width, c.Eps),
		QKV:       nn.NewConv1D(c.Width, 3*c.Width, c.InitStd),
		Output:    nn.NewConv1D(c.Width, c.Width, added),
		Norm2:     nn.NewLayerNorm(c.Width, c.Eps),
		Up:        nn.NewConv1D(c.Width, *c.Inner, c.InitStd),
		Down:      nn.NewConv1D(*c.Inner, c.Width, added),
		Func:      nn.Activation(f),
		Attention: op.Attr{Heads: c.Heads, KVHeads: c.Heads, Scale: c.scale(i), Causal: true, Prob: c.AttnDropout},
		Dropout:   nn.Dropout(c.ResidDropout),
	}
}

// scale of the attention scores of a layer.
func (c *gpt2Config) scale(layer int64) float64 {
	s := 1.0
	if c.ScaleAttn {
		s = 1 / math.Sqrt(float64(c.Width/c.Heads))
	}
	if c.ScaleByLayer {
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

// Output is the product that makes the logits.
func (m *GPT2) Output() *nn.Linear { return m.Head }

func (m *GPT2) embed(b *graph.Builder, _ []graph.Value) []graph.Value {
	if learned := m.Positions.Weight.Shape[0]; b.Seq > learned {
		b.Fail("a sequence of %d positions, the model has learned %d; use a shorter one", b.Seq, learned)
	}
	x := b.Add(m.Tokens.Forward(b, nn.Tokens(b)), m.Positions.Forward(b, nn.Positions(b)))
	return []graph.Value{m.Dropout.Forward(b, x)}
}

func (l *GPT2Layer) forward(b *graph.Builder, in []graph.Value) []graph.Value {
	x := in[0]
	x = b.Add(x, l.Dropout.Forward(b, l.attend(b, l.Norm1.Forward(b, x))))
	h := l.Func.Forward(b, l.Up.Forward(b, l.Norm2.Forward(b, x)))
	return []graph.Value{b.Add(x, l.Dropout.Forward(b, l.Down.Forward(b, h)))}
}

func (l *GPT2Layer) attend(b *graph.Builder, x graph.Value) graph.Value {
	width := b.TypeOf(x).Shape.Last()
	qkv := b.Split(l.QKV.Forward(b, x), width, width, width)
	masks := graph.AttentionMasks{Segments: nn.Segments(b)}
	return l.Output.Forward(b, b.Attention(l.Attention, qkv[0], qkv[1], qkv[2], masks))
}

func (m *GPT2) head(b *graph.Builder, in []graph.Value) []graph.Value {
	return []graph.Value{nn.NextToken(b, m.Norm.Forward(b, in[0]), m.Head)}
}
