package op

import (
	"cmp"
	"fmt"

	"spillway/dtype"
	"spillway/quant"
)

// Small helpers of the shape rules.

// arity refuses a wrong number of operands; each optional one that is there counts too.
func arity(in []Type, want int, optional ...bool) error {
	for _, there := range optional {
		if there {
			want++
		}
	}
	if len(in) != want {
		return fmt.Errorf("takes %d operands, got %d", want, len(in))
	}
	return nil
}

// float refuses operands that do not hold plain real numbers.
func float(in []Type, which ...int) error {
	for _, i := range which {
		if !in[i].DType.Float() || in[i].DType.Block() {
			if in[i].DType == dtype.I32 {
				return fmt.Errorf("operand %d is %v, want real numbers; cast ids to f32 first", i, in[i])
			}
			return fmt.Errorf("operand %d is %v, want real numbers", i, in[i])
		}
	}
	return nil
}

// quantized refuses an operand that is no weight in a block format.
func quantized(in []Type, i int) error {
	if !quant.IsWeights(in[i].DType) {
		return fmt.Errorf("operand %d is %v, want a weight quantized as %s", i, in[i], quant.Aliases(", "))
	}
	return nil
}

// ids refuses operands that are not 32-bit integers.
func ids(in []Type, which ...int) error {
	for _, i := range which {
		if in[i].DType != dtype.I32 {
			return fmt.Errorf("operand %d is %v, want i32", i, in[i])
		}
	}
	return nil
}

// same refuses operands that differ in type.
func same(in []Type, a, b int) error {
	if !in[a].Equal(in[b]) {
		return fmt.Errorf("operands %d and %d are %v and %v, want the same", a, b, in[a], in[b])
	}
	return nil
}

// vector refuses an operand that is not one vector of n elements.
func vector(in []Type, i int, n int64) error {
	if len(in[i].Shape) != 1 || in[i].Shape[0] != n {
		return fmt.Errorf("operand %d is %v, want [%d]", i, in[i], n)
	}
	return nil
}

// rank refuses an operand with fewer than n dimensions.
func rank(in []Type, i, n int) error {
	if len(in[i].Shape) < n {
		return fmt.Errorf("operand %d is %v, want at least %d dimensions", i, in[i], n)
	}
	return nil
}

// matrix refuses an operand that has not two dimensions.
func matrix(in []Type, i int) error {
	if len(in[i].Shape) != 2 {
		return fmt.Errorf("operand %d is %v, want two dimensions", i, in[i])
	}
	return nil
}

// check returns the first error.
var check = cmp.Or[error]

// scalar32 is the type of losses and scales.
var scalar32 = Type{DType: dtype.F32, Shape: []int64{1}}

func scalars(in []Type, which ...int) error {
	for _, i := range which {
		if !in[i].Equal(scalar32) {
			return fmt.Errorf("operand %d is %v, want %v", i, in[i], scalar32)
		}
	}
	return nil
}
