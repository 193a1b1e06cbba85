// Distill teaches a small network what a larger one says, with a loop of its own: forward of the teacher, backward of
// the student, clipping and a schedule by hand, and an average of the student's weights to evaluate with.
//
//	go run ./examples/distill
package main

import (
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"

	"spillway"
	"spillway/dtype"
	"spillway/graph"
	"spillway/nn"
	"spillway/optim"
)

const width, classes, rows = 16, 8, 64

// Student is a small network whose loss compares its logits with those of the batch.
type Student struct {
	Layers *nn.Sequential `hf:"layers"`
}

// Blocks of the student. Batch part "teacher" has the logits of the teacher.
func (s *Student) Blocks() []nn.Block {
	return []nn.Block{{Name: "student", Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value {
		y := s.Layers.Forward(b, nn.Input(b, width))
		if b.Task == graph.Infer {
			return []graph.Value{y}
		}
		teacher := b.Part("teacher", dtype.F32, b.MicroBatchSize, classes)
		return []graph.Value{nn.Mean(b, nn.Distillation(b, y, teacher, 2))}
	}}}
}

func main() {
	if err := run(os.Stdout, 150); err != nil {
		log.Fatal(err)
	}
}

func run(out io.Writer, steps int) error {
	big := nn.NewSequential(nn.NewLinear(width, 256), nn.Tanh, nn.NewLinear(256, classes))
	big.Input, big.Loss = []int64{width}, nn.CrossEntropy
	teacher, err := spillway.Wrap(big, spillway.Config{Seed: 7})
	if err != nil {
		return err
	}
	defer teacher.Close() // the memory goes with the process
	adam, err := optim.Parse("adamw:lr=1e-2")
	if err != nil {
		return err
	}
	small := &Student{nn.NewSequential(nn.NewLinear(width, 32), nn.Tanh, nn.NewLinear(32, classes))}
	student, err := spillway.Wrap(small, spillway.Config{Options: spillway.Options{Optimizer: adam, Average: 0.95, Strategy: "cpu-offload"}})
	if err != nil {
		return err
	}
	defer student.Close() // likewise
	loop, err := student.Loop()
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(1, 1))
	draw := func() (spillway.Batch, error) {
		x := make([]float32, rows*width)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		in := spillway.Batch{"input": spillway.Floats(x, rows, width)}
		logits, err := teacher.Forward(in)
		in["teacher"] = logits
		return in, err
	}
	for i := range steps {
		loop.ZeroGrad()
		var loss float64
		for range 2 { // two batches for one update
			b, err := draw()
			if err != nil {
				return err
			}
			if loss, err = loop.BackwardScaled(b, 0.5); err != nil {
				return err
			}
		}
		if i > 0 { // there is an optimizer
			if err := student.SetLR(1e-2 * (1 + math.Cos(math.Pi*float64(i)/float64(steps))) / 2); err != nil {
				return err
			}
		}
		if _, err := loop.ClipGradNorm(1); err != nil {
			return err
		}
		if _, err := loop.Step(); err != nil {
			return err
		}
		if i == 0 {
			fmt.Fprintf(out, "first loss %.4f\n", loss)
		}
	}
	b, err := draw()
	if err != nil {
		return err
	}
	return student.WithAverage(func() error {
		loss, err := student.Evaluate(b)
		fmt.Fprintf(out, "loss of the averaged student %.4f\n", loss)
		return err
	})
}
