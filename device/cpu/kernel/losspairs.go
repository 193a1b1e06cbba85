package kernel

import (
	"unsafe"

	"spillway/dtype"
)

// HalfLoss is the operands of a LinearCrossEntropy in bf16, whose matmuls are Pairs. Logits and losses are those of
// f32; gradients of logits are rounded to bf16 before they are multiplied, and sums of gradients after all rows.
type HalfLoss struct {
	X, W   []uint16
	DX, DW []uint16

	logits, inputs, weights Pairs
	convert                 conversion
}

// halves sets the matmuls of n rows up, without their operands.
func (l *LinearCrossEntropy) halves(n int) *HalfLoss {
	h := l.Half
	h.logits.M, h.logits.N, h.logits.K = n, l.V, l.D
	h.logits.A, h.logits.B = Matrix{Step: l.D}, Matrix{Step: l.D, Transposed: true}
	h.inputs.M, h.inputs.N, h.inputs.K = n, l.D, l.V
	h.inputs.A, h.inputs.B = Matrix{Step: 2 * l.V}, Matrix{Step: l.D} // rows as far apart as in f32
	h.weights.M, h.weights.N, h.weights.K = l.V, l.D, n
	h.weights.A, h.weights.B = Matrix{Step: 2 * l.V, Transposed: true}, Matrix{Step: l.D}
	return h
}

// halfWorkspace is what matmuls need, and the gradient of W in f32.
func (l *LinearCrossEntropy) halfWorkspace(rows, workers int) int {
	h := l.halves(rows)
	return l.V*l.D + max(h.logits.Workspace(workers), h.inputs.Workspace(workers), h.weights.Workspace(workers))
}

// computeHalf is Compute in bf16.
func (l *LinearCrossEntropy) computeHalf(p *Pool) {
	step, sums := l.rowsAtATime(), CrossEntropyWorkspace(p.Workers())
	logits, rowWork := l.Work[:step*l.V], l.Work[step*l.V:][:sums]
	dw, work := l.Work[step*l.V+sums:][:l.V*l.D], l.Work[step*l.V+sums+l.V*l.D:]
	if l.Half.DW != nil && l.Accumulate {
		l.Half.convert = conversion{dw, l.Half.DW, true}
		p.Launch(ceil(len(dw), chunk), &l.Half.convert)
	}
	for i := 0; i < l.N; i += step {
		n := min(step, l.N-i)
		h := l.halves(n)
		x := h.X[i*l.D:][:n*l.D]
		h.logits.A.Codes, h.logits.B.Codes, h.logits.Sums, h.logits.Work = x, h.W, logits, work
		h.logits.Run(p)
		l.rows = CrossEntropy{N: n, V: l.V, Logits: logits, Targets: l.Targets[i:], Ignore: l.Ignore, Losses: l.Losses[i:], Slope: l.Slope, Work: rowWork, Rounded: true}
		if h.DX != nil {
			l.rows.Grad = logits
		}
		l.rows.Compute(p)
		if h.DX == nil {
			continue
		}
		h.inputs.A.Codes, h.inputs.B.Codes, h.inputs.C, h.inputs.Work = halvesOf(logits), h.W, h.DX[i*l.D:], work
		h.inputs.Run(p)
		if h.DW == nil {
			continue
		}
		h.weights.A.Codes, h.weights.B.Codes, h.weights.Sums, h.weights.Work = halvesOf(logits), x, dw, work
		h.weights.Accumulate = l.Accumulate || i > 0
		h.weights.Run(p)
	}
	if l.Half.DW != nil {
		l.Half.convert = conversion{dw, l.Half.DW, false}
		p.Launch(ceil(len(dw), chunk), &l.Half.convert)
	}
}

// conversion is the job that converts between f32 and bf16, chunk elements in a piece.
type conversion struct {
	wide  []float32
	codes []uint16
	widen bool
}

// Run converts a piece.
func (c *conversion) Run(_, piece int) {
	from, to := piece*chunk, min((piece+1)*chunk, len(c.wide))
	if c.widen {
		dtype.BF16.Widen(c.wide[from:to], c.codes[from:to])
		return
	}
	dtype.BF16.Narrow(c.codes[from:to], c.wide[from:to])
}

// halvesOf is the memory of numbers as codes of 16 bits, twice as many.
func halvesOf(x []float32) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(x))), 2*len(x))
}
