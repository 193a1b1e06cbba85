package optim

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

// Update is the op of an optimizer whose step takes each element by itself. It updates
// weight and states in place:
//
//	operands  w [n] f32 or bf16, g [n], the states [n], clip [2] f32
//	outputs   w, the states, and the low-precision copy of w when Attr.To is set
//
// The gradient is multiplied by clip[0] first. Where clip[0] is not positive, weight and
// states stay as they are. A weight may be in bf16 without an f32 one anywhere: then the
// step is made in f32 and its result rounded stochastically, with the stream Args.Key and
// positions from Args.Row on; such a call makes no copy. op.State says what states of
// 16 and 8 bits mean.
type Update struct {
	Kind op.Kind
	// Scalars names the numbers of an iteration that a step multiplies by. They are
	// made on the host, in f32, so that all backends use the same bits.
	Scalars []string
	// States are what is stored of each element.
	States []UpdateState
	// Stateless: the op may also be called without states.
	Stateless bool
	// Step is the plain step of one element: it gives the new weight and sets the
	// states. g is multiplied by the clip factor already. Multiplications and sums are
	// rounded to float32 as written: float32(x*y) apart, dtype.FMA together.
	Step func(s *op.Scalars, w, g float32, states []Cell) float32
	// Formula is the step instead, from which devices make their kernels. One with norms takes params
	// whole.
	Formula *op.Formula
	// Examples are numbers of an iteration to try the op with.
	Examples map[string]op.Scalars
}

// UpdateState is a state of an update: its name, as PyTorch calls it, and whether it is
// never negative, for which some codecs have a type of their own.
type UpdateState struct {
	Name     string
	Unsigned bool
}

// stored is the type that the state has where t is asked for.
func (s UpdateState) stored(t dtype.Type) dtype.Type {
	if c := quant.Of(t); c != nil && s.Unsigned && c.Unsigned != dtype.Invalid {
		return c.Unsigned
	}
	return t
}

// Cell is one element of a state during a step.
type Cell struct {
	Value float32
	// Flush: the stored type would keep numbers below the normal ones of float32.
	// Without a gradient they would stay there for ever, and a CPU takes many times as
	// long for them; so they become zero of their sign when they are set.
	Flush bool
}

// Set changes the element and gives the value to go on with.
func (c *Cell) Set(v float32) float32 {
	if bits := math.Float32bits(v); c.Flush && bits&(0xff<<23) == 0 {
		v = math.Float32frombits(bits & (1 << 31))
	}
	c.Value = v
	return v
}

// updates holds the registered updates, by the kind of their op.
var updates = map[op.Kind]*Update{}

// RegisterUpdate adds the op of an optimizer. Call it from an init function.
func RegisterUpdate(u Update) {
	o := op.Op{Kind: u.Kind, Infer: u.infer, Cost: costUpdate, InPlace: updateInPlace, Reference: u.reference, Cases: u.cases}
	if f := u.Formula; f != nil {
		if len(u.States) != f.States {
			panic(fmt.Sprintf("optim: update %s has %d states, its formula %d", u.Kind, len(u.States), f.States))
		}
		u.Scalars, u.Step = f.Scalars, formulaStep(f, nil)
		o.WholeParam = len(f.Norms()) > 0
		op.RegisterFormula(u.Kind, f)
	}
	o.Scalars = u.Scalars
	op.Register(o)
	updates[u.Kind] = &u
}

// costUpdate counts fifteen operations per element: a root, a division and some multiplications.
func costUpdate(c op.Call) op.Cost {
	return op.Cost{Flops: 15 * float64(c.In[0].Shape.Elements())}
}

// updateInPlace: weight and states are updated in place; a copy of the weight has memory
// of its own.
func updateInPlace(c op.Call) []int {
	list := []int{0}
	for i := 2; i < len(c.In)-1; i++ {
		list = append(list, i)
	}
	return list
}

