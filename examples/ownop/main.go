// Ownop is a program that brings an op of its own: clamp, with its gradient and its
// kernels for the CPU and for NVIDIA GPUs. Nothing of Spillway is changed for it; traced, differentiated,
// planned and run, it is an op like any other.
//
//	go run ./examples/ownop
package main

import (
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"

	"spillway"
	"spillway/graph"
	"spillway/nn"
	"spillway/op"
	"spillway/optim"
)

// Net is two linear layers with a clamp between them.
type Net struct {
	Up   *nn.Linear `hf:"up"`
	Down *nn.Linear `hf:"down"`
}

const width, rows = 16, 32

// Blocks of the model; the second one uses the op.
func (n *Net) Blocks() []nn.Block {
	return []nn.Block{
		{Name: "up", Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value {
			return []graph.Value{n.Up.Forward(b, nn.Input(b, width))}
		}},
		{Name: "down", Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
			clamped := b.Apply(Clamp, op.Attr{Extra: map[string]float64{"low": -1, "high": 1}}, in[0])[0]
			return []graph.Value{nn.MeanSquare.Forward(b, n.Down.Forward(b, clamped))}
		}},
	}
}

func main() {
	if err := run(os.Stdout, 200); err != nil {
		log.Fatal(err)
	}
}

// run teaches the model to halve numbers and prints the loss.
func run(out io.Writer, steps int) error {
	adam, err := optim.Parse("adamw:lr=1e-2")
	if err != nil {
		return err
	}
	model, err := spillway.Wrap(&Net{nn.NewLinear(width, 4*width), nn.NewLinear(4*width, width)}, spillway.Config{Options: spillway.Options{Optimizer: adam}})
	if err != nil {
		return err
	}
	defer model.Close() // the memory goes with the process
	r := rand.New(rand.NewPCG(1, 1))
	for i := range steps {
		x, y := make([]float32, rows*width), make([]float32, rows*width)
		for k := range x {
			x[k] = float32(r.NormFloat64())
			y[k] = x[k] / 2
		}
		loss, err := model.Step(spillway.Batch{"input": spillway.Floats(x, rows, width), "target": spillway.Floats(y, rows, width)})
		if err != nil {
			return err
		}
		if i == 0 || i == steps-1 {
			fmt.Fprintf(out, "step %3d  loss %.4f\n", i+1, loss)
		}
	}
	return nil
}
