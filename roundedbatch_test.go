package spillway_test

import (
	"testing"

	"spillway"
	"spillway/dtype"
	"spillway/graph"
	"spillway/nn"
)

// readNet reads its input as nn.Input does, or as floats that it casts itself after doing nothing with them.
type readNet struct {
	Up    *nn.Linear `hf:"up"`
	Down  *nn.Linear `hf:"down"`
	plain bool
}

func (n *readNet) Blocks() []nn.Block {
	return []nn.Block{
		{Name: "up", Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value {
			x := nn.Input(b, 12)
			if n.plain {
				x = b.Cast(b.Scale(b.Part("input", dtype.F32, b.MicroBatchSize, 12), 1), b.DType)
			}
			return []graph.Value{nn.ReLU.Forward(b, n.Up.Forward(b, x))}
		}},
		{Name: "down", Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
			return []graph.Value{nn.CrossEntropy.Forward(b, n.Down.Forward(b, in[0]))}
		}},
	}
}

// A batch that the host rounds trains to the bits of one that the device rounds.
func TestRoundedBatchesTrainAlike(t *testing.T) {
	for _, precision := range []dtype.Type{dtype.BF16, dtype.F16} {
		var losses [2][]float64
		for i, plain := range []bool{true, false} {
			c := described(t)
			c.Precision = precision
			w := wrap(t, &readNet{Up: nn.NewLinear(12, 32), Down: nn.NewLinear(32, 5), plain: plain}, c)
			x, y := make([]float32, 8*12), make([]int32, 8)
			for step := range 4 {
				for k := range x {
					x[k] = float32((k*37+step*11)%101)/50.3 - 1
				}
				for k := range y {
					y[k] = int32((k + step) % 5)
				}
				loss, err := w.Step(spillway.Batch{"input": spillway.Floats(x, 8, 12), "targets": spillway.Ints(y, 8)})
				if err != nil {
					t.Fatal(err)
				}
				losses[i] = append(losses[i], loss)
			}
		}
		for step, loss := range losses[0] {
			if loss != losses[1][step] {
				t.Errorf("%v, step %d: the loss is %v where the device rounds and %v where the host does", precision, step, loss, losses[1][step])
			}
		}
	}
}
