package op_test

import (
	"math"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/internal/numtest"
	"spillway/op"
	"spillway/shape"
)

// torchOptimizer is one run of optimizers.json.
type torchOptimizer struct {
	Name    string
	Options struct {
		LR, Eps, Momentum, Dampening float64
		Betas                        [2]float64
		Decay                        float64 `json:"weight_decay"`
		Nesterov                     bool
	}
	Initial   []float64
	Gradients [][]float64
	Values    [][]float64
	State     map[string]any `json:"final_state"`
}

func vector(f []float64) op.Array {
	return op.Array{Type: op.Type{DType: dtype.F32, Shape: shape.Of(len(f))}, F: f}
}

// Five updates in place follow PyTorch's, which are float32.
func TestUpdatesAgreeWithTorch(t *testing.T) {
	var file struct{ Optimizers []torchOptimizer }
	readJSON(t, "optimizers.json", &file)
	if len(file.Optimizers) < 10 {
		t.Fatalf("%d optimizers", len(file.Optimizers))
	}
	for _, o := range file.Optimizers {
		w, m, v := vector(o.Initial), vector(make([]float64, len(o.Initial))), vector(make([]float64, len(o.Initial)))
		for i, g := range o.Gradients {
			o.update(t, i, w, vector(g), m, v)
			if d := numtest.Compare(w.F, o.Values[i]); !(d.Max < 1e-6) {
				t.Errorf("%s after %d updates: %v from PyTorch's", o.Name, i+1, d)
			}
		}
		for name, got := range map[string]op.Array{"exp_avg": m, "exp_avg_sq": v, "momentum_buffer": m} {
			if want, ok := o.State[name]; ok {
				if d := numtest.Compare(got.F, floats(want)); !(d.Max < 1e-6+o.squareShare()) {
					t.Errorf("%s: %s is %v from PyTorch's", o.Name, name, d)
				}
			}
		}
	}
}

// update applies iteration i, counted from 0.
func (o torchOptimizer) update(t *testing.T, i int, w, g, m, v op.Array) {
	clip := vector([]float64{1, 0})
	args := op.Args{Scalars: op.Scalars{op.ArgRate: float32(o.Options.LR), op.ArgDecay: float32(o.Options.Decay)}}
	kind, attr := op.SGD, op.Attr{Nesterov: o.Options.Nesterov}
	in, out := []op.Array{w, g, m, clip}, []op.Array{w, m}
	if strings.HasPrefix(o.Name, "adam") {
		kind, attr = op.Adam, op.Attr{Decoupled: strings.HasPrefix(o.Name, "adamw")}
		in, out = []op.Array{w, g, m, v, clip}, []op.Array{w, m, v}
		b := o.Options.Betas
		args.Scalars[op.ArgBeta1], args.Scalars[op.ArgBeta2], args.Scalars[op.ArgEps] = float32(b[0]), float32(b[1]), float32(o.Options.Eps)
		args.Scalars[op.ArgBias1] = float32(1 - math.Pow(float64(float32(b[0])), float64(i+1)))
		args.Scalars[op.ArgBias2] = float32(math.Sqrt(1 - math.Pow(float64(float32(b[1])), float64(i+1))))
	} else {
		args.Scalars[op.ArgBeta1], args.Scalars[op.ArgBeta2] = float32(o.Options.Momentum), float32(o.Options.Dampening)
		if i == 0 {
			args.Scalars[op.ArgBias1] = 1
		}
	}
	run(t, kind, attr, args, in, out)
}

// run applies the rule and the reference of a kind.
func run(t *testing.T, kind op.Kind, attr op.Attr, args op.Args, in, out []op.Array) {
	t.Helper()
	types := make([]op.Type, len(in))
	for i, a := range in {
		types[i] = a.Type
	}
	call, err := op.Make(kind, attr, types...)
	if err == nil {
		err = call.Reference(in, out, args)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// squareShare is how far 1-beta2 moves, relative to itself, when beta2 is rounded
// to float32 as launches carry it: PyTorch's is float64.
func (o torchOptimizer) squareShare() float64 {
	beta := o.Options.Betas[1]
	return math.Abs(float64(float32(beta))-beta) / (1 - beta)
}

func floats(list any) (out []float64) {
	for _, f := range list.([]any) {
		out = append(out, f.(float64))
	}
	return out
}

// The norm over several tensors and the clipped gradients.
func TestClippingAgreesWithTorch(t *testing.T) {
	var file struct {
		Clipping []struct {
			Limit, Norm        float64
			Gradients, Clipped [][]float64
		}
	}
	readJSON(t, "optimizers.json", &file)
	if len(file.Clipping) == 0 {
		t.Fatal("no clipping")
	}
	for _, c := range file.Clipping {
		partials := op.NewArray(op.Type{DType: dtype.F64, Shape: shape.Of(len(c.Gradients))})
		for i, g := range c.Gradients {
			one := op.NewArray(op.Type{DType: dtype.F64, Shape: shape.Of(1)})
			run(t, op.SumSquares, op.Attr{}, op.Args{}, []op.Array{vector(g)}, []op.Array{one})
			partials.F[i] = one.F[0]
		}
		clip := vector([]float64{0, 0})
		run(t, op.ClipScale, op.Attr{}, op.Args{Scalars: op.ClipScalars(float32(c.Limit), 0)}, []op.Array{partials}, []op.Array{clip})
		if math.Abs(clip.F[1]-c.Norm) > 1e-6*c.Norm {
			t.Errorf("norm %v, PyTorch's is %v", clip.F[1], c.Norm)
		}
		for i, g := range c.Gradients {
			for k := range g {
				if math.Abs(g[k]*clip.F[0]-c.Clipped[i][k]) > 1e-6 {
					t.Fatalf("clipped to %v, PyTorch to %v", g[k]*clip.F[0], c.Clipped[i][k])
				}
			}
		}
	}
}
