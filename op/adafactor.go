package op

import (
	"fmt"
	"math"

	"spillway/dtype"
	"spillway/shape"
)

// Further scalars of Adafactor in Args.F; ArgRate, ArgDecay, ArgBeta1 and ArgEps are as
// in Adam.
const (
	ArgTake       = 3 // share of the new squares in their means: 1 - beta2 of the iteration
	ArgLeastScale = 5 // of the weights, which the rate is multiplied by; 0: it is not
	ArgThreshold  = 6 // the most root mean square of a step before its rate
)

// Adafactor updates a param whole, in place. Of matrices, the last two dimensions, it
// keeps means of squares by row and by column instead of by element; of vectors by
// element. The gradient is multiplied by clip[0]; with take and eps, means over what is
// not kept, and rms the root mean square over the param,
//
//	row += (mean over columns (g² + eps) - row)·take
//	col += (mean over rows (g² + eps) - col)·take
//	u = g / sqrt(row/mean(row) · col)           of a matrix
//	v += (g² + eps - v)·take, u = g / sqrt(v)   of a vector
//	u /= max(1, rms(u)/threshold)
//	a = rate · max(least scale, rms(w)), or the rate alone with a least scale of 0
//	m = beta1·m + (1 - beta1)·a·u               with an m
//	w -= a·decay·w
//	w -= m, or a·u without an m
//
//	operands  w [.. r c] f32 or bf16, g [.. r c], m [.. r c] in f32, bf16, f16 or
//	          nothing, row [.. r] f32, col [.. c] f32, clip [2] f32; v [n] f32 instead of row
//	          and col where w has one dimension
//	outputs   w, the states, and the low-precision copy of w when Attr.To is set
const Adafactor Kind = "adafactor"

func init() {
	Register(Op{Kind: Adafactor, Infer: inferAdafactor, Cost: costAdafactor, InPlace: updateInPlace, Reference: referenceAdafactor, WholeParam: true, Cases: (*CaseList).adafactorCases})
}

func inferAdafactor(a Attr, in []Type) ([]Type, error) {
	if len(in) == 0 {
		return nil, arity(in, 6)
	}
	squares := factored(in[0].Shape)
	mean := len(in) == 4+len(squares)
	if want := 3 + len(squares); !mean && len(in) != want {
		return nil, fmt.Errorf("takes %d or %d operands, got %d", want, want+1, len(in))
	}
	var states []state
	if mean {
		states = append(states, state{2, dtype.F32})
	}
	out, err := updated(a, in, states...)
	if err != nil {
		return nil, err
	}
	first := len(in) - 1 - len(squares)
	for i, s := range squares {
		want := Type{dtype.F32, s}
		if !in[first+i].Equal(want) {
			return nil, fmt.Errorf("operand %d is %v beside the weight %v, want %v", first+i, in[first+i], in[0], want)
		}
	}
	kept := 1 + len(states)
	return append(append(append([]Type{}, out[:kept]...), in[first:len(in)-1]...), out[kept:]...), nil
}

// factored are the shapes of the squares that Adafactor keeps: rows and columns, or of a
// vector all.
func factored(s shape.Shape) []shape.Shape {
	n := len(s)
	if n < 2 {
		return []shape.Shape{s}
	}
	return []shape.Shape{s[: n-1 : n-1], append(s[:n-2:n-2], s[n-1])}
}

// FactoredStates are the states of squares that Adafactor keeps of a param, under the
// names that other implementations have for them.
func FactoredStates(s shape.Shape) []State {
	names, list := []string{"exp_avg_sq_row", "exp_avg_sq_col"}, []State{}
	if len(s) < 2 {
		names = []string{"exp_avg_sq"}
	}
	for i, part := range factored(s) {
		list = append(list, State{names[i], Type{dtype.F32, part}})
	}
	return list
}

// costAdafactor: the gradient is read for rows, for columns, for the size of the step
// and for the step, the weight for its size and its step.
func costAdafactor(c Call) Cost {
	return Cost{Flops: 20 * float64(c.In[0].Shape.Elements()), Bytes: c.Traffic() + c.In[0].Bytes() + 3*c.In[1].Bytes()}
}

// matrices cuts a shape into its matrices: how many, and their rows and columns. A
// vector is one row.
func matrices(s shape.Shape) (n, rows, cols int) {
	switch len(s) {
	case 0:
		return 1, 1, 1
	case 1:
		return 1, 1, int(s[0])
	}
	last := len(s) - 1
	return int(s[:last-1].Elements()), int(s[last-1]), int(s[last])
}

