// Package op is the set of operations that programs are made of.
//
// An op is data: a Kind (its name), a few attributes, and operands of known type. What
// holds on every device is registered here, a file per family: shape rule, cost, plain
// float64 reference and test cases. Gradients are in package autograd, updates of weights
// in package optim, kernels in the backends. A backend is asked while a plan is made
// whether it has a kernel for a Call, so adding an op widens no interface. A program may
// register ops of its own; examples/ownop does.
//
// Dimension letters: B sequences, T query positions, S key positions, D width,
// H heads, K key-value heads, V vocabulary, N rows (all outer dimensions of a
// tensor flattened: most ops see a tensor as N rows of its last dimension).
package op

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"spillway/dtype"
	"spillway/shape"
)

// Type is the type of an operand.
type Type struct {
	DType dtype.Type  `json:"dtype"`
	Shape shape.Shape `json:"shape"`
}

// Bytes is the exact storage of the operand.
func (t Type) Bytes() int64 {
	if t.DType.ByRows() {
		return t.Shape.Rows() * t.DType.Bytes(t.Shape.Last())
	}
	return t.DType.Bytes(t.Shape.Elements())
}

// Align is what the offset of an element is a multiple of: its size, or of a block type that
// of f32 scales, with which it begins.
func (t Type) Align() int64 {
	if t.DType.Block() {
		return dtype.F32.Bytes(1)
	}
	return max(t.DType.Bytes(1), 1)
}

// String prints "f32[4 2048]".
func (t Type) String() string { return t.DType.String() + t.Shape.String() }

// Equal compares element type and dimensions.
func (t Type) Equal(u Type) bool { return t.DType == u.DType && t.Shape.Equal(u.Shape) }

// Attr holds the attributes of all kinds; each kind's file says which it reads.
// Unused ones are zero.
type Attr struct {
	TransA bool `json:"trans_a,omitempty"`
	TransB bool `json:"trans_b,omitempty"`
	// Bias: the matmul or norm has a bias operand.
	Bias bool `json:"bias,omitempty"`
	// Plus: a last operand of the output's type is added to the matmul.
	Plus bool `json:"plus,omitempty"`
	// Constant: B of the matmul is a weight that nothing writes during a program but Dequantize, behind which nothing
	// begins before it has ended: so a kernel may read it before what precedes it is done.
	Constant bool `json:"constant,omitempty"`
	// Exact: a row of the matmul, or of attention over a cache, has the same bits whatever rows are
	// computed with it. Kernels of CPUs give that anyway.
	Exact bool `json:"exact,omitempty"`
	// AnyOrder: sums of the matmul may be in another order than those of the same rows in a larger
	// one, where that is faster. A row still has the same bits whatever few rows are computed with it.
	AnyOrder bool `json:"any_order,omitempty"`
	// Accumulate: the outputs that are sums over rows (gradients of parameters)
	// are added to what is there instead of replacing it.
	Accumulate bool `json:"accumulate,omitempty"`
	// InputOnly: a gradient op leaves out the gradients of its parameters,
	// which are frozen.
	InputOnly bool `json:"input_only,omitempty"`

	Func Func `json:"func,omitempty"`
	// Alpha and Beta are the numbers of a Func that has some.
	Alpha float64 `json:"alpha,omitempty"`
	Beta  float64 `json:"beta,omitempty"`
	// Func2 is the function of Binary and Compare, Second that its gradient is by the second operand.
	Func2  Func2 `json:"func2,omitempty"`
	Second bool  `json:"second,omitempty"`
	// Reduction is what Reduce does.
	Reduction Reduction `json:"reduction,omitempty"`
	// Axis is the dimension that an op works along, counted from the last, which is 0; Dims is how
	// many neighbouring dimensions, of which it is the last, are taken as one; 0 counts as 1.
	Axis int64 `json:"axis,omitempty"`
	Dims int64 `json:"dims,omitempty"`
	// KeepDims: what is reduced stays as dimensions of 1.
	KeepDims bool `json:"keepdims,omitempty"`
	// Log: the logarithm of the softmax.
	Log bool `json:"log,omitempty"`
	// Start, Step and Length are of Slice and Pad; a Step of 0 counts as 1.
	Start  int64 `json:"start,omitempty"`
	Step   int64 `json:"step,omitempty"`
	Length int64 `json:"length,omitempty"`
	// Axes is the order in which Permute takes the dimensions.
	Axes []int64 `json:"axes,omitempty"`
	// Spatial says how windows of convolutions and pooling move.
	Spatial Spatial `json:"spatial,omitzero"`
	// WholeBatch: a norm's statistics are over all samples; Running: it has running statistics.
	WholeBatch bool `json:"whole_batch,omitempty"`
	Running    bool `json:"running,omitempty"`
	// Resampling is how Resample reads between places; AlignCorners that first and last places stay.
	Resampling   Resampling `json:"resampling,omitempty"`
	AlignCorners bool       `json:"align_corners,omitempty"`

	Eps   float64 `json:"eps,omitempty"`
	Scale float64 `json:"scale,omitempty"`

	// OutlierThreshold of LLM.int8: columns with a magnitude of at least this are multiplied
	// in floating point; 0 for none.
	OutlierThreshold float64 `json:"outliers,omitempty"`

	Heads   int64 `json:"heads,omitempty"`
	KVHeads int64 `json:"kv_heads,omitempty"`
	Causal  bool  `json:"causal,omitempty"`
	// Window: a query sees at most this many latest keys, itself included; 0 for all.
	Window int64 `json:"window,omitempty"`
	// Which optional operands of attention follow q, k, v, in this order.
	Segments bool `json:"segments,omitempty"`
	KeyMask  bool `json:"key_mask,omitempty"`
	Mask     bool `json:"mask,omitempty"`
	// Document is how many tokens the document has that a position is in, on average over
	// all positions; 0: sequences are one document. It changes what attention costs, not
	// what it computes.
	Document int64 `json:"document,omitempty"`
	// Inverse rotates back: the gradient of Rope.
	Inverse bool `json:"inverse,omitempty"`

	// Prob is the share of elements dropped; Stream distinguishes the random streams of
	// one program.
	Prob   float64 `json:"prob,omitempty"`
	Stream uint32  `json:"stream,omitempty"`

	// Rows of the table EmbeddingGrad makes.
	Rows int64 `json:"rows,omitempty"`
	// InnerDims is how many inner dimensions the result of SumRows has.
	InnerDims int64 `json:"keep,omitempty"`
	// Sizes of the parts Split makes of a dimension.
	Sizes []int64 `json:"sizes,omitempty"`
	// To is the element type Cast and Dequantize make.
	To dtype.Type `json:"to,omitempty"`
	// Shape is the full shape of what Dequantize, Reshape and Expand make.
	Shape shape.Shape `json:"shape,omitempty"`
	// Extra holds the attributes of ops that a program adds, by names of its own.
	Extra map[string]float64 `json:"extra,omitempty"`
}

