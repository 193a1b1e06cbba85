package autograd_test

import (
	"math"
	"strings"
	"testing"

	"spillway/autograd"
	"spillway/autograd/gradcheck"
	"spillway/dtype"
	"spillway/graph"
	"spillway/graph/graphtest"
	"spillway/internal/numtest"
	"spillway/op"
	"spillway/shape"
)

// differentiable says which operands of an op the rule gives gradients for: all
// real ones unless named here.
var differentiable = map[op.Kind]int{
	op.QuantizedMatmul: 1, op.Rope: 1, op.LinearCrossEntropy: 2, op.CrossEntropy: 1, op.MeanSquare: 1,
}

// Every small case of every op with a rule, as a program of one op.
func TestRulesAgreeWithFiniteDifferences(t *testing.T) {
	tried := map[op.Kind]int{}
	for _, c := range op.Cases(dtype.F32) {
		if autograd.Rules[c.Call.Kind] == nil || c.Call.Kind == op.Follow || c.Large || c.Call.Attr.Accumulate || c.Call.Attr.OutlierThreshold > 0 { // rounded to integers, outputs have steps
			continue
		}
		if a := c.Call.Attr; stepped(c) || c.Call.Kind == op.PoolGrad && a.Reduction == op.ReduceMax || c.Call.Kind == op.ReduceGrad && a.Reduction == op.ReduceProd {
			continue
		}
		tried[c.Call.Kind]++
		t.Run(c.Name, func(t *testing.T) {
			kind := c.Call.Kind
			if err := gradcheck.Case(c, differentiable[kind], kind == op.Attention || kind == op.JoinedAttention || kind == op.GroupNorm); err != nil {
				t.Error(err)
			}
		})
	}
	for kind, rule := range autograd.Rules {
		if rule != nil && kind != op.Follow && tried[kind] == 0 { // that of a statistic is no slope
			t.Errorf("no case tries the rule of %s", kind)
		}
	}
}

// stepped says that a gradient jumps on the operands of a case: where two numbers are equal both have half.
func stepped(c op.Case) bool {
	if c.Call.Kind != op.BinaryGrad || c.Call.Attr.Func2 != op.Maximum && c.Call.Attr.Func2 != op.Minimum {
		return false
	}
	in := c.Operands()
	equal := false
	shape.BroadcastWalk(c.Call.Out[0].Shape, c.Call.In[0].Shape, c.Call.In[1].Shape).Each(func(at []int64) {
		equal = equal || math.Abs(in[0].F[at[0]]-in[1].F[at[1]]) < 1e-3
	})
	return equal
}

func TestWhatHasNoGradientIsAnError(t *testing.T) {
	f := op.Type{DType: dtype.F32, Shape: []int64{2, 3}}
	one := op.Type{DType: dtype.F32, Shape: []int64{1}}
	for _, c := range []struct {
		name, want string
		role       graph.Role
		build      func(b *graph.Builder) graph.Value
	}{
		{"no rule", "gated_grad at rules_test.go", graph.Carry, func(b *graph.Builder) graph.Value {
			w := b.Param("w", f, false)
			return b.Apply(op.GatedGrad, op.Attr{Func: op.SiLU}, w, w, w)[0]
		}},
		{"largest of windows", "pool_grad at rules_test.go", graph.Carry, func(b *graph.Builder) graph.Value {
			x := b.Part("x", f.DType, 1, 4, 4, 2)
			y := b.MaxPool(op.Spatial{Kernel: []int64{2, 2}}, b.Mul(x, b.Param("w", op.Type{DType: f.DType, Shape: []int64{2}}, false)))
			return b.Unary(op.Square, autograd.Gradient(b, b.Unary(op.Square, y), 0, x)[0])
		}},
		{"operand", "has no gradient for its operand 1", graph.Carry, func(b *graph.Builder) graph.Value {
			return b.MeanSquare(b.Part("x", f.DType, 2, 3), b.Param("w", f, false), b.Part("scale", one.DType, 1))
		}},
		{"unused param", "param 0 w reaches no output", graph.Carry, func(b *graph.Builder) graph.Value {
			b.Param("w", f, false)
			return b.Scale(b.Input(f), 2)
		}},
		{"detached carry", "value 0 of the block before reaches no output that gradients pass through", graph.Carry, func(b *graph.Builder) graph.Value {
			return b.Mul(b.Detach(b.Input(f)), b.Param("w", f, false))
		}},
		{"result is no loss", "result is f32[2 3] among 1, want one loss", graph.Result, func(b *graph.Builder) graph.Value {
			return b.Scale(b.Param("w", f, false), 2)
		}},
		{"three dimensions", "the gradient of a f32[2 2 3] would be f32[4 3]", graph.Carry, func(b *graph.Builder) graph.Value {
			w := op.Type{DType: dtype.F32, Shape: []int64{2, 2, 3}}
			return b.Apply(op.MatMul, op.Attr{}, b.Part("x", f.DType, 2, 4), b.Param("w", w, false))[0]
		}},
	} {
		b := graph.NewBuilder(c.name, graph.Config{})
		p, err := b.Program(c.role, c.build(b))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := autograd.Differentiate(p, autograd.Options{InputGrad: true}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.want)
		}
	}
}

