package optim

import (
	"fmt"
	"math"

	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
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
const Adafactor op.Kind = "adafactor"

func init() {
	Register(Rule{
		Name: "adafactor", Help: "squares by row and column instead of by element, so that its state is a thousandth of Adam's; with relative_step and scale_parameter as in its paper", LR: 1e-3,
		Options: []Option{
			{Name: "beta1", Below: 1, Help: "decay of a running mean of steps; 0 for none"},
			{Name: "eps", Default: 1e-30, Help: "added to squares"},
			{Name: "eps2", Default: 1e-3, Help: "least size of a param that lr is relative to, with scale_parameter"},
			{Name: "clip_threshold", Default: 1, Help: "largest root mean square of a step before its rate"},
			{Name: "decay_rate", Default: -0.8, Negative: true, Help: "power of the iteration by which squares are forgotten"},
			{Name: "scale_parameter", Flag: true, Help: "lr is relative to the size of each param"},
			{Name: "relative_step", Flag: true, Help: "lr is at most 1/√iteration"},
			{Name: "warmup_init", Flag: true, Help: "lr is at most 1e-6·iteration"},
		},
		Check: func(c Config) error {
			if !(c.Get("clip_threshold") > 0) {
				return fmt.Errorf("clip_threshold is %v; it must be above 0", c.Get("clip_threshold"))
			}
			return nil
		},
		Kind: Adafactor,
		States: func(c Config) []string {
			if c.Get("beta1") == 0 {
				return nil
			}
			return []string{ExpAvg}
		},
		OtherStates: func(_ string, s shape.Shape, _ Layers) []op.State { return factored(s) },
		No8Bit:      true,
		Rate: func(c Config, iteration int, lr float64) float64 {
			if c.Get("relative_step") != 0 {
				lr = min(lr, 1/math.Sqrt(float64(iteration)))
			}
			if c.Get("warmup_init") != 0 {
				lr = min(lr, 1e-6*float64(iteration))
			}
			return lr
		},
		Scalars: func(c Config, iteration int, lr, decay float32) op.Scalars {
			a := AdafactorStep{Rate: lr, Decay: decay, Beta1: float32(c.Get("beta1")), Eps: float32(c.Get("eps")), Threshold: float32(c.Get("clip_threshold"))}
			a.Take = float32(math.Pow(float64(iteration), c.Get("decay_rate")))
			if c.Get("scale_parameter") != 0 {
				a.MinScale = float32(c.Get("eps2"))
			}
			return a.Scalars()
		},
	})
	op.Register(op.Op{Kind: Adafactor, Infer: inferAdafactor, Cost: costAdafactor, InPlace: updateInPlace, Reference: referenceAdafactor, WholeParam: true,
		Scalars: []string{"rate", "decay", "beta1", "take", "eps", "min_scale", "threshold"}, Cases: adafactorCases})
}

// AdafactorStep are the numbers of one iteration of Adafactor.
type AdafactorStep struct {
	Rate, Decay, Beta1 float32
	Take               float32 // share of the new squares in their means: 1 - beta2 of the iteration
	Eps                float32
	MinScale           float32 // least size of a param that the rate is relative to; 0: it is not
	Threshold          float32 // largest root mean square of a step before its rate
}

// Scalars are the same numbers in the order of the op's names.
func (a AdafactorStep) Scalars() op.Scalars {
	return op.Scalars{a.Rate, a.Decay, a.Beta1, a.Take, a.Eps, a.MinScale, a.Threshold}
}

func inferAdafactor(a op.Attr, in []op.Type) ([]op.Type, error) {
	if len(in) == 0 {
		return nil, fmt.Errorf("takes 5 or 6 operands, got none")
	}
	squares := factored(in[0].Shape)
	mean := len(in) == 4+len(squares)
	if want := 3 + len(squares); !mean && len(in) != want {
		return nil, fmt.Errorf("takes %d or %d operands, got %d", want, want+1, len(in))
	}
	var states [][]dtype.Type
	if mean {
		states = append(states, nil) // in no block type
	}
	out, err := inferUpdate(a, in, states)
	if err != nil {
		return nil, err
	}
	first := len(in) - 1 - len(squares)
	for i, s := range squares {
		if !in[first+i].Equal(s.Type) {
			return nil, fmt.Errorf("operand %d is %v next to the weight %v, want %v", first+i, in[first+i], in[0], s.Type)
		}
	}
	kept := 1 + len(states)
	return append(append(append([]op.Type{}, out[:kept]...), in[first:len(in)-1]...), out[kept:]...), nil
}

// factored are the states of squares that Adafactor keeps of a param: rows and columns, or
// of a vector all, under the names that other implementations have for them.
func factored(s shape.Shape) []op.State {
	state := func(name string, part shape.Shape) op.State {
		return op.State{Name: name, Type: op.Type{DType: dtype.F32, Shape: part}}
	}
	n := len(s)
	if n < 2 {
		return []op.State{state("exp_avg_sq", s)}
	}
	return []op.State{state("exp_avg_sq_row", s[:n-1:n-1]), state("exp_avg_sq_col", append(s[:n-2:n-2], s[n-1]))}
}

// costAdafactor: the gradient is read for rows, for columns, for the size of the step
// and for the step, the weight for its size and its step.
func costAdafactor(c op.Call) op.Cost {
	return op.Cost{Flops: 20 * float64(c.In[0].Shape.Elements()), Bytes: c.Traffic() + c.In[0].Bytes() + 3*c.In[1].Bytes()}
}

func referenceAdafactor(c op.Call, in, out []op.Array, args op.Args) {
	if skipped(c, in, out) {
		return
	}
	var a [7]float64 // the scalars in the precision of references
	for i := range a {
		a[i] = float64(args.Scalars[i])
	}
	rate, decay, beta1, take, eps, minScale, threshold := a[0], a[1], a[2], a[3], a[4], a[5], a[6]
	squares := len(factored(in[0].Type.Shape))
	first := len(in) - 1 - squares
	for i := first; i < len(in)-1; i++ {
		copy(out[i-1].F, in[i].F)
	}
	step := referenceSteps(in[0].Type.Shape, in[1].F, in[len(in)-1].F[0], take, eps, out[first-1:first-1+squares])
	most := max(1, rootMeanSquare(step)/threshold)
	if minScale > 0 {
		rate *= max(minScale, rootMeanSquare(in[0].F))
	}
	for i, w := range in[0].F {
		u := rate * step[i] / most
		if first == 3 {
			u = beta1*in[2].F[i] + (1-beta1)*u
			out[1].F[i] = u
			if t := c.In[2].DType; t == dtype.BF16 {
				out[1].F[i] = storedState(t, float32(u), 0, args, i)
			}
		}
		out[0].F[i] = w - rate*decay*w - u
	}
	storeWeight(c, out, args)
}

// referenceSteps changes the squares and gives the steps before their size is bounded.
func referenceSteps(s shape.Shape, g []float64, clip, take, eps float64, squares []op.Array) []float64 {
	step := make([]float64, len(g))
	square := func(i int) float64 { return g[i]*clip*g[i]*clip + eps }
	if len(squares) == 1 {
		for i, v := range squares[0].F {
			v += (square(i) - v) * take
			squares[0].F[i], step[i] = v, g[i]*clip/math.Sqrt(v)
		}
		return step
	}
	last := len(s) - 1
	matrices, rows, cols := int(s[:last-1].Elements()), int(s[last-1]), int(s[last])
	for k := range matrices {
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

func rootMeanSquare(list []float64) float64 {
	var sum float64
	for _, f := range list {
		sum += f * f
	}
	return math.Sqrt(sum / float64(len(list)))
}

func adafactorCases(l *op.CaseList) {
	for _, dims := range [][]int{{1}, {1031}, {5, 7}, {33, 129}, {600, 3}, {2, 9, 70}} {
		positive := func(a op.Array, u func(int) float64) {
			for i := range a.F {
				a.F[i] = 0.1 + u(i)
			}
		}
		w, g, clip := op.FilledF32(op.Spread, dims...), l.X(dims...), op.Numbers(0.75, 2)
		var squares []op.Operand
		for _, s := range factored(w.Type.Shape) {
			squares = append(squares, op.Operand{Type: s.Type, Fill: positive})
		}
		name := w.Type.Shape.String()
		add := func(what string, attr op.Attr, args AdafactorStep, kept ...op.Operand) {
			in := append([]op.Operand{w, g}, kept...)
			l.Add(name+what, Adafactor, attr, append(append(in, squares...), clip)...).Args.Scalars = args.Scalars()
		}
		relative := AdafactorStep{Rate: 1e-2, Take: 0.4, Eps: 1e-30, MinScale: 1e-3, Threshold: 1}
		fixed := AdafactorStep{Rate: 1e-2, Decay: 0.1, Beta1: 0.9, Take: 0.2, Eps: 1e-30, Threshold: 0.5}
		add("", op.Attr{}, relative)
		add(" at a fixed rate, copy", op.Attr{To: dtype.BF16}, fixed)
		w.Type.DType = dtype.BF16
		add(" bf16", op.Attr{}, relative)
		w.Type.DType = dtype.F32
		add(" first iteration", op.Attr{}, AdafactorStep{Rate: 1e-2, Take: 1, Eps: 1e-30, MinScale: 1e-3, Threshold: 1})
		for _, kept := range []dtype.Type{dtype.F32, dtype.BF16} {
			add(" with a mean in "+kept.String(), op.Attr{}, fixed, op.SpreadAs(kept, dims...))
		}
	}
}