func (u *Update) infer(a op.Attr, in []op.Type) ([]op.Type, error) {
	n := len(u.States)
	if u.Stateless && len(in) == 3 {
		n = 0
	}
	if len(in) != 3+n {
		return nil, fmt.Errorf("takes %d operands, got %d", 3+n, len(in))
	}
	codecs := make([][]dtype.Type, n)
	for i := range codecs {
		for _, c := range quant.States() {
			codecs[i] = append(codecs[i], u.States[i].stored(c.Type))
		}
	}
	return inferUpdate(a, in, codecs)
}

// inferUpdate checks the operands of an update, of which it replaces the weight and the
// states behind the gradient; each state may also have one of the block types given.
func inferUpdate(a op.Attr, in []op.Type, codecs [][]dtype.Type) ([]op.Type, error) {
	w, g, clip := in[0], in[1], op.Type{DType: dtype.F32, Shape: []int64{2}}
	if w.DType != dtype.F32 && (w.DType != dtype.BF16 || a.To != dtype.Invalid) {
		return nil, fmt.Errorf("the weight is %v with a copy as %v, want f32, or bf16 without a copy", w, a.To)
	}
	out := append(make([]op.Type, 0, len(codecs)+2), w)
	for i, coded := range codecs {
		t, types := in[2+i], slices.Concat(dtype.Plain, coded)
		if !t.Shape.Equal(w.Shape) || !slices.Contains(types, t.DType) {
			return nil, fmt.Errorf("operand %d is %v next to the weight %v, want the same in one of %v", 2+i, t, w, types)
		}
		out = append(out, t)
	}
	if last := in[len(in)-1]; !last.Equal(clip) {
		return nil, fmt.Errorf("clip is %v, want %v", last, clip)
	}
	if !g.Shape.Equal(w.Shape) {
		return nil, fmt.Errorf("gradient %v next to weight %v", g, w)
	}
	if !g.DType.Float() || g.DType.Block() {
		return nil, fmt.Errorf("operand 1 is %v, want real numbers", g)
	}
	if a.To != dtype.Invalid {
		if !a.To.Float() || a.To.Block() {
			return nil, fmt.Errorf("copy as %v, want a plain real type", a.To)
		}
		out = append(out, op.Type{DType: a.To, Shape: w.Shape})
	}
	return out, nil
}

// reference applies the plain step to all elements. Unlike other references it computes
// in float32, because that is how the step is defined.
func (u *Update) reference(c op.Call, in, out []op.Array, args op.Args) {
	if skipped(c, in, out) {
		return
	}
	states := in[2 : len(in)-1]
	cells := make([]Cell, len(states))
	quantized := slices.ContainsFunc(states, func(s op.Array) bool { return s.Type.DType.Block() })
	clip, step := float32(in[len(in)-1].F[0]), u.Step
	if u.Formula != nil {
		step = formulaStep(u.Formula, formulaNorms(u.Formula, &args.Scalars, len(in[0].F), func(i int, values []float32) bool {
			values[0], values[1] = float32(in[0].F[i]), float32(in[1].F[i])*clip
			for k, s := range states {
				values[2+k] = float32(s.F[i])
			}
			return !quantized || values[1]-values[1] == 0
		}))
	}
	for i := range out[0].F {
		w, g := float32(in[0].F[i]), float32(in[1].F[i])*clip
		for k, s := range states {
			cells[k] = Cell{float32(s.F[i]), s.Type.DType == dtype.F32 || s.Type.DType == dtype.BF16}
		}
		if quantized && g-g != 0 { // infinite or NaN: it would spoil its block
			clear(cells)
		} else {
			w = step(&args.Scalars, w, g, cells)
		}
		out[0].F[i] = float64(w)
		for k := range states {
			out[1+k].F[i] = storedState(states[k].Type.DType, cells[k].Value, k, args, i)
		}
	}
	storeWeight(c, out, args)
}

// storedState is element i of a state as it is stored, where that is rounded with random numbers.
func storedState(t dtype.Type, f float32, state int, args op.Args, i int) float64 {
	if t == dtype.BF16 {
		f = dtype.FromBF16(op.StateStream(args.Key, state).RoundState(f, args.Row+uint64(i)))
	}
	return float64(f)
}

