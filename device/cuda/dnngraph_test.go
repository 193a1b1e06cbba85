package cuda

import (
	"fmt"
	"math"
	"testing"

	"spillway/device/cuda/driver"
	"spillway/dtype"
	"spillway/internal/numtest"
	"spillway/op"
	"spillway/shape"
)

// evaluator computes graphs plainly, in float64: what cuDNN is asked for must be attention.
type evaluator struct {
	values map[*driver.Tensor][]float64 // in the order of the dimensions
}

// at is the position of an element in a tensor whose dimensions of size 1 are repeated,
// and whose heads may be shared.
func at4(t *driver.Tensor, of [4]int64, i [4]int64) (n int64) {
	for d, size := range t.Shape {
		x := i[d]
		if size == 1 {
			x = 0
		} else if size < of[d] {
			x = x * size / of[d]
		}
		n = n*size + x
	}
	return n
}

// each goes over the elements of a shape.
func each(s [4]int64, visit func(n int64, i [4]int64)) {
	var i [4]int64
	n := int64(0)
	for i[0] = 0; i[0] < s[0]; i[0]++ {
		for i[1] = 0; i[1] < s[1]; i[1]++ {
			for i[2] = 0; i[2] < s[2]; i[2]++ {
				for i[3] = 0; i[3] < s[3]; i[3]++ {
					visit(n, i)
					n++
				}
			}
		}
	}
}

func sizeOf(t *driver.Tensor) int64 { return t.Shape[0] * t.Shape[1] * t.Shape[2] * t.Shape[3] }

// place is the position of an element in memory.
func place(t *driver.Tensor, i [4]int64) (n int64) {
	for d := range i {
		n += i[d] * t.Strides[d]
	}
	return n
}

func (e *evaluator) value(t *driver.Tensor, of, i [4]int64) float64 {
	if t == nil {
		return 0
	}
	if t.Number != nil {
		return float64(*t.Number)
	}
	return e.values[t][at4(t, of, i)]
}

func (e *evaluator) run(o driver.Operation) {
	y := make([]float64, sizeOf(o.Y))
	switch o.Kind {
	case driver.MatMul:
		each(o.Y.Shape, func(n int64, i [4]int64) {
			for k := range o.X.Shape[3] {
				of := [4]int64{o.Y.Shape[0], o.Y.Shape[1], o.X.Shape[3], o.Y.Shape[3]}
				y[n] += e.values[o.X][at4(o.X, o.X.Shape, [4]int64{i[0], i[1], i[2], k})] * e.value(o.B, of, [4]int64{i[0], i[1], k, i[3]})
			}
		})
	case driver.Reduce:
		if o.Mode == driver.ReduceGreatest {
			for n := range y {
				y[n] = math.Inf(-1)
			}
		}
		each(o.X.Shape, func(n int64, i [4]int64) {
			to := &y[at4(o.Y, o.X.Shape, i)]
			if o.Mode == driver.ReduceGreatest {
				*to = max(*to, e.values[o.X][n])
			} else {
				*to += e.values[o.X][n]
			}
		})
	case driver.Reshape: // the same memory with other strides, which all exchange rows and columns
		each(o.Y.Shape, func(n int64, i [4]int64) {
			y[n] = e.values[o.X][at4(o.X, o.X.Shape, [4]int64{i[0], i[1], i[3], i[2]})]
		})
	default:
		each(o.Y.Shape, func(n int64, i [4]int64) {
			y[n] = pointwise(o, i, e.value(o.X, o.Y.Shape, i), e.value(o.B, o.Y.Shape, i), e.value(o.T, o.Y.Shape, i))
		})
	}
	e.values[o.Y] = y
}

func pointwise(o driver.Operation, i [4]int64, x, b, t float64) float64 {
	switch o.Mode {
	case driver.Add:
		return x + b
	case driver.Multiply:
		return x * b
	case driver.Divide:
		return x / b
	case driver.Subtract:
		return x - b
	case driver.Exponential:
		return math.Exp(x)
	case driver.Logarithm:
		return math.Log(x)
	case driver.NotLess:
		if x >= b {
			return 1
		}
		return 0
	case driver.Index:
		return float64(i[o.Axis])
	case driver.Select:
		if t != 0 {
			return x
		}
		return b
	}
	return math.NaN()
}

// graphs makes a device of a fake GPU whose cuDNN remembers the graph of each plan.
func graphs(t *testing.T) (*Device, map[*driver.GraphPlan]*driver.DNNGraph) {
	t.Helper()
	f, described := newFake(), map[*driver.GraphPlan]*driver.DNNGraph{}
	d := openFake(t, f, Options{})
	d.lib.DNN = f.dnn()
	plain := d.lib.DNN.Prepare
	d.lib.DNN.Prepare = func(h driver.DNNHandle, g *driver.DNNGraph) (*driver.GraphPlan, error) {
		p, err := plain(h, g)
		described[p] = g
		return p, err
	}
	return d, described
}

