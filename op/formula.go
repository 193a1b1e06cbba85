package op

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"spillway/dtype"
)

// Formula is the step of an optimizer as a small program: arithmetic on the weight, the gradient and
// the states of one element, and on scalars of the iteration. Devices make their kernels from it, so
// that an optimizer of one's own needs no kernel. Each operation is rounded to float32 by itself, FMA
// once, so that all devices give the same bits.
//
// A formula with norms is of a param whole: Norm gives the root of the sum of squares of a value over
// all elements. Its sums are made in an order of the device's own, so that only the last bits agree.
type Formula struct {
	States  int      // how many there are
	Scalars []string // the numbers of an iteration
	// Nodes are computed in order. Values before them are the weight, the gradient, the states and the
	// scalars, in this order.
	Nodes     []FormulaNode
	NewWeight Number
	NewStates []Number // by state; one that is not set stays as it is
	err       error
}

// Number is a value of a formula.
type Number int

// FormulaNode is one operation.
type FormulaNode struct {
	Do    Arithmetic
	In    [3]Number
	Const float32 // of NumConst
	State int     // of NumStored
}

// Arithmetic is what a node of a formula computes.
type Arithmetic string

// The operations. Comparisons are 1 or 0.
const (
	NumConst  Arithmetic = "constant"
	NumAdd    Arithmetic = "add"
	NumSub    Arithmetic = "sub"
	NumMul    Arithmetic = "mul"
	NumDiv    Arithmetic = "div"
	NumFMA    Arithmetic = "fma"    // x·y + z
	NumSqrt   Arithmetic = "sqrt"   // of x
	NumAbs    Arithmetic = "abs"    // of x
	NumSign   Arithmetic = "sign"   // 1, -1; zero and NaN are their own
	NumMax    Arithmetic = "max"    // of x and y; y where x is NaN
	NumMin    Arithmetic = "min"    // likewise
	NumWhere  Arithmetic = "where"  // y where x is not 0, else z
	NumAbove  Arithmetic = "above"  // 1 where x > y, else 0
	NumEqual  Arithmetic = "equal"  // 1 where x = y, else 0
	NumStored Arithmetic = "stored" // x as it is stored in a state: below the normal numbers it may be 0
	NumNorm   Arithmetic = "norm"   // of x over the param
)

// NewFormula begins a formula with so many states and scalars of these names.
func NewFormula(states int, scalars ...string) *Formula {
	f := &Formula{States: states, Scalars: scalars, NewStates: make([]Number, states)}
	for i := range f.NewStates {
		f.NewStates[i] = f.State(i)
	}
	return f
}

// Weight, Gradient and State are what a step begins from. The gradient is clipped already.
func (f *Formula) Weight() Number     { return 0 }
func (f *Formula) Gradient() Number   { return 1 }
func (f *Formula) State(i int) Number { return Number(2 + i) }

// Scalar is a number of the iteration, by its name.
func (f *Formula) Scalar(name string) Number {
	i := slices.Index(f.Scalars, name)
	if i < 0 {
		f.fail("it has no scalar %q; it has %s", name, strings.Join(f.Scalars, ", "))
		return 0
	}
	return Number(2 + f.States + i)
}

// Constant is a number that never changes.
func (f *Formula) Constant(c float32) Number { return f.add(FormulaNode{Do: NumConst, Const: c}) }

// Do computes a node from up to three numbers.
func (f *Formula) Do(what Arithmetic, in ...Number) Number {
	n := FormulaNode{Do: what}
	if want := operandsOf[what]; want == 0 || len(in) != want {
		f.fail("%s of %d numbers; it takes %d", what, len(in), want)
		return 0
	}
	copy(n.In[:], in)
	return f.add(n)
}

// The usual operations by their names.
func (f *Formula) Add(x, y Number) Number    { return f.Do(NumAdd, x, y) }
func (f *Formula) Sub(x, y Number) Number    { return f.Do(NumSub, x, y) }
func (f *Formula) Mul(x, y Number) Number    { return f.Do(NumMul, x, y) }
func (f *Formula) Div(x, y Number) Number    { return f.Do(NumDiv, x, y) }
func (f *Formula) FMA(x, y, z Number) Number { return f.Do(NumFMA, x, y, z) }
func (f *Formula) Sqrt(x Number) Number      { return f.Do(NumSqrt, x) }
func (f *Formula) Sign(x Number) Number      { return f.Do(NumSign, x) }
func (f *Formula) Norm(x Number) Number      { return f.Do(NumNorm, x) }

// Where is y where x is not 0, else z.
func (f *Formula) Where(x, y, z Number) Number { return f.Do(NumWhere, x, y, z) }

// SetState stores a number in a state and gives it as it is to be used from then on.
func (f *Formula) SetState(i int, x Number) Number {
	if i < 0 || i >= f.States {
		f.fail("state %d is set; it has %d", i, f.States)
		return 0
	}
	v := f.add(FormulaNode{Do: NumStored, In: [3]Number{x}, State: i})
	f.NewStates[i] = v
	return v
}

