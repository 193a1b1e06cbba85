package nn_test

import (
	"fmt"

	"spillway/dtype"
	"spillway/graph"
	"spillway/nn"
	"spillway/spec"
)

// Recommender is somebody's own model: a product per layer around an embedding.
type Recommender struct {
	Items *nn.Embedding `hf:"items"`
	Tower []*Residual   `hf:"tower"`
	Score *nn.Linear    `hf:"score"`
}

type Residual struct {
	Norm *nn.LayerNorm `hf:"norm"`
	Fc   *nn.Linear    `hf:"fc"`
}

func NewRecommender(items, width, depth int64) *Recommender {
	m := &Recommender{Items: nn.NewEmbedding(items, width), Score: nn.NewLinear(width, items)}
	for range depth {
		m.Tower = append(m.Tower, &Residual{nn.NewLayerNorm(width, 1e-5), nn.NewLinear(width, width)})
	}
	// Scoring an item is the product with its embedding: one weight, used twice.
	m.Score.Weight, m.Score.Bias = m.Items.Weight, nil
	return m
}

// Blocks say how the model is run, and where it may be cut.
func (m *Recommender) Blocks() []nn.Block {
	blocks := []nn.Block{{Name: "items", Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value {
		return []graph.Value{m.Items.Forward(b, nn.Tokens(b))}
	}}}
	for i, r := range m.Tower {
		blocks = append(blocks, nn.Block{Name: fmt.Sprintf("tower.%d", i), Forward: r.forward})
	}
	return append(blocks, nn.Block{Name: "score", Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
		return []graph.Value{nn.NextToken(b, in[0], m.Score)}
	}})
}

func (r *Residual) forward(b *graph.Builder, in []graph.Value) []graph.Value {
	x := in[0]
	return []graph.Value{b.Add(x, nn.GELU.Forward(b, r.Fc.Forward(b, r.Norm.Forward(b, x))))}
}

// A model of one's own is a struct with tags and a Blocks method.
func Example() {
	config := graph.Config{MicroBatchSize: 8, Seq: 20, DType: dtype.F32, Task: graph.Train}
	m, err := spec.Trace("recommender", "own", NewRecommender(1000, 32, 3), config)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range m.Params[:3] {
		fmt.Println(p.Name, p.Type)
	}
	fmt.Println(len(m.Params), "params in", len(m.Blocks), "blocks of", len(m.Kinds), "kinds")
	// Output:
	// items.weight f32[1000 32]
	// tower.0.norm.weight f32[32]
	// tower.0.norm.bias f32[32]
	// 13 params in 5 blocks of 3 kinds
}

// A Sequential is a model too, once it knows its input and its loss.
func ExampleSequential() {
	net := nn.NewSequential(
		nn.NewLinear(4, 16), nn.ReLU, nn.Dropout(0.1),
		nn.NewLinear(16, 3),
	)
	net.Input, net.Loss = []int64{4}, nn.CrossEntropy

	m, err := spec.Trace("iris", "sequential", net, graph.Config{MicroBatchSize: 30, Seq: 1, DType: dtype.F32, Task: graph.Train})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range m.Params {
		fmt.Println(p.Name, p.Type)
	}
	for _, p := range m.Batch {
		fmt.Println(p.Name, p.Type)
	}
	// Output:
	// 0.weight f32[16 4]
	// 0.bias f32[16]
	// 3.weight f32[3 16]
	// 3.bias f32[3]
	// input f32[30 4]
	// targets i32[30]
	// scale f32[1]
}
