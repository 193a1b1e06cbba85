package kernel

import (
	"math"

	"spillway/dtype"
)

// CrossEntropy is the loss -log softmax(logits)[target] of each row. Rows whose target
// is Ignore count for nothing; other targets are brought into the vocabulary.
//
//	Logits [N V], row by row     Targets [N]     Losses [N]
//
// If Grad is not nil it gets Slope·(softmax - onehot(target)); it may be Logits.
type CrossEntropy struct {
	N, V    int
	Logits  []float32
	Targets []int32
	Ignore  int32
	Losses  []float32
	Grad    []float32
	Slope   float32
	// Rounded has gradients rounded to bf16, at the beginning of their row.
	Rounded bool
	// Work is scratch memory of CrossEntropyWorkspace elements.
	Work []float32
}

// CrossEntropyWorkspace is the scratch memory that so many workers need, in elements.
func CrossEntropyWorkspace(workers int) int { return workers * chunk }

// Compute runs on the pool, a piece per row.
func (c *CrossEntropy) Compute(p *Pool) { p.Launch(c.N, c) }

// Run computes one row.
func (c *CrossEntropy) Run(worker, i int) {
	row := c.Logits[i*c.V:][:c.V]
	if c.Targets[i] == c.Ignore {
		c.Losses[i] = 0
		if c.Grad != nil {
			clear(c.Grad[i*c.V:][:c.V]) // zero in both types
		}
		return
	}
	target := min(max(int(c.Targets[i]), 0), c.V-1)
	logit := row[target]
	if c.Grad == nil {
		c.Losses[i] = logSumExp(row, c.Work[worker*chunk:][:chunk]) - logit
		return
	}
	grad := c.Grad[i*c.V:][:c.V]
	top := Max(row)
	total := ExpSum(grad, row, top)
	c.Losses[i] = top + float32(math.Log(total)) - logit
	Scale(grad, grad, float32(float64(c.Slope)/total))
	grad[target] -= c.Slope
	if c.Rounded { // from the first on: no element is overwritten before it is read
		dtype.BF16.Narrow(halvesOf(grad)[:c.V], grad)
	}
}

// logSumExp is log Σ e^x; scratch holds chunk elements.
func logSumExp(x, scratch []float32) float32 {
	top, total := Max(x), 0.0
	for i := 0; i < len(x); i += chunk {
		n := min(chunk, len(x)-i)
		total += ExpSum(scratch[:n], x[i:], top)
	}
	return top + float32(math.Log(total))
}

// LinearCrossEntropy is the cross entropy of the logits X·Wᵀ, which never exist as a
// whole: some rows at a time, all of the vocabulary, and in training the gradients in
// the same pass, while those logits are at hand.
//
//	X [N D]     W [V D]     Targets, Losses [N]     DX [N D]     DW [V D]
//
// Gradients are those of Slope·ΣLosses. DX nil leaves out both, DW nil that of W.
type LinearCrossEntropy struct {
	N, V, D    int
	X, W       []float32
	Targets    []int32
	Ignore     int32
	Losses     []float32
	DX, DW     []float32
	Accumulate bool // add to DW instead of replacing it
	Slope      float32
	// Work is scratch memory of at least Workspace elements.
	Work []float32

	// Half is X, W, DX and DW in bf16, which are nil then.
	Half *HalfLoss

	logits, inputs, weights Gemm
	rows                    CrossEntropy
	fewRows                 int // rows at a time, in tests; 0 for the usual number
}

// logitElements bounds the logits held at a time: 64 MiB. The weights are read and
// packed once for all rows held, so fewer rows would be slower.
const logitElements = 16 << 20

// rowsAtATime cuts the rows into equal parts. It depends on the sizes alone, so that
// sums over rows have one order.
func (l *LinearCrossEntropy) rowsAtATime() int {
	if l.fewRows > 0 {
		return l.fewRows
	}
	most := max(64, logitElements/l.V)
	return ceil(l.N, ceil(l.N, most))
}

// gemms are those of n rows, without their operands: the logits, and the gradients
// of inputs and weights.
func (l *LinearCrossEntropy) gemms(n int) (logits, inputs, weights Gemm) {
	logits = Gemm{M: n, N: l.V, K: l.D, A: Matrix{Step: l.D}, B: Matrix{Step: l.D, Transposed: true}, CStep: l.V}
	inputs = Gemm{M: n, N: l.D, K: l.V, A: Matrix{Step: l.V}, B: Matrix{Step: l.D}, CStep: l.D}
	weights = Gemm{M: l.V, N: l.D, K: n, A: Matrix{Step: l.V, Transposed: true}, B: Matrix{Step: l.D}, CStep: l.D}
	return logits, inputs, weights
}

// Workspace is the scratch memory, in elements, that so many workers need.
func (l *LinearCrossEntropy) Workspace(workers int) int {
	rows := l.rowsAtATime()
	if l.Half != nil {
		return rows*l.V + CrossEntropyWorkspace(workers) + l.halfWorkspace(rows, workers)
	}
	logits, inputs, weights := l.gemms(rows)
	return rows*l.V + CrossEntropyWorkspace(workers) + max(logits.Workspace(workers), inputs.Workspace(workers), weights.Workspace(workers))
}

// Compute runs on the pool.
func (l *LinearCrossEntropy) Compute(p *Pool) {
	if l.Half != nil {
		l.computeHalf(p)
		return
	}
	step := l.rowsAtATime()
	logits, work := l.Work[:step*l.V], l.Work[step*l.V:]
	sums := CrossEntropyWorkspace(p.Workers())
	for i := 0; i < l.N; i += step {
		n := min(step, l.N-i)
		l.logits, l.inputs, l.weights = l.gemms(n)
		x := l.X[i*l.D:][:n*l.D]
		l.logits.A.Data, l.logits.B.Data, l.logits.C, l.logits.Work = x, l.W, logits, work[sums:]
		l.logits.Run(p)
		l.rows = CrossEntropy{N: n, V: l.V, Logits: logits, Targets: l.Targets[i:], Ignore: l.Ignore, Losses: l.Losses[i:], Slope: l.Slope, Work: work[:sums]}
		if l.DX != nil {
			l.rows.Grad = logits
		}
		l.rows.Compute(p)
		l.backward(p, i, x, work[sums:])
	}
}

// backward turns the gradients of the logits of the rows x from i on, which have taken
// their place, into those of the inputs and the weights.
func (l *LinearCrossEntropy) backward(p *Pool, i int, x, work []float32) {
	if l.DX == nil {
		return
	}
	grad := l.rows.Logits
	l.inputs.A.Data, l.inputs.B.Data, l.inputs.C, l.inputs.Work = grad, l.W, l.DX[i*l.D:], work
	l.inputs.Run(p)
	if l.DW == nil {
		return
	}
	l.weights.A.Data, l.weights.B.Data, l.weights.C, l.weights.Work = grad, x, l.DW, work
	l.weights.Accumulate = l.Accumulate || i > 0
	l.weights.Run(p)
}
