package driver

// A DNNGraph is a computation described to cuDNN as data: operations on tensors of four
// dimensions. The library looks for an engine that computes all of it at once; what is
// virtual never reaches memory.
type DNNGraph struct {
	Operations []Operation
	// Outside are the tensors that lie in device memory; Run takes their addresses in
	// this order.
	Outside []*Tensor
	// Exact: f32 is not rounded on its way to matrix units.
	Exact bool
}

// Windows say how those of a convolution move over the last two dimensions.
type Windows struct{ Strides, Padding, Dilation [2]int64 }

// Tensor is a value of a graph.
type Tensor struct {
	ID      int64 // its own within the graph
	Type    int
	Shape   [4]int64
	Strides [4]int64 // elements between neighbours of each dimension
	Virtual bool     // exists within the graph alone
	Number  *float32 // the value of a tensor that is one number
}

// Operation is a step of a graph: y of x and, by kind, b and t.
type Operation struct {
	Kind    OperationKind
	Mode    int   // of Pointwise and Reduce
	Axis    int64 // of the mode Index
	Compute int   // type of the arithmetic
	X, B, T *Tensor
	Y       *Tensor
	Windows *Windows // of convolutions
}

// OperationKind says what an operation computes.
type OperationKind int

// Kinds of operations.
const (
	Pointwise      OperationKind = iota // y[i] = mode(x[i], b[i], t[i]); a dimension of size 1 is repeated
	MatMul                              // y = x·b over the two last dimensions
	Reduce                              // y = mode over the dimensions of size 1, or of fewer heads, of x
	Reshape                             // y is x with other strides or another type
	Convolve                            // y = x convolved with b
	ConvolveInput                       // the gradient of x of a convolution, from that of y
	ConvolveWeight                      // the gradient of b of a convolution, from that of y
)

// Modes of Pointwise and Reduce, as cuDNN numbers them.
const (
	Add            = 0
	Multiply       = 1
	Divide         = 6
	Subtract       = 9
	Exponential    = 13
	Logarithm      = 15
	NotLess        = 303 // x ≥ b
	Index          = 501 // the position along Axis
	Select         = 601 // t ? x : b
	ReduceSum      = 0
	ReduceGreatest = 3
)

// Types of tensors, as cuDNN numbers them.
const (
	TensorF32  = 0
	TensorF16  = 2
	TensorI32  = 4
	TensorBF16 = 9
	TensorBool = 11
)
