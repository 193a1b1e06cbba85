package autograd_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"spillway/autograd"
	"spillway/autograd/gradcheck"
	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/numtest"
	"spillway/op"
)

// twice are blocks whose gradients are differentiated: x [2 6 4], or an image [2 4 4 4], to something.
var twice = map[string]struct {
	x     []int64
	build func(b *graph.Builder, x graph.Value, w func(name string, dims ...int64) graph.Value) graph.Value
}{
	"linear": {[]int64{2, 6, 4}, func(b *graph.Builder, x graph.Value, w func(string, ...int64) graph.Value) graph.Value {
		x = b.Unary(op.Tanh, b.Linear(x, w("a", 5, 4), w("b", 5)))
		return b.MatMul(b.LayerNorm(x, w("n", 5), w("m", 5), 1e-3), w("c", 5, 3), 0)
	}},
	"convolutions": {[]int64{2, 4, 4, 4}, func(b *graph.Builder, x graph.Value, w func(string, ...int64) graph.Value) graph.Value {
		x = b.Conv(op.Spatial{Stride: []int64{2, 1}, Padding: []int64{1, 1}}, x, w("a", 6, 4, 3, 3), w("b", 6))
		x = b.GroupNorm(b.Unary(op.SiLU, x), 2, w("n", 6), w("m", 6), 1e-3)
		x = b.ConvTranspose(op.Spatial{Stride: []int64{2, 2}}, nil, x, w("c", 6, 3, 2, 2), 0)
		x = b.AvgPool(op.Spatial{Kernel: []int64{2, 2}}, b.Interpolate(op.Linear, false, x, []int64{6, 6}, nil))
		return b.BatchNorm(x, w("o", 3), w("p", 3), 0, 0, 1e-3)
	}},
	"attention": {[]int64{2, 6, 4}, func(b *graph.Builder, x graph.Value, w func(string, ...int64) graph.Value) graph.Value {
		y := b.RMSNorm(x, w("n", 2), 1e-3)
		q, k := b.Linear(y, w("q", 4, 4), 0), b.Linear(y, w("k", 4, 4), 0)
		s := b.Softmax(b.Scale(b.BatchMatMul(q, k, false, true), 0.5), -1)
		x = b.Add(x, b.BatchMatMul(s, y, false, false))
		return b.Gated(op.GELU, b.Linear(x, w("g", 4, 4), 0), b.Mul(x, w("u", 4)))
	}},
	"moved": {[]int64{2, 6, 4}, func(b *graph.Builder, x graph.Value, w func(string, ...int64) graph.Value) graph.Value {
		x = b.Div(b.Mul(x, w("a", 4)), b.PlusConstant(b.Unary(op.Square, x), 1))
		parts := b.Split(b.CumSum(b.Flip(x, 1), 1), 1, 3)
		x = b.Add(b.Pad(parts[1], 2, 1, 0), b.Transpose(b.Stack(1, parts[0], parts[0]), 0, 1))
		x = b.Where(b.Compare(op.Greater, x, b.Number(x, 0)), b.Unary(op.Sin, x), b.Power(x, 3))
		return b.Concat(b.LogSoftmax(x, 1), b.Expand(b.Reduce(op.ReduceLogSumExp, x, true, -1), 2, 2, 6, 2), b.Mul(x, b.Reduce(op.ReduceMax, x, true, -1)))
	}},
}

// recorded is a block that gives the squared lengths of gradients by its input and one weight, next to what they are gradients of.
func recorded(t *testing.T, name string, penalty bool) (p *graph.Program, in values) {
	t.Helper()
	c := twice[name]
	b := graph.NewBlockBuilder(name, graph.Config{MicroBatchSize: 2, Task: graph.Train}, 3)
	x := b.Input(op.Type{DType: dtype.F32, Shape: c.x})
	first := graph.Value(0)
	y := c.build(b, x, func(name string, dims ...int64) graph.Value {
		v := b.Param(name, op.Type{DType: dtype.F32, Shape: dims}, false)
		if first == 0 {
			first = v
		}
		return v
	})
	out := []graph.Value{b.Unary(op.Square, y)}
	if penalty {
		g := autograd.Gradient(b, out[0], 0, x, first)
		out = []graph.Value{g[0], g[1]}
	}
	p, err := b.Program(graph.Carry, out...)
	if err != nil {
		t.Fatal(err)
	}
	in = values{}
	for i, port := range p.Inputs {
		in[port.Value] = numtest.Random(p.Type(port.Value), uint64(10+i))
		if port.Role == graph.Param {
			for k := range in[port.Value].F {
				in[port.Value].F[k] = 0.3 + 0.5*in[port.Value].F[k]
			}
		}
	}
	return p, in
}