// compute carries the steps of a program out: buffers are operands, then outputs; the
// last is scratch memory.
func compute(steps []action, described map[*driver.GraphPlan]*driver.DNNGraph, memory [][]float64, bytes func(buffer int) int64) {
	for _, s := range steps {
		run := s.(*graphRun)
		g := described[run.plan]
		e := &evaluator{values: map[*driver.Tensor][]float64{}}
		where := func(i int) []float64 {
			a := run.at[i]
			if a.from == scratch {
				return memory[len(memory)-1]
			}
			return memory[a.index][int64(a.bits)/bytes(a.index):]
		}
		for i, outside := range g.Outside {
			from := where(i)
			e.values[outside] = make([]float64, sizeOf(outside))
			each(outside.Shape, func(n int64, at [4]int64) { e.values[outside][n] = from[place(outside, at)] })
		}
		for _, o := range g.Operations {
			e.run(o)
		}
		for i, outside := range g.Outside {
			to := where(i)
			each(outside.Shape, func(n int64, at [4]int64) { to[place(outside, at)] = e.values[outside][n] })
		}
	}
}

// What cuDNN is asked to compute, computed plainly, is attention and its gradient, also
// in slices.
func TestGraphsAreAttention(t *testing.T) {
	for _, causal := range []bool{false, true} {
		for _, s := range []slice{{2, 4}, {1, 4}, {1, 2}, {1, 1}} {
			for _, heads := range []int64{4, 8} {
				t.Run(fmt.Sprintf("%d heads, causal %v, slices of %v", heads, causal, s), func(t *testing.T) { checkGraphs(t, heads, causal, s) })
			}
		}
	}
}

func checkGraphs(t *testing.T, heads int64, causal bool, s slice) {
	const b, n, d, keys = 2, 7, 8, 4
	typ := func(heads int64) op.Type { return op.Type{DType: dtype.BF16, Shape: shape.Shape{b, n, heads * d}} }
	c, err := op.Make(op.Attention, op.Attr{Heads: heads, KVHeads: keys, Causal: causal, Scale: 0.3}, typ(heads), typ(keys), typ(keys))
	if err != nil {
		t.Fatal(err)
	}
	device, described := graphs(t)
	in := operandsOf(c.In)
	p, err := headsOf(c, 3).forwardGraph(device)
	if err != nil {
		t.Fatal(err)
	}
	out := againstReference(t, c, p, described, in)

	grad := op.Call{Kind: op.AttentionGrad, Attr: c.Attr, In: []op.Type{c.In[0], c.In[1], c.In[2], c.Out[0], c.Out[1], c.In[0]}, Out: c.In}
	p, err = headsOf(grad, 6).gradientGraph(device, s)
	if err != nil {
		t.Fatal(err)
	}
	if want := int(b / s.samples * keys / s.keys); len(p.actions) != want {
		t.Errorf("%d slices, want %d", len(p.actions), want)
	}
	againstReference(t, grad, p, described, []op.Array{in[0], in[1], in[2], out[0], out[1], numtest.Random(c.In[0], 9)})
}

// againstReference computes a program and compares it with the op's reference, whose
// outputs it returns.
func againstReference(t *testing.T, c op.Call, p program, described map[*driver.GraphPlan]*driver.DNNGraph, in []op.Array) (want []op.Array) {
	t.Helper()
	types := append(c.In[:len(c.In):len(c.In)], c.Out...)
	var memory [][]float64
	for i, typ := range types {
		a := op.NewArray(typ)
		if i < len(in) {
			a = in[i]
		} else {
			want = append(want, op.NewArray(typ))
		}
		memory = append(memory, append([]float64(nil), a.F...))
	}
	if err := c.Reference(in, want, op.Args{}); err != nil {
		t.Fatal(err)
	}
	memory = append(memory, make([]float64, 1<<12))
	compute(p.actions, described, memory, func(i int) int64 { return types[i].DType.Bytes(1) })
	for i, w := range want {
		if off := numtest.Compare(memory[len(c.In)+i], w.F); off.Max > 1e-6 {
			t.Errorf("output %d of %v is off by %v", i, c.Kind, off)
		}
	}
	return want
}

// cuDNN itself accepts every operation of the graphs, where it is installed.
func TestGraphsAreWellFormed(t *testing.T) {
	lib, err := driver.LoadDNN(searchPaths())
	if err != nil {
		t.Skipf("no cuDNN to ask: %v", err)
	}
	for _, c := range []struct{ heads, keys int64 }{{32, 8}, {8, 8}} {
		for _, causal := range []bool{false, true} {
			for _, precision := range []dtype.Type{dtype.BF16, dtype.F16} {
				typ := func(heads int64) op.Type { return op.Type{DType: precision, Shape: shape.Shape{2, 512, heads * 128}} }
				call, err := op.Make(op.Attention, op.Attr{Heads: c.heads, KVHeads: c.keys, Causal: causal, Scale: 0.1}, typ(c.heads), typ(c.keys), typ(c.keys))
				if err != nil {
					t.Fatal(err)
				}
				h := headsOf(call, 3)
				for _, g := range []*driver.DNNGraph{h.graph(), h.gradGraph(slice{1, c.keys / 2})} {
					if err := lib.Describe(g); err != nil {
						t.Errorf("%v: %v", call, err)
					}
				}
			}
		}
	}
}
