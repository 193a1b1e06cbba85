package cuda

import (
	"cmp"

	"spillway/dtype"
	"spillway/op"
)

func init() {
	register(op.LinearCrossEntropy, linearCrossEntropy)
	register(op.LinearCrossEntropyGrad, linearCrossEntropyGrad)
	register(op.CrossEntropy, crossEntropy)
	register(op.CrossEntropyGrad, crossEntropyGrad)
}

// foldLosses sums the losses of n rows, which are at the start of the workspace.
func (d *Device) foldLosses(t dtype.Type, scale, loss int, n int64) (*kernelLaunch, error) {
	return d.line(unitFor("reduce", t), "foldLosses", 1, 1024, scratchAt(0), buffer(scale), buffer(loss), i64(n))
}

func crossEntropy(d *Device, c op.Call) (p program, err error) {
	rows, classes, t := c.In[0].Shape.Rows(), c.In[0].Shape.Last(), c.In[0].DType
	p.workspace = 4 * rows
	err = cmp.Or(
		p.add(d.line(unitFor("loss", t), "rowLosses", rows, lossThreads, buffer(0), buffer(1), scratchAt(0), i64(classes))),
		p.add(d.foldLosses(t, 2, 3, rows)))
	return p, err
}

func crossEntropyGrad(d *Device, c op.Call) (program, error) {
	return single(d.line(unitFor("loss", c.In[0].DType), "crossEntropyGrad", c.In[0].Shape.Rows(), lossThreads,
		buffer(0), buffer(1), buffer(2), buffer(3), buffer(4), i64(c.In[0].Shape.Last())))
}

// lossThreads work on a row of logits.
const lossThreads = 512

// logitBytes bounds the logits a fused loss holds at once.
const logitBytes = 512 << 20

// logitsAlign is what the floats between rows of logits are a multiple of: matmuls are
// slower where rows begin at odd places, as those of odd vocabularies would.
const logitsAlign = 32

// fusedLoss is a loss fused with the matmul of the lm_head. It goes over the rows in chunks:
// the logits of a chunk, in f32, are replaced by their gradient in place.
type fusedLoss struct {
	d                    *Device
	c                    op.Call
	t                    dtype.Type
	rows, classes, width int64
	step                 int64 // floats between rows of logits
	chunk                int64
	logits               int64 // where they begin in the workspace, behind the rows' losses
	scratch              int64 // behind them: the matmuls' own
	most                 int64 // scratch memory the matmuls need
	p                    program
}

func newFusedLoss(d *Device, c op.Call) *fusedLoss {
	f := &fusedLoss{d: d, c: c, t: c.In[0].DType, rows: c.In[0].Shape.Rows(), classes: c.In[1].Shape[0], width: c.In[1].Shape[1]}
	f.step = (f.classes + logitsAlign - 1) / logitsAlign * logitsAlign
	f.chunk = min(f.rows, max(128, logitBytes/(4*f.step)/128*128))
	f.logits = aligned(4 * f.rows)
	f.scratch = f.logits + aligned(4*f.chunk*f.step)
	return f
}

// multiply appends a matmul that uses the scratch memory behind the logits.
func (f *fusedLoss) multiply(m matmulArgs) error {
	m.scratch = f.scratch
	steps, bytes, err := f.d.multiply(m)
	f.p.actions = append(f.p.actions, steps...)
	f.most = max(f.most, bytes)
	return err
}

// dlogits is the logits of a chunk, of the classes from one on, after they became gradients,
// which lie as far apart as the f32 logits did.
func (f *fusedLoss) dlogits(from int64) matrix {
	return matrix{at: scratchAt(f.logits + f.t.Bytes(from)), element: f.t, step: f.step * 4 / f.t.Bytes(1)}
}

// wide is a buffer from a row on: x and dx by row of the input, W and dW by class.
func (f *fusedLoss) wide(buffer int, from int64) matrix {
	return matrix{at: bufferAt(buffer, f.t.Bytes(from*f.width)), element: f.t, step: f.width}
}

// classParts calls each with the first class and the number of classes of every part.
// Matmuls are several times slower where a side is odd, as some vocabularies are: of
// those, the few classes beyond what is even are a part of their own.
func (f *fusedLoss) classParts(each func(from, n int64) error) error {
	const even, many = 16, 1024
	rest := f.classes % even
	if rest == 0 || f.classes < many {
		return each(0, f.classes)
	}
	if err := each(0, f.classes-rest); err != nil {
		return err
	}
	return each(f.classes-rest, rest)
}

// makeLogits appends the matmuls of a chunk.
func (f *fusedLoss) makeLogits(rows, n int64) error {
	return f.classParts(func(from, classes int64) error {
		w := f.wide(1, from)
		w.transposed = true
		return f.multiply(matmulArgs{m: n, n: classes, k: f.width, a: f.wide(0, rows), b: w,
			c: matrix{at: scratchAt(f.logits + 4*from), element: dtype.F32, step: f.step}})
	})
}

// program makes the logits of a chunk after another, has each use them, and sums the losses
// into a buffer. each gets the first row of a chunk and the number of its rows.
func (f *fusedLoss) program(loss int, each func(from, n int64) error) (program, error) {
	for from := int64(0); from < f.rows; from += f.chunk {
		n := min(f.chunk, f.rows-from)
		if err := cmp.Or(f.makeLogits(from, n), each(from, n)); err != nil {
			return program{}, err
		}
	}
	err := f.p.add(f.d.foldLosses(f.t, 3, loss, f.rows))
	f.p.workspace = f.scratch + f.most
	return f.p, err
}

func linearCrossEntropy(d *Device, c op.Call) (program, error) {
	f := newFusedLoss(d, c)
	return f.program(4, func(from, n int64) error {
		return f.p.add(d.line(unitFor("loss", f.t), "rowLossesWide", n, lossThreads, scratchAt(f.logits), bufferAt(2, 4*from), scratchAt(4*from), i64(f.classes), i64(f.step)))
	})
}

// linearCrossEntropyGrad: buffers x, W, targets, scale, dloss; loss, dx, dW.
func linearCrossEntropyGrad(d *Device, c op.Call) (program, error) {
	f := newFusedLoss(d, c)
	return f.program(5, func(from, n int64) error {
		return cmp.Or(
			f.p.add(d.line(unitFor("loss", f.t), "lossInPlace", n, lossThreads,
				scratchAt(f.logits), bufferAt(2, 4*from), buffer(3), buffer(4), scratchAt(4*from), i64(f.classes), i64(f.step))),
			f.gradients(from, n))
	})
}

// gradients appends dx = dlogits·W and dW += dlogitsᵀ·x of a chunk.
func (f *fusedLoss) gradients(rows, n int64) error {
	return f.classParts(func(from, classes int64) error {
		err := f.multiply(matmulArgs{m: n, n: f.width, k: classes, a: f.dlogits(from), b: f.wide(1, from), c: f.wide(6, rows), add: from > 0})
		if err != nil || f.c.Attr.InputOnly {
			return err
		}
		left := f.dlogits(from)
		left.transposed = true
		return f.multiply(matmulArgs{m: classes, n: f.width, k: n, a: left, b: f.wide(0, rows), c: f.wide(7, from),
			add: f.c.Attr.Accumulate || rows > 0})
	})
}