func referenceAdafactor(c Call, in, out []Array, args Args) {
	if skipped(c, in, out) {
		return
	}
	a := scalarArgs(args)
	squares := len(factored(in[0].Type.Shape))
	first := len(in) - 1 - squares
	for i := first; i < len(in)-1; i++ {
		copy(out[i-1].F, in[i].F)
	}
	step := referenceSteps(in[0].Type.Shape, in[1].F, in[len(in)-1].F[0], a, out[first-1:first-1+squares])
	most := max(1, rootMeanSquare(step)/a[ArgThreshold])
	rate := a[ArgRate]
	if a[ArgLeastScale] > 0 {
		rate *= max(a[ArgLeastScale], rootMeanSquare(in[0].F))
	}
	for i, w := range in[0].F {
		u := rate * step[i] / most
		if first == 3 {
			u = a[ArgBeta1]*in[2].F[i] + (1-a[ArgBeta1])*u
			out[1].F[i] = u
		}
		out[0].F[i] = w - rate*a[ArgDecay]*w - u
	}
	storeWeight(c, out, args)
}

// referenceSteps changes the squares and gives the steps before their size is bounded.
func referenceSteps(s shape.Shape, g []float64, clip float64, a [MaxScalars]float64, squares []Array) []float64 {
	step := make([]float64, len(g))
	square := func(i int) float64 { return g[i]*clip*g[i]*clip + a[ArgEps] }
	take := a[ArgTake]
	if len(squares) == 1 {
		for i, v := range squares[0].F {
			v += (square(i) - v) * take
			squares[0].F[i], step[i] = v, g[i]*clip/math.Sqrt(v)
		}
		return step
	}
	n, rows, cols := matrices(s)
	for k := range n {
		row, col := squares[0].F[k*rows:(k+1)*rows], squares[1].F[k*cols:(k+1)*cols]
		at := func(i, j int) int { return (k*rows+i)*cols + j }
		for i := range row {
			sum := 0.0
			for j := range col {
				sum += square(at(i, j))
			}
			row[i] += (sum/float64(cols) - row[i]) * take
		}
		for j := range col {
			sum := 0.0
			for i := range row {
				sum += square(at(i, j))
			}
			col[j] += (sum/float64(rows) - col[j]) * take
		}
		mean := 0.0
		for _, r := range row {
			mean += r / float64(rows)
		}
		for i := range row {
			for j := range col {
				step[at(i, j)] = g[at(i, j)] * clip / math.Sqrt(row[i]/mean*col[j])
			}
		}
	}
	return step
}

func rootMeanSquare(f []float64) float64 { return math.Sqrt(dot(f, f) / float64(len(f))) }

func (l *CaseList) adafactor(dims ...int) {
	positive := func(a Array, u func(int) float64) {
		for i := range a.F {
			a.F[i] = 0.1 + u(i)
		}
	}
	w, g, clip := FilledF32(Spread, dims...), l.X(dims...), Numbers(0.75, 2)
	var squares []Operand
	for _, s := range factored(w.Type.Shape) {
		squares = append(squares, Operand{Type{dtype.F32, s}, positive})
	}
	name := w.Type.Shape.String()
	add := func(what string, attr Attr, args Scalars, kept ...Operand) {
		in := append([]Operand{w, g}, kept...)
		l.Add(name+what, Adafactor, attr, append(append(in, squares...), clip)...).Args.Scalars = args
	}
	relative := Scalars{ArgRate: 1e-2, ArgTake: 0.4, ArgEps: 1e-30, ArgLeastScale: 1e-3, ArgThreshold: 1}
	fixed := Scalars{ArgRate: 1e-2, ArgDecay: 0.1, ArgBeta1: 0.9, ArgTake: 0.2, ArgEps: 1e-30, ArgThreshold: 0.5}
	add("", Attr{}, relative)
	add(" at a fixed rate, copy", Attr{To: dtype.BF16}, fixed)
	w.Type.DType = dtype.BF16
	add(" bf16", Attr{}, relative)
	w.Type.DType = dtype.F32
	add(" first iteration", Attr{}, Scalars{ArgRate: 1e-2, ArgTake: 1, ArgEps: 1e-30, ArgLeastScale: 1e-3, ArgThreshold: 1})
	for _, kept := range []dtype.Type{dtype.F32, dtype.BF16} {
		add(" with a mean in "+kept.String(), Attr{}, fixed, SpreadAs(kept, dims...))
	}
}

func (l *CaseList) adafactorCases() {
	for _, dims := range [][]int{{1}, {1031}, {5, 7}, {33, 129}, {600, 3}, {2, 9, 70}} {
		l.adafactor(dims...)
	}
}