// skipped reports whether the clip factor skips the update, and copies what stays as it is.
func skipped(c op.Call, in, out []op.Array) bool {
	if in[len(in)-1].F[0] > 0 {
		return false
	}
	copy(out[0].F, in[0].F)
	for i := 2; i < len(in)-1; i++ {
		copy(out[i-1].F, in[i].F)
	}
	copyWeight(c, out)
	return true
}

// storeWeight rounds a new weight that is stored in bf16, or makes the copy of one in f32.
func storeWeight(c op.Call, out []op.Array, args op.Args) {
	if c.Out[0].DType == dtype.BF16 {
		for i, f := range out[0].F {
			out[0].F[i] = float64(dtype.FromBF16(op.RoundStochastic(float32(f), args.Key, args.Row+uint64(i))))
		}
	}
	copyWeight(c, out)
}

func copyWeight(c op.Call, out []op.Array) {
	if c.Attr.To != dtype.Invalid {
		copy(out[len(out)-1].F, out[0].F)
	}
}

// cases are made of the examples: every one of them, and with one of them every type of
// states, weights in bf16, copies, the first iteration, and updates that are skipped.
func (u *Update) cases(l *op.CaseList) {
	for _, n := range []int{1, 77, 1031} {
		for _, example := range slices.Sorted(maps.Keys(u.Examples)) {
			u.casesOf(l, n, example)
		}
	}
}

func (u *Update) casesOf(l *op.CaseList, n int, example string) {
	w, g, clip := op.FilledF32(op.Spread, n), l.X(n), op.Numbers(0.75, 2)
	bf16 := w
	bf16.Type.DType = dtype.BF16
	copied := op.Attr{To: dtype.BF16}
	states := func(types ...dtype.Type) (list []op.Operand) {
		for i, s := range u.States {
			fill := op.Spread
			if s.Unsigned {
				fill = squares
			}
			o := op.FilledF32(fill, n)
			o.Type.DType = s.stored(types[i%len(types)])
			list = append(list, o)
		}
		return list
	}
	add := func(name string, a op.Attr, w op.Operand, states []op.Operand, clip op.Operand) *op.Case {
		in := append(append([]op.Operand{w, g}, states...), clip)
		c := l.Add(fmt.Sprintf("[%d] %s%s", n, example, name), u.Kind, a, in...)
		c.Args.Scalars, c.Args.Key, c.Args.Row = u.Examples[example], 77, 1000
		return c
	}
	full := states(dtype.F32)
	add("", op.Attr{}, w, full, clip)
	if u.Stateless {
		add(", no state", op.Attr{}, w, nil, clip)
	}
	if example != slices.Sorted(maps.Keys(u.Examples))[0] {
		return
	}
	zeros := states(dtype.F32)
	for i := range zeros {
		zeros[i].Fill = func(op.Array, func(int) float64) {}
	}
	add(", zero states", op.Attr{}, w, zeros, clip)
	add(", copy", copied, w, full, clip)
	add(", skipped", copied, w, full, op.Numbers(0, 2))
	add(", bf16 weight", op.Attr{}, bf16, full, clip)
	add(", bf16 weight skipped", op.Attr{}, bf16, full, op.Numbers(0, 2))
	if len(u.States) == 0 {
		return
	}
	types := [][]dtype.Type{{dtype.BF16}, {dtype.F16}}
	for _, c := range quant.States() {
		types = append(types, []dtype.Type{c.Type})
	}
	if len(u.States) > 1 {
		types = append(types, []dtype.Type{quant.Dyn8, dtype.F32}, []dtype.Type{quant.Dyn8, dtype.F16}, []dtype.Type{dtype.BF16, quant.Dyn8}, []dtype.Type{dtype.F32, dtype.BF16})
	}
	for _, t := range types {
		add(fmt.Sprintf(", states %v", t), op.Attr{}, w, states(t...), clip).Large = n > 1000
		add(fmt.Sprintf(", states %v, copy", t), copied, w, states(t...), clip)
	}
	add(", 8-bit skipped", op.Attr{}, w, states(quant.Dyn8), op.Numbers(0, 2))
}

// squares fills with numbers in [0, 1).
func squares(a op.Array, u func(i int) float64) {
	for i := range a.F {
		a.F[i] = u(i)
	}
}
