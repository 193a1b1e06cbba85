package cpu

import (
	"fmt"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
)

// maker prepares a call whose types are right. workers is how many run at once.
type maker func(c op.Call, workers int) program

// makers lists the kinds there are kernels for, a file per family.
var makers = map[op.Kind]maker{
	op.MatMul: matMul,

	op.Embedding:     embedding,
	op.EmbeddingGrad: embeddingGrad,

	op.Copy:      copyOrAdd,
	op.Add:       add,
	op.Mul:       mul,
	op.Scale:     scale,
	op.Unary:     unary,
	op.UnaryGrad: unaryGrad,
	op.Gated:     gated,
	op.GatedGrad: gatedGrad,
	op.Dropout:   dropout,
	op.Cast:      cast,
	op.Split:     split,
	op.Concat:    concat,
	op.SumRows:   sumRows,

	op.RMSNorm:       rmsNorm,
	op.RMSNormGrad:   rmsNormGrad,
	op.LayerNorm:     layerNorm,
	op.LayerNormGrad: layerNormGrad,

	op.Rope:          rope,
	op.Attention:     attention,
	op.AttentionGrad: attentionGrad,

	op.LinearCrossEntropy:     linearCrossEntropy,
	op.LinearCrossEntropyGrad: linearCrossEntropyGrad,
	op.CrossEntropy:           crossEntropy,
	op.CrossEntropyGrad:       crossEntropyGrad,
	op.MeanSquare:             meanSquare,
	op.MeanSquareGrad:         meanSquareGrad,

	op.SumSquares: sumSquares,
	op.ClipScale:  clipScale,
	op.Adam:       adam,
	op.SGD:        sgd,
}

// prepare makes the program of a call, or says why there is none.
func prepare(c op.Call, workers int) (p program, reason string) {
	make, known := makers[c.Kind]
	if !known {
		return p, "the kind is not implemented"
	}
	for _, types := range [][]op.Type{c.In, c.Out} {
		for _, t := range types {
			if reason := typeReason(c, t); reason != "" {
				return p, reason
			}
		}
	}
	if empty(c.Out) {
		return program{run: nothing}, ""
	}
	return make(c, workers), ""
}

// typeReason says why an operand's type is not handled, "" if it is. Arithmetic is
// in f32; 16-bit types are stored, moved and converted.
func typeReason(c op.Call, t op.Type) string {
	switch t.DType {
	case dtype.F32, dtype.I32:
		return ""
	case dtype.F64:
		if c.Kind == op.SumSquares || c.Kind == op.ClipScale {
			return ""
		}
	case dtype.BF16, dtype.F16:
		switch c.Kind {
		case op.Split, op.Concat:
			return ""
		case op.Copy, op.Cast:
			if other := c.Out[0].DType; !c.Attr.Accumulate && (other == c.In[0].DType || other == dtype.F32 || c.In[0].DType == dtype.F32) {
				return ""
			}
		case op.Adam, op.SGD:
			if c.In[1].DType == dtype.F32 { // only the copy of the weight
				return ""
			}
		}
	}
	return fmt.Sprintf("operands of type %v are not handled", t.DType)
}

// empty says that there is nothing to compute.
func empty(types []op.Type) bool {
	for _, t := range types {
		if t.Shape.Elements() > 0 {
			return false
		}
	}
	return true
}

func nothing(*kernel.Pool, *device.Launch) {}
