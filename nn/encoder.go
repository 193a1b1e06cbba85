package nn

import (
	"math"
	"strconv"

	"spillway/graph"
	"spillway/op"
)

// EncoderMasks say what positions of an encoder may not look at.
type EncoderMasks struct {
	Causal bool // later positions
	// Scores: batch part "mask" [T T] is added to the scores (src_mask).
	Scores bool
	// Keys: batch part "key_mask" [B T] is 0 where a position is padding; PyTorch's
	// src_key_padding_mask says the opposite.
	Keys bool
}

// MultiheadAttention is PyTorch's, of a sequence to itself or, by Attend, to another of its width.
type MultiheadAttention struct {
	InWeight *Param  `hf:"in_proj_weight"`        // [3·D D]: queries, keys, values
	InBias   *Param  `hf:"in_proj_bias,optional"` // [3·D]
	Output   *Linear `hf:"out_proj"`
	Heads    int64
	Dropout  float64 // of the attention weights
	Masks    EncoderMasks
	Precision
}

// NewMultiheadAttention starts as PyTorch's.
func NewMultiheadAttention(width, heads int64) *MultiheadAttention {
	a := &MultiheadAttention{
		InWeight: NewParam(Uniform(math.Sqrt(6/float64(4*width))), 3*width, width),
		InBias:   NewParam(Constant(0), 3*width),
		Output:   NewLinear(width, width),
		Heads:    heads,
	}
	a.Output.Bias.Init = Constant(0)
	return a
}

// Forward maps x [B T D] to the same shape, with the masks of the batch that Masks names.
func (a *MultiheadAttention) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return a.Attend(b, x, x, a.Masks.ofBatch(b))
}

// Attend is attention of x [B T D] to other [B S D], which may be x, with masks that are given; of Masks it heeds Causal.
func (a *MultiheadAttention) Attend(b *graph.Builder, x, other graph.Value, masks graph.AttentionMasks) graph.Value {
	itself := x == other
	return a.In(b, x, func(x graph.Value) graph.Value {
		of := x
		if !itself {
			of = b.Cast(other, b.DType)
		}
		qkv := a.projected(b, x, of)
		attr := op.Attr{Heads: a.Heads, Causal: a.Masks.Causal, Prob: a.Dropout}
		return a.Output.Forward(b, b.Attention(attr, qkv[0], qkv[1], qkv[2], masks))
	})
}

// projected are queries of x, and keys and values of other: by one matmul where they are the same.
func (a *MultiheadAttention) projected(b *graph.Builder, x, other graph.Value) []graph.Value {
	width := b.TypeOf(x).Shape.Last()
	w, bias := a.InWeight.Value(b), a.InBias.Value(b)
	if x == other {
		return b.Split(b.Linear(x, w, bias), width, width, width)
	}
	rows, biases := b.SplitAxis(w, 0, width, 2*width), []graph.Value{0, 0}
	if bias != 0 {
		biases = b.SplitAxis(bias, 0, width, 2*width)
	}
	return append([]graph.Value{b.Linear(x, rows[0], biases[0])}, b.Split(b.Linear(other, rows[1], biases[1]), width, width)...)
}

// ofBatch are the masks that are tensors of the batch.
func (m EncoderMasks) ofBatch(b *graph.Builder) (masks graph.AttentionMasks) {
	if m.Scores {
		masks.Mask = Mask(b)
	}
	if m.Keys {
		masks.KeyMask = KeyMask(b)
	}
	return masks
}

// TransformerEncoderLayer is PyTorch's layer of the same name.
type TransformerEncoderLayer struct {
	Attention *MultiheadAttention `hf:"self_attn"`
	Linear1   *Linear             `hf:"linear1"`
	Linear2   *Linear             `hf:"linear2"`
	Norm1     *LayerNorm          `hf:"norm1"`
	Norm2     *LayerNorm          `hf:"norm2"`
	// NormFirst puts the norms before attention and MLP instead of after the sums.
	NormFirst bool
	Func      Activation
	Dropout   Dropout // inside the MLP and of what is added to x
	Precision
}

// EncoderConfig are the arguments of PyTorch's layer, and of the stack of them.
type EncoderConfig struct {
	Width, Heads, Inner int64
	Layers              int64
	Dropout             float64
	Func                Activation
	Eps                 float64
	NormFirst           bool
	// FinalNorm adds a norm after the last layer.
	FinalNorm bool
	// NoBias leaves all biases out.
	NoBias bool
	Masks  EncoderMasks
}

// NewTransformerEncoderLayer makes a layer that starts as PyTorch's.
func NewTransformerEncoderLayer(c EncoderConfig) *TransformerEncoderLayer {
	l := &TransformerEncoderLayer{
		Attention: NewMultiheadAttention(c.Width, c.Heads),
		Linear1:   NewLinear(c.Width, c.Inner),
		Linear2:   NewLinear(c.Inner, c.Width),
		Norm1:     NewLayerNorm(c.Width, c.Eps),
		Norm2:     NewLayerNorm(c.Width, c.Eps),
		NormFirst: c.NormFirst, Func: c.Func, Dropout: Dropout(c.Dropout),
	}
	l.Attention.Dropout, l.Attention.Masks = c.Dropout, c.Masks
	if c.NoBias {
		l.Attention.InBias, l.Attention.Output.Bias = nil, nil
		l.Linear1.Bias, l.Linear2.Bias, l.Norm1.Bias, l.Norm2.Bias = nil, nil, nil, nil
	}
	return l
}

