package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
)

func init() {
	native := func(c op.Call) bool { return isPairsLoss(c) || !hasNarrow(c.In) }
	RegisterNative(op.LinearCrossEntropy, linearLoss, native)
	RegisterNative(op.LinearCrossEntropyGrad, linearLoss, native)
	Register(op.CrossEntropy, logitLoss)
	Register(op.CrossEntropyGrad, logitLoss)
	Register(op.MeanSquare, meanSquare)
	Register(op.MeanSquareGrad, meanSquareGrad)
}

// isPairsLoss says that a loss is of bf16 on a CPU that multiplies pairs.
func isPairsLoss(c op.Call) bool { return kernel.HasPairs() && c.In[0].DType == dtype.BF16 }

// linearLoss makes the loss of the logits x·Wᵀ, with its gradients if asked for. The losses
// of the rows are at the start of the workspace.
func linearLoss(c op.Call, workers int) Program {
	grad := c.Kind == op.LinearCrossEntropyGrad
	k := &kernel.LinearCrossEntropy{
		N: int(c.In[0].Shape.Rows()), V: int(c.In[1].Shape[0]), D: int(c.In[1].Shape[1]),
		Ignore: op.IgnoreIndex, Accumulate: c.Attr.Accumulate,
	}
	if isPairsLoss(c) {
		k.Half = &kernel.HalfLoss{}
	}
	return Program{
		Workspace: bytesOf(k.N + k.Workspace(workers)),
		Run: func(p *kernel.Pool, l *device.Launch) {
			work, scale := scratch(l), F32(l, 3)[0]
			k.Targets, k.Losses, k.Work = ids(l, 2), work[:k.N], work[k.N:]
			if grad {
				k.Slope = scale * F32(l, 4)[0]
			}
			if h := k.Half; h != nil {
				h.X, h.W, h.DX, h.DW = lossOperands[uint16](c, l)
			} else {
				k.X, k.W, k.DX, k.DW = lossOperands[float32](c, l)
			}
			k.Compute(p)
			F32(l, len(c.In))[0] = float32(float64(scale) * total(k.Losses))
		},
	}
}

// lossOperands are x and W, and where their gradients go, nil for those that nobody wants.
func lossOperands[E any](c op.Call, l *device.Launch) (x, w, dx, dw []E) {
	x, w = view[E](l.Buffers[0]), view[E](l.Buffers[1])
	if c.Kind == op.LinearCrossEntropyGrad {
		dx = view[E](l.Buffers[6])
		if !c.Attr.InputOnly {
			dw = view[E](l.Buffers[7])
		}
	}
	return x, w, dx, dw
}

// total adds in order, in double precision.
func total[F float32 | float64](x []F) (sum float64) {
	for _, v := range x {
		sum += float64(v)
	}
	return sum
}

// logitLoss makes the loss of given logits, or its gradient.
func logitLoss(c op.Call, workers int) Program {
	grad := c.Kind == op.CrossEntropyGrad
	k := &kernel.CrossEntropy{N: int(c.In[0].Shape.Rows()), V: int(c.In[0].Shape.Last()), Ignore: op.IgnoreIndex}
	return Program{
		Workspace: bytesOf(k.N + kernel.CrossEntropyWorkspace(workers)),
		Run: func(p *kernel.Pool, l *device.Launch) {
			work, scale := scratch(l), F32(l, 2)[0]
			k.Logits, k.Targets, k.Losses, k.Work = F32(l, 0), ids(l, 1), work[:k.N], work[k.N:]
			if grad {
				k.Slope, k.Grad = scale*F32(l, 3)[0], F32(l, 4)
			}
			k.Compute(p)
			if !grad {
				F32(l, 3)[0] = float32(float64(scale) * total(k.Losses))
			}
		},
	}
}

func meanSquare(c op.Call, _ int) Program {
	var x, target []float32
	return partialSums(c.In[0].Shape.Elements(), func(l *device.Launch) { x, target = F32(l, 0), F32(l, 1) },
		func(from, to int) (sum float64) {
			for i := from; i < to; i++ {
				d := float64(x[i]) - float64(target[i])
				sum += d * d
			}
			return sum
		},
		func(l *device.Launch, sum float64) { F32(l, 3)[0] = float32(float64(F32(l, 2)[0]) * sum) })
}

// partialSums makes a program that sums over n elements: of makes the sum of a range,
// the sums of all ranges are added in order and given to put.
func partialSums(n int64, set func(*device.Launch), of func(from, to int) float64, put func(*device.Launch, float64)) Program {
	var sums []float64
	work := rowsOf(n, 1, func(_, from, to int) { sums[from/grain] = of(from, to) })
	return Program{
		Workspace: 8 * int64(work.pieces()),
		Run: func(p *kernel.Pool, l *device.Launch) {
			set(l)
			sums = view[float64](l.Workspace)[:work.pieces()]
			work.start(p)
			put(l, total(sums))
		},
	}
}

func meanSquareGrad(c op.Call, _ int) Program {
	var x, target, dx []float32
	var by float32
	set := func(l *device.Launch) {
		x, target, dx = F32(l, 0), F32(l, 1), F32(l, 4)
		by = 2 * F32(l, 2)[0] * F32(l, 3)[0]
	}
	return elements(c, set, func(from, to int) {
		for i := from; i < to; i++ {
			dx[i] = by * (x[i] - target[i])
		}
	})
}
