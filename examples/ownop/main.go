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
	"spillway/autograd"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/device/cpu/kernel"
	"spillway/device/cuda"
	"spillway/graph"
	"spillway/nn"
	"spillway/op"
	"spillway/optim"
)

// The kinds of the op and of its gradient, as plans name them.
const (
	Clamp     op.Kind = "clamp"      // y = min(max(x, low), high)
	ClampGrad op.Kind = "clamp_grad" // operands x, dy: dx is dy where low < x < high, else 0
)

func init() {
	bounds := op.Attr{Extra: map[string]float64{"low": -0.5, "high": 0.25}}
	op.Register(op.Op{
		Kind:  Clamp,
		Takes: 1,
		Infer: func(_ op.Attr, in []op.Type) ([]op.Type, error) { return in, nil },
		Reference: func(c op.Call, in, out []op.Array, _ op.Args) {
			for i, x := range in[0].F {
				out[0].F[i] = min(max(x, c.Attr.Extra["low"]), c.Attr.Extra["high"])
			}
		},
		Cases: func(l *op.CaseList) {
			l.Add("3x37", Clamp, bounds, l.X(3, 37))
			l.Add("3x37", ClampGrad, bounds, l.X(3, 37), l.X(3, 37))
		},
	})
	op.Register(op.Op{
		Kind:  ClampGrad,
		Takes: 2,
		Infer: func(_ op.Attr, in []op.Type) ([]op.Type, error) { return in[:1], nil },
		Reference: func(c op.Call, in, out []op.Array, _ op.Args) {
			for i, x := range in[0].F {
				out[0].F[i] = 0
				if x > c.Attr.Extra["low"] && x < c.Attr.Extra["high"] {
					out[0].F[i] = in[1].F[i]
				}
			}
		},
	})
	autograd.Register(Clamp, func(r *autograd.Reverse, n graph.Node, dy []graph.Value) []graph.Value {
		return []graph.Value{r.EmitOne(ClampGrad, n.Attr, n.In[0], dy[0])}
	})
	cuda.Register(Clamp, clampSource, clampLaunch)
	cuda.Register(ClampGrad, clampSource, clampLaunch)
	cpu.Register(Clamp, func(c op.Call, _ int) cpu.Program {
		low, high := float32(c.Attr.Extra["low"]), float32(c.Attr.Extra["high"])
		return cpu.Program{Run: func(_ *kernel.Pool, l *device.Launch) {
			x, y := cpu.F32(l, 0), cpu.F32(l, 1)
			for i := range x {
				y[i] = min(max(x[i], low), high)
			}
		}}
	})
	cpu.Register(ClampGrad, func(c op.Call, _ int) cpu.Program {
		low, high := float32(c.Attr.Extra["low"]), float32(c.Attr.Extra["high"])
		return cpu.Program{Run: func(_ *kernel.Pool, l *device.Launch) {
			x, dy, dx := cpu.F32(l, 0), cpu.F32(l, 1), cpu.F32(l, 2)
			for i := range x {
				dx[i] = 0
				if x[i] > low && x[i] < high {
					dx[i] = dy[i]
				}
			}
		}}
	})
}

// clampSource has both kernels for NVIDIA GPUs. Element is the type of the operands.
const clampSource = `
extern "C" __global__ void clamp(const Element *x, Element *y, i64 n, float low, float high) {
    i64 i = position();
    if (i < n) narrow(fminf(fmaxf(wide(x[i]), low), high), &y[i]);
}
extern "C" __global__ void clamp_grad(const Element *x, const Element *dy, Element *dx, i64 n, float low, float high) {
    i64 i = position();
    if (i < n) narrow(wide(x[i]) > low && wide(x[i]) < high ? wide(dy[i]) : 0.0f, &dx[i]);
}
`

// clampLaunch runs the kernel named like the op, a thread for each element.
func clampLaunch(c op.Call) cuda.Launch {
	n, l := c.Out[0].Shape.Elements(), cuda.Launch{Kernel: string(c.Kind), Threads: 256}
	l.Blocks = (n + l.Threads - 1) / l.Threads
	for i := range len(c.In) + len(c.Out) {
		l.Args = append(l.Args, cuda.Buffer(i))
	}
	l.Args = append(l.Args, cuda.Int(n), cuda.Float(c.Attr.Extra["low"]), cuda.Float(c.Attr.Extra["high"]))
	return l
}

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