// A value of the block before that is detached, or not used, has a gradient of zeros where another of its values has a gradient.
func TestDetachedCarriesHaveZeros(t *testing.T) {
	f := op.Type{DType: dtype.F32, Shape: []int64{2, 3}}
	b := graph.NewBuilder("carries", graph.Config{})
	x, detached, unused := b.Input(f), b.Input(f), b.Input(f)
	p, err := b.Program(graph.Carry, b.Mul(x, b.Detach(detached)))
	if err != nil {
		t.Fatal(err)
	}
	j, err := autograd.Differentiate(p, autograd.Options{InputGrad: true})
	if err != nil {
		t.Fatal(err)
	}
	values := map[graph.Value]op.Array{j.GradOut[0]: numtest.Random(f, 1)}
	for i, v := range []graph.Value{x, detached, unused} {
		values[v] = numtest.Random(f, uint64(2+i))
	}
	values[unused].F[1] = math.NaN()
	got, err := graphtest.Run(j.Program, values, op.Args{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		if want := values[j.GradOut[0]].F[i] * values[detached].F[i]; got[j.GradIn[0]].F[i] != want || got[j.GradIn[1]].F[i] != 0 || got[j.GradIn[2]].F[i] != 0 {
			t.Errorf("gradients of element %d are %v, %v and %v, want %v and zeros", i, got[j.GradIn[0]].F[i], got[j.GradIn[1]].F[i], got[j.GradIn[2]].F[i], want)
		}
	}
}

// Lengths of adapted weights are constants: the gradient of m·x/‖w‖ by w is none, that
// by m is x/‖w‖.
func TestInverseNormsAreConstants(t *testing.T) {
	f := func(dims ...int64) op.Type { return op.Type{DType: dtype.F32, Shape: dims} }
	b := graph.NewBuilder("direction", graph.Config{})
	w, a, up := b.Param("w", f(3, 4), true), b.Param("a", f(2, 4), false), b.Param("b", f(3, 2), false)
	low := b.Linear(b.Linear(b.Input(f(5, 4)), a, 0), up, 0)
	y := b.Mul(low, b.Mul(b.Param("m", f(3), false), b.InverseNorm(w, a, up, 1, true)))
	p, err := b.Program(graph.Carry, y)
	if err != nil {
		t.Fatal(err)
	}
	j, err := autograd.Differentiate(p, autograd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range j.Program.Nodes[j.Forward:] {
		if n.Kind == op.InverseNorm {
			t.Error("the gradient passes through a constant")
		}
	}
	if got := len(graph.Ports(j.Program.Outputs, graph.GradParam)); got != 3 {
		t.Errorf("%d params have gradients, want a, b and m", got)
	}
}
