package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func linearCrossEntropy(c op.Call, workers int) program     { return linearLoss(c, workers, false) }
func linearCrossEntropyGrad(c op.Call, workers int) program { return linearLoss(c, workers, true) }

// linearLoss makes the loss of a product with the vocabulary, with its gradients if
// asked for. The losses of the rows lie at the start of the workspace.
func linearLoss(c op.Call, workers int, grad bool) program {
	k := &kernel.LinearCrossEntropy{
		N: int(c.In[0].Shape.Rows()), V: int(c.In[1].Shape[0]), D: int(c.In[1].Shape[1]),
		Ignore: op.IgnoreIndex, Accumulate: c.Attr.Accumulate,
	}
	return program{
		workspace: bytesOf(k.N + k.Workspace(workers)),
		run: func(p *kernel.Pool, l *device.Launch) {
			k.X, k.W, k.Targets = f32(l, 0), f32(l, 1), ids(l, 2)
			work, scale := scratch(l), f32(l, 3)[0]
			k.Losses, k.Work = work[:k.N], work[k.N:]
			if grad {
				k.Slope, k.DX = scale*f32(l, 4)[0], f32(l, 6)
			}
			if grad && !c.Attr.InputOnly {
				k.DW = f32(l, 7)
			}
			k.Compute(p)
			f32(l, len(c.In))[0] = float32(float64(scale) * total(k.Losses))
		},
	}
}

// total adds in order, in double precision.
func total(x []float32) (sum float64) {
	for _, v := range x {
		sum += float64(v)
	}
	return sum
}

func crossEntropy(c op.Call, workers int) program     { return logitLoss(c, workers, false) }
func crossEntropyGrad(c op.Call, workers int) program { return logitLoss(c, workers, true) }

// logitLoss makes the loss of given logits, or its gradient.
func logitLoss(c op.Call, workers int, grad bool) program {
	k := &kernel.CrossEntropy{N: int(c.In[0].Shape.Rows()), V: int(c.In[0].Shape.Last()), Ignore: op.IgnoreIndex}
	return program{
		workspace: bytesOf(k.N + kernel.CrossEntropyWorkspace(workers)),
		run: func(p *kernel.Pool, l *device.Launch) {
			work, scale := scratch(l), f32(l, 2)[0]
			k.Logits, k.Targets, k.Losses, k.Work = f32(l, 0), ids(l, 1), work[:k.N], work[k.N:]
			if grad {
				k.Slope, k.Grad = scale*f32(l, 3)[0], f32(l, 4)
			}
			k.Compute(p)
			if !grad {
				f32(l, 3)[0] = float32(float64(scale) * total(k.Losses))
			}
		},
	}
}

func meanSquare(c op.Call, _ int) program {
	var x, target []float32
	return partialSums(c.In[0].Shape.Elements(), func(l *device.Launch) { x, target = f32(l, 0), f32(l, 1) },
		func(from, to int) (sum float64) {
			for i := from; i < to; i++ {
				d := float64(x[i]) - float64(target[i])
				sum += d * d
			}
			return sum
		},
		func(l *device.Launch, sum float64) { f32(l, 3)[0] = float32(float64(f32(l, 2)[0]) * sum) })
}

// partialSums makes a program that sums over n elements: of makes the sum of a range,
// the sums of all ranges are added in order and given to put.
func partialSums(n int64, set func(*device.Launch), of func(from, to int) float64, put func(*device.Launch, float64)) program {
	var sums []float64
	work := rowsOf(n, 1, func(_, from, to int) { sums[from/grain] = of(from, to) })
	return program{
		workspace: 8 * int64(work.pieces()),
		run: func(p *kernel.Pool, l *device.Launch) {
			set(l)
			sums = view[float64](l.Workspace)[:work.pieces()]
			work.start(p)
			sum := 0.0
			for _, v := range sums {
				sum += v
			}
			put(l, sum)
		},
	}
}

func meanSquareGrad(c op.Call, _ int) program {
	var x, target, dx []float32
	var by float32
	set := func(l *device.Launch) {
		x, target, dx = f32(l, 0), f32(l, 1), f32(l, 4)
		by = 2 * f32(l, 2)[0] * f32(l, 3)[0]
	}
	return elements(c, set, func(from, to int) {
		for i := from; i < to; i++ {
			dx[i] = by * (x[i] - target[i])
		}
	})
}
