package cpu

import (
	"fmt"
	"slices"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

// maker prepares a call whose types are right. workers is how many run at once.
type maker func(c op.Call, workers int) program

// makers lists the kinds there are kernels for, a file per family.
var makers = map[op.Kind]maker{
	op.MatMul:          matMul,
	op.QuantizedMatmul: quantizedMatmul,
	op.InverseNorm:     inverseNorm,

	op.Embedding:     embedding,
	op.EmbeddingGrad: embeddingGrad,

	op.Copy:       copyOrAdd,
	op.Add:        add,
	op.Mul:        mul,
	op.Scale:      scale,
	op.Unary:      unary,
	op.UnaryGrad:  unaryGrad,
	op.Gated:      gated,
	op.GatedGrad:  gatedGrad,
	op.Dropout:    dropout,
	op.Cast:       cast,
	op.Dequantize: dequantize,
	op.Split:      split,
	op.Concat:     concat,
	op.SumRows:    sumRows,

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
	op.Lion:       lion,
	op.Adafactor:  newAdafactor,
}

// prepare makes the program of a call, or says why there is none.
func prepare(c op.Call, workers int) (p program, reason string) {
	make, known := makers[c.Kind]
	if !known {
		return p, "the kind is not implemented"
	}
	for _, t := range slices.Concat(c.In, c.Out) {
		if !slices.Contains(types, t.DType) {
			return p, fmt.Sprintf("operands of type %v are not handled", t.DType)
		}
	}
	switch {
	case empty(c.Out):
		return program{run: nothing}, ""
	case native(c):
		return make(c, workers), ""
	}
	return widened(c, workers)
}

// types of operands there are. Arithmetic is in f32; f64 holds sums of squares. Block
// types are operands of the ops that read them, by the ops' own rules.
var types = []dtype.Type{
	dtype.F32, dtype.I32, dtype.F64, dtype.BF16, dtype.F16,
	quant.NF4, quant.FP4, quant.Dyn8, quant.UDyn8, quant.RowI8, quant.RowF8,
}

func narrow(t dtype.Type) bool { return t == dtype.BF16 || t == dtype.F16 }

// native says that a kernel takes its operands as they are: none is narrow, or it
// only moves or converts those that are.
func native(c op.Call) bool {
	switch c.Kind {
	case op.Copy, op.Split, op.Concat, op.Embedding, op.Dequantize, op.Adam, op.SGD, op.Lion, op.Adafactor:
		return true
	case op.Cast:
		return c.In[0].DType == c.Out[0].DType || c.In[0].DType == dtype.F32 || c.Out[0].DType == dtype.F32
	}
	return !slices.ContainsFunc(slices.Concat(c.In, c.Out), func(t op.Type) bool { return narrow(t.DType) })
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