// Unusable is a number that is infinite or NaN, which no plan can say; nil if there is none.
func (a *Attr) Unusable() *float64 {
	numbers := append([]float64{a.Alpha, a.Beta, a.Eps, a.Scale, a.OutlierThreshold, a.Prob}, slices.Collect(maps.Values(a.Extra))...)
	for _, n := range numbers {
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return &n
		}
	}
	return nil
}

// Call is one op on operands of known type: what a backend is asked a kernel for.
type Call struct {
	Kind Kind   `json:"kind"`
	Attr Attr   `json:"attr"`
	In   []Type `json:"in"`
	Out  []Type `json:"out"`
}

// String prints "matmul(f32[8 16], f32[32 16]) f32[8 32]".
func (c Call) String() string {
	s := string(c.Kind) + "("
	for i, t := range c.In {
		if i > 0 {
			s += ", "
		}
		s += t.String()
	}
	s += ")"
	for _, t := range c.Out {
		s += " " + t.String()
	}
	return s
}

// Args are the numbers of a launch that differ from iteration to iteration.
type Args struct {
	// Key selects the random stream: derived from seed, iteration and block.
	Key uint64
	// Row is the global index of the micro-batch's first sequence, so that a sequence
	// meets the same random numbers however the batch is split. Of an update it is the
	// position of the first element in its random stream.
	Row uint64
	// Scalars are the numbers an op reads in addition to its operands, under the names
	// that Op.Scalars lists: the learning rate and so on.
	Scalars Scalars
}

// MaxScalars is how many scalars an op can have.
const MaxScalars = 12

// Scalars are the numbers of one launch, in the order of Op.Scalars.
type Scalars [MaxScalars]float32

// Cost is what a call takes from a device: arithmetic and memory traffic.
type Cost struct {
	Flops float64
	// Matrix: the arithmetic runs on matrix units, at the rate of matmuls.
	Matrix bool
	// Bytes read plus bytes written, each operand counted once.
	Bytes int64
}