// SetWeight says what the weight becomes.
func (f *Formula) SetWeight(x Number) { f.NewWeight = x }

func (f *Formula) add(n FormulaNode) Number {
	f.Nodes = append(f.Nodes, n)
	return Number(f.First() + len(f.Nodes) - 1)
}

func (f *Formula) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

// First is the value of the first node.
func (f *Formula) First() int { return 2 + f.States + len(f.Scalars) }

// operandsOf says how many numbers an operation takes.
var operandsOf = map[Arithmetic]int{NumAdd: 2, NumSub: 2, NumMul: 2, NumDiv: 2, NumFMA: 3, NumSqrt: 1, NumAbs: 1, NumSign: 1, NumMax: 2, NumMin: 2, NumWhere: 3, NumAbove: 2, NumEqual: 2, NumStored: 1, NumNorm: 1}

// MaxFormulaStates is how many states a formula may have, and maxFormulaNodes how many operations.
const (
	MaxFormulaStates = 4
	maxFormulaNodes  = 128
)

// Check refuses a formula that cannot be computed.
func (f *Formula) Check() error {
	switch {
	case f.err != nil:
		return f.err
	case f.States < 0 || f.States > MaxFormulaStates || len(f.Scalars) > MaxScalars || len(f.Nodes) > maxFormulaNodes:
		return fmt.Errorf("%d states, %d scalars and %d operations; at most %d, %d and %d are possible", f.States, len(f.Scalars), len(f.Nodes), MaxFormulaStates, MaxScalars, maxFormulaNodes)
	}
	of := make([]bool, len(f.Nodes)) // by node: it depends on a norm
	for i, n := range f.Nodes {
		for k := range operandsOf[n.Do] {
			at := int(n.In[k])
			if at < 0 || at >= f.First()+i {
				return fmt.Errorf("operation %d, %s, uses value %d, which is not computed before it", i, n.Do, at)
			}
			of[i] = of[i] || at >= f.First() && of[at-f.First()]
		}
		if n.Do == NumNorm && of[i] {
			return fmt.Errorf("operation %d is a norm of what depends on a norm", i)
		}
		of[i] = of[i] || n.Do == NumNorm
	}
	for _, v := range append([]Number{f.NewWeight}, f.NewStates...) {
		if int(v) < 0 || int(v) >= f.First()+len(f.Nodes) {
			return fmt.Errorf("value %d is stored, and there are %d", v, f.First()+len(f.Nodes))
		}
	}
	return nil
}

// Norms lists the nodes that are norms.
func (f *Formula) Norms() (list []int) {
	for i, n := range f.Nodes {
		if n.Do == NumNorm {
			list = append(list, i)
		}
	}
	return list
}

// Compute computes node i from the values before it, for one element.
func (n *FormulaNode) Compute(x, y, z float32, flush func(state int) bool) float32 {
	switch n.Do {
	case NumConst:
		return n.Const
	case NumAdd:
		return x + y
	case NumSub:
		return x - y
	case NumMul:
		return x * y
	case NumDiv:
		return x / y
	case NumFMA:
		return dtype.FMA(x, y, z)
	case NumSqrt:
		return float32(math.Sqrt(float64(x)))
	case NumAbs:
		return math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
	case NumSign:
		switch {
		case x > 0:
			return 1
		case x < 0:
			return -1
		}
		return x
	case NumMax:
		if x > y {
			return x
		}
		return y
	case NumMin:
		if x < y {
			return x
		}
		return y
	case NumWhere:
		if x != 0 {
			return y
		}
		return z
	case NumAbove:
		if x > y {
			return 1
		}
		return 0
	case NumEqual:
		if x == y {
			return 1
		}
		return 0
	case NumStored:
		if bits := math.Float32bits(x); flush(n.State) && bits&(0xff<<23) == 0 {
			return math.Float32frombits(bits & (1 << 31))
		}
		return x
	}
	return float32(math.NaN())
}

// Values computes all nodes of one element, behind the values that are given: weight, gradient, states and
// scalars. Norms are those given, by node; one that is not given is 0.
func (f *Formula) Values(values []float32, norms map[int]float32, flush func(state int) bool) []float32 {
	for i := range f.Nodes {
		n := &f.Nodes[i]
		v := norms[i]
		if n.Do != NumNorm {
			v = n.Compute(values[n.In[0]], values[n.In[1]], values[n.In[2]], flush)
		}
		values = append(values, v)
	}
	return values
}

// formulas holds those that are registered, by the kind of their update.
var formulas = map[Kind]*Formula{}

// RegisterFormula gives a kind of update a formula, from which devices make kernels. Call it from an init
// function; it panics where the formula cannot be computed.
func RegisterFormula(kind Kind, f *Formula) {
	if err := f.Check(); err != nil {
		panic(fmt.Sprintf("op: the formula of %s: %v", kind, err))
	}
	formulas[kind] = f
}

// FormulaOf is the formula of a kind; nil for none.
func FormulaOf(kind Kind) *Formula { return formulas[kind] }
