package nn

import (
	"errors"
	"strconv"

	"spillway/graph"
	"spillway/shape"
)

// Sequential runs layers one after another. Its weights are named by place, as
// PyTorch's: "0.weight", "2.weight".
//
// It is a layer, and with Input and Loss set a whole model: each layer with weights
// is a block, together with the weightless ones after it.
type Sequential struct {
	Layers []Layer `hf:""`
	// Input is the shape of one sample of batch part "input" [B Input..]. It is nil
	// where the first layer is an embedding, which reads batch part "tokens" [B T].
	Input shape.Shape
	Loss  Loss
}

// NewSequential makes a stack of layers.
func NewSequential(layers ...Layer) *Sequential { return &Sequential{Layers: layers} }

// Forward runs all layers.
func (s *Sequential) Forward(b *graph.Builder, x graph.Value) graph.Value {
	for _, l := range s.Layers {
		x = l.Forward(b, x)
	}
	return x
}

// Blocks groups the layers, the first reading the input, the last ending in the loss.
func (s *Sequential) Blocks() []Block {
	starts := s.starts()
	blocks := make([]Block, len(starts))
	for i, from := range starts {
		to := len(s.Layers)
		if i+1 < len(starts) {
			to = starts[i+1]
		}
		blocks[i] = Block{"layer." + strconv.Itoa(from), func(b *graph.Builder, in []graph.Value) []graph.Value {
			if from == 0 {
				in = []graph.Value{s.input(b)}
			}
			x := NewSequential(s.Layers[from:to]...).Forward(b, in[0])
			if to == len(s.Layers) {
				x = s.Loss.Forward(b, x)
			}
			return []graph.Value{x}
		}}
	}
	return blocks
}

func (s *Sequential) input(b *graph.Builder) graph.Value {
	ids := false
	switch s.Layers[0].(type) {
	case *Embedding, *StableEmbedding, *EmbeddingBag:
		ids = true
	}
	switch {
	case s.Input != nil:
		return Input(b, s.Input...)
	case ids:
		return Tokens(b)
	}
	b.Fail("the model does not say what its input is: set Sequential.Input")
	return 0
}

// starts lists the first layer of each block: those with weights, but that leading
// layers without any go with the first that has some.
func (s *Sequential) starts() []int {
	if len(s.Layers) == 0 {
		return nil
	}
	starts, weighty := []int{0}, false
	for i, l := range s.Layers {
		has := hasWeights(l)
		if has && weighty {
			starts = append(starts, i)
		}
		weighty = weighty || has
	}
	return starts
}

var errFound = errors.New("found")

func hasWeights(l Layer) bool {
	return Walk(l, func(_ string, part any) error {
		if _, ok := part.(*Param); ok {
			return errFound
		}
		return nil
	}) != nil
}