// Make applies the shape rule of a kind and returns the complete call.
func Make(kind Kind, attr Attr, in ...Type) (Call, error) {
	o, err := kind.def()
	if err != nil {
		return Call{}, err
	}
	for i, t := range in {
		if err := t.Shape.Check(); err != nil {
			return Call{}, fmt.Errorf("%s: operand %d: %w", kind, i, err)
		}
	}
	if o.Takes > 0 {
		err = arity(in, o.Takes)
	}
	var out []Type
	if err == nil {
		out, err = o.infer(attr, in)
	}
	if err != nil {
		return Call{}, fmt.Errorf("%s: %w", kind, err)
	}
	return Call{Kind: kind, Attr: attr, In: in, Out: out}, nil
}

// infer applies the shape rule, which may be a program's own: one that fails, or gives what is no type, is an error.
func (o *Op) infer(attr Attr, in []Type) (out []Type, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("its shape rule failed: %v", r)
		}
	}()
	if out, err = o.Infer(attr, in); err == nil && len(out) == 0 {
		return nil, fmt.Errorf("its shape rule gives no output")
	}
	for i, t := range out {
		if err != nil {
			break
		}
		if err = t.Shape.Check(); err != nil {
			err = fmt.Errorf("its shape rule gives %v as output %d: %w", t.Shape, i, err)
		} else if t.DType == dtype.Invalid {
			err = fmt.Errorf("its shape rule gives no element type for output %d", i)
		}
	}
	return out, err
}

// Check verifies that the call's outputs are what its shape rule says.
func (c Call) Check() error {
	made, err := Make(c.Kind, c.Attr, c.In...)
	if err != nil {
		return err
	}
	if len(made.Out) != len(c.Out) {
		return fmt.Errorf("%s has %d outputs, its rule gives %d", c.Kind, len(c.Out), len(made.Out))
	}
	for i := range made.Out {
		if !made.Out[i].Equal(c.Out[i]) {
			return fmt.Errorf("%s: output %d is %v, its rule gives %v", c.Kind, i, c.Out[i], made.Out[i])
		}
	}
	return nil
}

// Cost of the call. Kinds without a rule of their own cost one operation per
// output element.
func (c Call) Cost() Cost {
	cost, o := Cost{Bytes: c.Traffic()}, c.Kind.facts()
	if o.Cost == nil {
		for _, t := range c.Out {
			cost.Flops += float64(t.Shape.Elements())
		}
		return cost
	}
	made := o.Cost(c)
	if made.Bytes != 0 {
		cost.Bytes = made.Bytes
	}
	cost.Flops, cost.Matrix = made.Flops, made.Matrix
	return cost
}

func (c Call) Traffic() (n int64) {
	for _, t := range c.In {
		n += t.Bytes()
	}
	for _, t := range c.Out {
		n += t.Bytes()
	}
	return n
}

// Empty says that there is nothing to compute.
func (c Call) Empty() bool {
	return !slices.ContainsFunc(c.Out, func(t Type) bool { return t.Shape.Elements() > 0 })
}

// InPlace lists, for each output that is the same memory as an operand, that
// operand; nil for calls that write to memory of their own.
func (c Call) InPlace() []int {
	if o := c.Kind.facts(); o.InPlace != nil {
		return o.InPlace(c)
	}
	return nil
}

// Overwrites lists the outputs that may lie where an operand lies which nothing reads any more.
func (c Call) Overwrites() []Overwrite {
	if o := c.Kind.facts(); o.Overwrites != nil {
		return o.Overwrites(c)
	}
	return nil
}

// Workspace is the scratch memory, in bytes, that a good kernel for the call needs.
func (c Call) Workspace() int64 {
	if o := c.Kind.facts(); o.Workspace != nil {
		return o.Workspace(c)
	}
	return 0
}

// IDs describes the operand of a call that names rows of a table or classes.
type IDs struct {
	Operand       int
	Count         int64 // ids run from 0 up to this
	AllowsIgnored bool  // IgnoreIndex is allowed too
}

// Refuses says that an id names nothing.
func (d IDs) Refuses(id int32) bool {
	return (id < 0 || int64(id) >= d.Count) && !(d.AllowsIgnored && id == IgnoreIndex)
}

// First is the first place of a list whose id is refused; -1 for none.
func (d IDs) First(list []int32) int {
	for i, id := range list {
		if uint64(int64(id)) >= uint64(d.Count) && d.Refuses(id) {
			return i
		}
	}
	return -1
}

// IDs of a call; ok is false where it has none. Whoever makes batches looks at ids before anything runs, the CPU at those
// that its kernels get; kernels of GPUs clamp ids that are outside.
func (c Call) IDs() (ids IDs, ok bool) {
	if o := c.Kind.facts(); o.IDs != nil {
		return o.IDs(c), true
	}
	return IDs{}, false
}