// Gradients within a block are those that the backward pass has, and have the gradients that differences give.
func TestGradientsOfGradients(t *testing.T) {
	for name := range twice {
		t.Run(name, func(t *testing.T) {
			plain, in := recorded(t, name, false)
			j := mustDifferentiate(t, plain, autograd.Options{InputGrad: true})
			ones := numtest.Random(j.Program.Type(j.GradOut[0]), 1)
			for i := range ones.F {
				ones.F[i] = 1
			}
			from := values{j.GradOut[0]: ones}
			for v, a := range in {
				from[v] = a
			}
			want := mustRun(t, j.Program, from, op.Args{})
			p, in := recorded(t, name, true)
			got := mustRun(t, p, in, op.Args{})
			for i, w := range []graph.Value{j.GradIn[0], j.GradParam[0]} {
				if d := numtest.Compare(got[p.Outputs[i].Value].F, want[w].F); !(d.Max <= 1e-6) { // the eps of a norm is an f32 there
					t.Errorf("gradient %d: %v", i, d)
				}
			}
			if err := gradcheck.Program(p, in, op.Args{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// Every function has a gradient of its gradient of its gradient.
func TestThirdGradients(t *testing.T) {
	for f := op.ReLU; f <= op.Sign; f++ {
		b := graph.NewBuilder(f.String(), graph.Config{})
		x := b.Input(op.Type{DType: dtype.F32, Shape: []int64{9}})
		alpha, beta, _ := f.Defaults()
		if f == op.Clamp || f == op.Power {
			alpha, beta = 0.7, 2.5
		}
		once := autograd.Gradient(b, b.Map(f, alpha, beta, x), 0, x)[0]
		second := autograd.Gradient(b, once, 0, x)[0]
		p, err := b.Program(graph.Carry, once, second)
		if err != nil {
			t.Fatal(err)
		}
		in := numtest.Random(p.Type(p.Inputs[0].Value), 3)
		for i := range in.F { // positive, and apart from corners
			in.F[i] = 0.35 + math.Abs(in.F[i])
		}
		for _, sign := range []float64{1, -1} {
			if sign < 0 && slices.Contains([]op.Func{op.Log, op.Sqrt, op.Rsqrt, op.Power, op.Log1p}, f) {
				continue
			}
			for i := range in.F {
				in.F[i] *= sign
			}
			if err := gradcheck.Program(p, values{p.Inputs[0].Value: in}, op.Args{}); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestGradientsThatAreNotThere(t *testing.T) {
	f := op.Type{DType: dtype.F32, Shape: []int64{2, 3}}
	for want, build := range map[string]func(b *graph.Builder, x graph.Value) graph.Value{
		"f32[2 3] is not computed from value 0, which is f32[2 3]": func(b *graph.Builder, x graph.Value) graph.Value {
			return autograd.Gradient(b, b.Scale(b.Part("y", dtype.F32, 2, 3), 2), 0, x)[0]
		},
		"is not computed from value 0": func(b *graph.Builder, x graph.Value) graph.Value {
			return autograd.Gradient(b, b.Detach(x), 0, x)[0]
		},
		"what it starts from has the same shape": func(b *graph.Builder, x graph.Value) graph.Value {
			return autograd.Gradient(b, x, b.Sum(x, 1), x)[0]
		},
		"no real numbers": func(b *graph.Builder, x graph.Value) graph.Value {
			return autograd.Gradient(b, x, 0, b.ArgMax(x, 1))[0]
		},
	} {
		b := graph.NewBuilder("block", graph.Config{})
		build(b, b.Input(f))
		if err := b.Err(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "gradient_test.go") {
			t.Errorf("error %v, want %q and the line", err, want)
		}
	}
}
