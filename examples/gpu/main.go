// This program trains a stack of layers in a quarter of the memory it takes, on a GPU
// where there is one and on the CPU where there is none, and says which.
//
//	go run ./examples/gpu
//
// All a program needs for GPUs is to import their driver.
package main

import (
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"spillway"
	_ "spillway/device/cuda" // GPUs are found where their driver is in the program
	"spillway/nn"
	"spillway/shape"
)

const (
	width = 512
	rows  = 64 // of a batch
)

func main() {
	if err := run(os.Stdout, 12, 30); err != nil {
		log.Fatal(err)
	}
}

// stack is layers of equal width with a loss.
func stack(layers int) *nn.Sequential {
	s := nn.NewSequential()
	for range layers {
		s.Layers = append(s.Layers, nn.NewLinear(width, width), nn.GELU)
	}
	s.Layers = append(s.Layers, nn.NewLinear(width, width))
	s.Input, s.Loss = shape.Of(width), nn.MeanSquare
	return s
}

// run trains iterations in a quarter of what everything on the device would take.
func run(out io.Writer, layers, iterations int) error {
	need, err := whole(layers)
	if err != nil {
		return err
	}
	show := func(text string) { fmt.Fprintln(out, text) } // such as why there is no GPU
	model, err := spillway.Wrap(stack(layers), spillway.Config{Options: spillway.Options{MaxMemory: fmt.Sprint(need / 4)}, Notice: show})
	if err != nil {
		return err
	}
	defer model.Close() // the memory goes with the process
	b, best := batch(), math.Inf(1)
	for i := range iterations {
		start := time.Now()
		loss, err := model.Step(b)
		if err != nil {
			return err
		}
		best = min(best, time.Since(start).Seconds())
		if i == 0 || i == iterations-1 {
			fmt.Fprintf(out, "iteration %d: loss %.4f\n", i+1, loss)
		}
	}
	memory := model.MemoryStats().Devices[0]
	_, err = fmt.Fprintf(out, "%s, %s: %d of %d bytes, %.1f ms an iteration\n", memory.Name, model.Strategy(), memory.Predicted, need, 1e3*best)
	return err
}

// whole is how many bytes an iteration takes with everything on the device.
func whole(layers int) (int64, error) {
	model, err := spillway.Wrap(stack(layers), spillway.Config{Options: spillway.Options{Strategy: "standard", BatchSize: rows}})
	if err != nil {
		return 0, err
	}
	defer model.Close() // nothing was written
	return model.MemoryStats().Devices[0].Predicted, nil
}

// batch is random rows, and the same rows in reverse as what to learn.
func batch() spillway.Batch {
	r, in, out := rand.New(rand.NewPCG(1, 1)), make([]float32, rows*width), make([]float32, rows*width)
	for i := range in {
		in[i] = float32(r.NormFloat64())
		out[i/width*width+width-1-i%width] = in[i]
	}
	return spillway.Batch{"input": spillway.Floats(in, rows, width), "target": spillway.Floats(out, rows, width)}
}
