package vision

import (
	"math"
	"strconv"

	"spillway/graph"
	"spillway/nn"
	"spillway/op"
)

// ViT is a transformer over patches of an image.
type ViT struct {
	Patches   *nn.Conv      `hf:"patch_embed.proj"`
	Class     *nn.Param     `hf:"cls_token"` // [1 1 D]
	Positions *nn.Param     `hf:"pos_embed"` // [1 1+patches D]
	Layers    []*ViTLayer   `hf:"blocks"`
	Norm      *nn.LayerNorm `hf:"norm"`
	Head      *nn.Linear    `hf:"head"`
	Size      int64         // of images
}

// NewViT cuts images of a size into patches.
func NewViT(size, patch, width, layers, heads, classes int64) *ViT {
	n := size / patch
	m := &ViT{Patches: nn.NewConv2d(3, width, patch).Strided(patch, 0), Class: nn.NewParam(nn.Normal(1e-6), 1, 1, width),
		Positions: nn.NewParam(nn.Normal(0.02), 1, 1+n*n, width), Norm: nn.NewLayerNorm(width, 1e-6), Head: nn.NewLinear(width, classes), Size: size}
	for range layers {
		m.Layers = append(m.Layers, &ViTLayer{nn.NewLayerNorm(width, 1e-6), nn.NewLinear(width, 3*width), nn.NewLinear(width, width),
			nn.NewLayerNorm(width, 1e-6), nn.NewLinear(width, 4*width), nn.NewLinear(4*width, width), heads})
	}
	return m
}

// NewViTB16 is ViT-B/16 for images of 224 and 1000 classes.
func NewViTB16() *ViT { return NewViT(224, 16, 768, 12, 12, 1000) }

// Blocks are the patches, the layers, and the head.
func (m *ViT) Blocks() []nn.Block {
	list := []nn.Block{block("patch_embed", func(b *graph.Builder, _ graph.Value) graph.Value {
		x := b.Flatten(m.Patches.Forward(b, images(b, m.Size)), 1, 2)
		dims := m.Positions.Shape
		if b.Err() != nil {
			return 0
		}
		class := b.Expand(m.Class.Value(b), b.TypeOf(x).Shape[0], 1, dims[2])
		return b.Add(b.ConcatAxis(1, class, x), b.Reshape(m.Positions.Value(b), dims[1:]...))
	})}
	for i, l := range m.Layers {
		list = append(list, block("blocks."+strconv.Itoa(i), l.Forward))
	}
	return append(list, block("head", func(b *graph.Builder, x graph.Value) graph.Value {
		first := b.Slice(x, 1, 0, 1, 1)
		return nn.CrossEntropy.Forward(b, m.Head.Forward(b, m.Norm.Forward(b, b.Flatten(first, 1, 2))))
	}))
}

// ViTLayer is attention and an MLP, each behind a norm and added.
type ViTLayer struct {
	Norm1  *nn.LayerNorm `hf:"norm1"`
	QKV    *nn.Linear    `hf:"attn.qkv"`
	Output *nn.Linear    `hf:"attn.proj"`
	Norm2  *nn.LayerNorm `hf:"norm2"`
	Up     *nn.Linear    `hf:"mlp.fc1"`
	Down   *nn.Linear    `hf:"mlp.fc2"`
	Heads  int64
}

// Forward keeps the shape [B T D].
func (l *ViTLayer) Forward(b *graph.Builder, x graph.Value) graph.Value {
	width := b.TypeOf(x).Shape.Last()
	p := b.Split(l.QKV.Forward(b, l.Norm1.Forward(b, x)), width, width, width)
	a := op.Attr{Heads: l.Heads, KVHeads: l.Heads, Scale: 1 / math.Sqrt(float64(width)/float64(max(l.Heads, 1)))}
	x = b.Add(x, l.Output.Forward(b, b.Attention(a, p[0], p[1], p[2], graph.AttentionMasks{})))
	return b.Add(x, l.Down.Forward(b, nn.GELU.Forward(b, l.Up.Forward(b, l.Norm2.Forward(b, x)))))
}
