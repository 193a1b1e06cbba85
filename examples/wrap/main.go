// This program trains a model of its own in half of the memory that it needs.
//
// The model is a Go struct of layers with a Blocks method. Wrapped, it is trained and used
// as before; the planner decides what is stored where, so that the limit holds.
//
//	go run ./examples/wrap
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

// Sorter reads a row of digits and predicts for each place which digit is there once the
// row is sorted.
type Sorter struct {
	Digits *nn.Embedding                 `hf:"digits"`
	Places *nn.Embedding                 `hf:"places"`
	Layers []*nn.TransformerEncoderLayer `hf:"layers"`
	Answer *nn.Linear                    `hf:"answer"`
}

const (
	digits = 10
	length = 12 // of a row
	width  = 64
	rows   = 32 // of a batch
)

// NewSorter makes a model with random weights.
func NewSorter(layers int) *Sorter {
	s := &Sorter{Digits: nn.NewEmbedding(digits, width), Places: nn.NewEmbedding(length, width), Answer: nn.NewLinear(width, digits)}
	for range layers {
		s.Layers = append(s.Layers, nn.NewTransformerEncoderLayer(nn.EncoderConfig{Width: width, Heads: 4, Inner: 4 * width, Eps: 1e-5, Func: nn.GELU, NormFirst: true}))
	}
	return s
}

// Blocks are the units that can be streamed and recomputed one by one.
func (s *Sorter) Blocks() []nn.Block {
	blocks := []nn.Block{{Name: "digits", Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value {
		return []graph.Value{b.Add(s.Digits.Forward(b, nn.Tokens(b)), s.Places.Forward(b, nn.Positions(b)))}
	}}}
	for i, l := range s.Layers {
		blocks = append(blocks, nn.Block{Name: fmt.Sprintf("layers.%d", i), Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
			return []graph.Value{l.Forward(b, in[0])}
		}})
	}
	return append(blocks, nn.Block{Name: "answer", Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
		return []graph.Value{nn.CrossEntropy.Forward(b, s.Answer.Forward(b, in[0]))}
	}})
}

func main() {
	if err := run(os.Stdout, 300); err != nil {
		log.Fatal(err)
	}
}

// run plans with everything on the device, to see what that takes, and then trains in half
// of it.
func run(out io.Writer, iterations int) error {
	need, err := standard()
	if err != nil {
		return err
	}
	adam, err := optim.Parse("adamw:lr=2e-3")
	if err != nil {
		return err
	}
	model, err := spillway.Wrap(NewSorter(6), spillway.Config{Options: spillway.Options{MaxMemory: fmt.Sprint(need / 2), Optimizer: adam, Clip: 1}})
	if err != nil {
		return err
	}
	defer model.Close() // the memory goes with the process
	r := rand.New(rand.NewPCG(1, 1))
	for i := range iterations {
		loss, err := model.Step(batch(r))
		if err != nil {
			return err
		}
		if i%(iterations/6) == 0 || i == iterations-1 {
			fmt.Fprintf(out, "iteration %3d  loss %.3f\n", i+1, loss)
		}
	}
	fmt.Fprintf(out, "\n%s\n\n%s\n\n", model.Explain(), model.MemoryStats())
	share, err := sorted(model, r)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%.0f%% of the digits are in their places\n", 100*share)
	return err
}

// standard is how many bytes an iteration takes with everything on the device.
func standard() (int64, error) {
	model, err := spillway.Wrap(NewSorter(6), spillway.Config{Options: spillway.Options{Strategy: "standard", BatchSize: rows, Seq: length, Clip: 1}})
	if err != nil {
		return 0, err
	}
	defer model.Close() // nothing was written
	return model.MemoryStats().Devices[0].Predicted, nil
}

// batch makes rows of digits and the same rows sorted.
func batch(r *rand.Rand) spillway.Batch {
	tokens, targets := make([]int32, 0, rows*length), make([]int32, 0, rows*length)
	for range rows {
		var count [digits]int
		for range length {
			d := r.IntN(digits)
			count[d]++
			tokens = append(tokens, int32(d))
		}
		for d, n := range count {
			for range n {
				targets = append(targets, int32(d))
			}
		}
	}
	return spillway.Batch{"tokens": spillway.Ints(tokens, rows, length), "targets": spillway.Ints(targets, rows, length)}
}

// sorted is the share of digits that the model puts in the right place.
func sorted(model *spillway.Wrapped, r *rand.Rand) (float64, error) {
	b := batch(r)
	targets := b["targets"].Ints
	delete(b, "targets")
	logits, err := model.Forward(b)
	if err != nil {
		return 0, err
	}
	right := 0
	for i, want := range targets {
		best := int32(0)
		for d := range int32(digits) {
			if logits.Floats[digits*i+int(d)] > logits.Floats[digits*i+int(best)] {
				best = d
			}
		}
		if best == want {
			right++
		}
	}
	return float64(right) / float64(len(targets)), nil
}
