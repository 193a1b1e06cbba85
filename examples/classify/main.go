// Classify trains a small convolutional network, a plain Go struct, to tell horizontal from vertical stripes
// and from checks, in half of the memory that it needs, and says how often it is right.
//
//	go run ./examples/classify
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
	"spillway/optim"
)

const size, classes, images = 12, 3, 32

// Net is two convolutions with group norms, a mean over places, and a linear layer.
type Net struct {
	Conv1 *nn.Conv      `hf:"conv1"`
	Norm1 *nn.GroupNorm `hf:"norm1"`
	Conv2 *nn.Conv      `hf:"conv2"`
	Norm2 *nn.GroupNorm `hf:"norm2"`
	Head  *nn.Linear    `hf:"head"`
}

// Blocks of the network; images are [B H W C].
func (n *Net) Blocks() []nn.Block {
	return []nn.Block{
		{Name: "conv1", Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value {
			x := n.Conv1.Forward(b, nn.Input(b, size, size, 1))
			return []graph.Value{nn.ReLU.Forward(b, n.Norm1.Forward(b, x))}
		}},
		{Name: "conv2", Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
			return []graph.Value{nn.ReLU.Forward(b, n.Norm2.Forward(b, n.Conv2.Forward(b, in[0])))}
		}},
		{Name: "head", Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
			y := n.Head.Forward(b, b.Mean(in[0], 1, 2))
			if b.Task == graph.Infer {
				return []graph.Value{y}
			}
			return []graph.Value{nn.CrossEntropyOf(b, y, nn.CrossEntropyOptions{Smoothing: 0.05})}
		}},
	}
}

// draw makes noisy images and their classes.
func draw(r *rand.Rand) (pixels []float32, kinds []int32) {
	for range images {
		kind, phase := r.IntN(classes), r.IntN(2)
		for y := range size {
			for x := range size {
				on := (map[int]int{0: y, 1: x, 2: x + y}[kind] + phase) % 2
				pixels = append(pixels, float32(on)+float32(r.NormFloat64())/2)
			}
		}
		kinds = append(kinds, int32(kind))
	}
	return pixels, kinds
}

func main() {
	if err := run(os.Stdout, 60); err != nil {
		log.Fatal(err)
	}
}

// run trains and counts right answers about new images.
func run(out io.Writer, steps int) error {
	adam, err := optim.Parse("adamw:lr=1e-2")
	if err != nil {
		return err
	}
	net, err := spillway.Wrap(&Net{nn.NewConv2d(1, 8, 3).Strided(1, 1), nn.NewGroupNorm(4, 8), nn.NewConv2d(8, 16, 3).Strided(2, 1), nn.NewGroupNorm(4, 16), nn.NewLinear(16, classes)},
		spillway.Config{Options: spillway.Options{Optimizer: adam, Strategy: "cpu-offload"}})
	if err != nil {
		return err
	}
	defer net.Close() // the memory goes with the process
	r := rand.New(rand.NewPCG(1, 1))
	for i := range steps {
		pixels, kinds := draw(r)
		loss, err := net.Step(spillway.Batch{"input": spillway.Floats(pixels, images, size, size, 1), "targets": spillway.Ints(kinds, images)})
		if err != nil {
			return err
		}
		if i == 0 || i == steps-1 {
			fmt.Fprintf(out, "step %3d  loss %.4f\n", i+1, loss)
		}
	}
	pixels, kinds := draw(r)
	logits, err := net.Forward(spillway.Batch{"input": spillway.Floats(pixels, images, size, size, 1)})
	if err != nil {
		return err
	}
	right := 0
	for i, kind := range kinds {
		best := int32(0)
		for c := range int32(classes) {
			if logits.Floats[classes*i+int(c)] > logits.Floats[classes*i+int(best)] {
				best = c
			}
		}
		if best == kind {
			right++
		}
	}
	fmt.Fprintf(out, "right: %d of %d\n", right, images)
	return nil
}
