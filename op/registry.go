package op

import (
	"fmt"
	"maps"
	"slices"
)

// Kind is the name of an op, as plans and errors write it: "matmul". The file of an op
// declares its kind; a program of one's own adds kinds with Register.
type Kind string

// Op is what is true of an op on every device.
type Op struct {
	Kind Kind
	// Takes is the number of operands; 0 where it differs, and Infer counts them.
	Takes int
	// Infer is the shape rule: it gives the types of the outputs, or says why the
	// operands do not fit.
	Infer func(a Attr, in []Type) ([]Type, error)
	// Cost counts arithmetic and memory traffic. Nil means one operation per output
	// element; Bytes of 0 means that every operand and output is touched once.
	Cost func(Call) Cost
	// Accumulates lists the outputs that obey Attr.Accumulate; nil for none.
	Accumulates func(Attr) []int
	// InPlace lists, for each output that shares the memory of an operand, that
	// operand; nil where outputs have memory of their own.
	InPlace func(Call) []int
	// Overwrites lists outputs that may lie where an operand of their size lies which nothing reads any
	// more: each element of them is written by who reads that of the operand, after it. Nil for none.
	Overwrites func(Call) []Overwrite
	// Reference computes the outputs with plain loops in float64, replacing what they
	// hold. See Call.Reference.
	Reference func(c Call, in, out []Array, args Args)
	// Scalars names the numbers of Args.Scalars that the op reads, in order.
	Scalars []string
	// Sizes are the three dimensions that decide how fast a call runs; nil where the
	// bytes of traffic alone decide. See Call.Sizes.
	Sizes func(Call) [3]int64
	// IDs describes the operand that holds rows of a table or classes; nil for none.
	IDs func(Call) IDs
	// Workspace is the scratch memory, in bytes, that a good kernel needs; forecasts
	// count with it. Nil for none.
	Workspace func(Call) int64
	// Fused marks an op that stands for several others, for devices that have a kernel for
	// all of them at once.
	Fused bool
	// WholeParam marks an optimizer's update that needs a param whole, because a step
	// depends on more than its own element.
	WholeParam bool
	// Cases adds the test cases of the op, and of its gradient op where that has none.
	Cases func(*CaseList)
}

// Overwrite is an output that may lie where an operand lies.
type Overwrite struct{ Output, Operand int }

// registry holds all ops. It is filled by init functions and only read after that.
var registry = map[Kind]*Op{}

// Register adds an op. Call it from an init function: it panics, as database/sql does,
// when the op is incomplete or its kind is taken.
func Register(o Op) {
	switch {
	case o.Kind == "" || o.Infer == nil || o.Reference == nil:
		panic(fmt.Sprintf("op: Register of %q without kind, Infer or Reference", o.Kind))
	case registry[o.Kind] != nil:
		panic(fmt.Sprintf("op: Register of %q twice", o.Kind))
	case len(o.Scalars) > MaxScalars:
		panic(fmt.Sprintf("op: %q has %d scalars, %d is the most", o.Kind, len(o.Scalars), MaxScalars))
	}
	registry[o.Kind] = &o
}

func (k Kind) def() (*Op, error) {
	if o := registry[k]; o != nil {
		return o, nil
	}
	return nil, fmt.Errorf("unknown op kind %q; import the package that registers it", string(k))
}

// facts is def without the error: of an unknown kind nothing is known.
func (k Kind) facts() *Op {
	if o := registry[k]; o != nil {
		return o
	}
	return &Op{}
}

// UnmarshalText reads a name and refuses one that nobody registered.
func (k *Kind) UnmarshalText(b []byte) error {
	*k = Kind(b)
	_, err := k.def()
	return err
}

// Kinds lists all registered kinds, sorted.
func Kinds() []Kind { return slices.Sorted(maps.Keys(registry)) }

// Accumulates lists the outputs that obey Attr.Accumulate.
func (k Kind) Accumulates(a Attr) []int {
	if o := k.facts(); o.Accumulates != nil {
		return o.Accumulates(a)
	}
	return nil
}

// WholeParam reports whether an update needs a param whole.
func (k Kind) WholeParam() bool { return k.facts().WholeParam }

// Slots finds scalars of a kind by name: their places in Args.Scalars. Kernels ask
// once, when they are prepared. It panics on a name that the op does not have, which is
// a mistake in the kernel.
func (k Kind) Slots(names ...string) []int {
	slots := make([]int, len(names))
	for i, name := range names {
		if slots[i] = slices.Index(k.facts().Scalars, name); slots[i] < 0 {
			panic(fmt.Sprintf("op %s has no scalar %q", k, name))
		}
	}
	return slots
}

// firstOutput accumulates into the first output.
func firstOutput(Attr) []int { return []int{0} }