// Forward maps x [B T D] to the same shape, with the masks of the batch that Attention.Masks names.
func (l *TransformerEncoderLayer) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return l.ForwardMasked(b, x, l.Attention.Masks.ofBatch(b))
}

// ForwardMasked is Forward with masks that are given, as for sequences of another length than b.Seq.
func (l *TransformerEncoderLayer) ForwardMasked(b *graph.Builder, x graph.Value, masks graph.AttentionMasks) graph.Value {
	return l.In(b, x, func(x graph.Value) graph.Value {
		x = l.added(b, l.Norm1, x, func(x graph.Value) graph.Value { return l.Attention.Attend(b, x, x, masks) })
		return l.added(b, l.Norm2, x, func(x graph.Value) graph.Value { return l.feed(b, x) })
	})
}

// added is x with what a part of the layer makes of it, and a norm before that part or behind the sum.
func (l *TransformerEncoderLayer) added(b *graph.Builder, norm *LayerNorm, x graph.Value, part func(x graph.Value) graph.Value) graph.Value {
	if l.NormFirst {
		return b.Add(x, l.Dropout.Forward(b, part(norm.Forward(b, x))))
	}
	return norm.Forward(b, b.Add(x, l.Dropout.Forward(b, part(x))))
}

func (l *TransformerEncoderLayer) feed(b *graph.Builder, x graph.Value) graph.Value {
	return l.Linear2.Forward(b, l.Dropout.Forward(b, l.Func.Forward(b, l.Linear1.Forward(b, x))))
}

// TransformerDecoderLayer is PyTorch's layer of the same name: an encoder's, that looks at the memory of an encoder between its attention and its MLP.
type TransformerDecoderLayer struct {
	TransformerEncoderLayer `hf:""`
	Cross                   *MultiheadAttention `hf:"multihead_attn"`
	Norm3                   *LayerNorm          `hf:"norm3"`
}

// NewTransformerDecoderLayer makes a layer that starts as PyTorch's. Masks of the config are those of its attention to itself: Causal mostly.
func NewTransformerDecoderLayer(c EncoderConfig) *TransformerDecoderLayer {
	l := &TransformerDecoderLayer{*NewTransformerEncoderLayer(c), NewMultiheadAttention(c.Width, c.Heads), NewLayerNorm(c.Width, c.Eps)}
	if l.Cross.Dropout = c.Dropout; c.NoBias {
		l.Cross.InBias, l.Cross.Output.Bias, l.Norm3.Bias = nil, nil, nil
	}
	return l
}

// Forward maps x [B T D] and a memory [B S D] to [B T D]. Masks are those of x and of the memory: PyTorch's tgt_mask and tgt_key_padding_mask, memory_mask and
// memory_key_padding_mask, of which the second says the opposite of KeyMask.
func (l *TransformerDecoderLayer) Forward(b *graph.Builder, x, memory graph.Value, own, other graph.AttentionMasks) graph.Value {
	return l.In(b, x, func(x graph.Value) graph.Value {
		x = l.added(b, l.Norm1, x, func(x graph.Value) graph.Value { return l.Attention.Attend(b, x, x, own) })
		x = l.added(b, l.Norm2, x, func(x graph.Value) graph.Value { return l.Cross.Attend(b, x, memory, other) })
		return l.added(b, l.Norm3, x, func(x graph.Value) graph.Value { return l.feed(b, x) })
	})
}

// TransformerEncoder is PyTorch's stack of layers. It is a layer, and a whole model
// from batch part "input" [B T D] to its Loss.
type TransformerEncoder struct {
	Layers []*TransformerEncoderLayer `hf:"layers"`
	Norm   *LayerNorm                 `hf:"norm,optional"`
	Loss   Loss
}

// NewTransformerEncoder makes a stack that starts as PyTorch's, with MeanSquare loss.
func NewTransformerEncoder(c EncoderConfig) *TransformerEncoder {
	e := &TransformerEncoder{Loss: MeanSquare}
	for range c.Layers {
		e.Layers = append(e.Layers, NewTransformerEncoderLayer(c))
	}
	if c.FinalNorm {
		e.Norm = NewLayerNorm(c.Width, c.Eps)
		if c.NoBias {
			e.Norm.Bias = nil
		}
	}
	return e
}

// Forward maps x [B T D] to the same shape.
func (e *TransformerEncoder) Forward(b *graph.Builder, x graph.Value) graph.Value {
	for _, l := range e.Layers {
		x = l.Forward(b, x)
	}
	return e.normed(b, x)
}

func (e *TransformerEncoder) normed(b *graph.Builder, x graph.Value) graph.Value {
	if e.Norm == nil {
		return x
	}
	return e.Norm.Forward(b, x)
}

// Blocks are the layers; the first reads the input, the last has the norm and loss.
func (e *TransformerEncoder) Blocks() []Block {
	blocks := make([]Block, len(e.Layers))
	for i := range blocks {
		blocks[i] = Block{"layers." + strconv.Itoa(i), func(b *graph.Builder, in []graph.Value) []graph.Value {
			l := e.Layers[i]
			if i == 0 {
				in = []graph.Value{Input(b, b.Seq, l.Norm1.Weight.Shape.Last())}
			}
			x := l.Forward(b, in[0])
			if i == len(e.Layers)-1 {
				x = e.Loss.Forward(b, e.normed(b, x))
			}
			return []graph.Value{x}
		}}
	}
	return blocks
}
