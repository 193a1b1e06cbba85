package cuda

import (
	"cmp"
	"math"

	"spillway/op"
)

func init() {
	registerUnaligned("adafactor", adafactor)
}

func adafactor(d *Device, c op.Call) (p program, err error) {
	copied, err := copyArgs(c)
	if err != nil {
		return p, err
	}
	shape, last, u := c.In[0].Shape, len(c.In)-1, unitFor("adafactor", c.In[1].DType) // of the gradient
	scalar := func(name string) arg { return iteration(c.Kind.Slots(name)[0]) }
	w, wType, g, clip := buffer(0), i64(storageCodes[c.In[0].DType]), buffer(1), buffer(last)
	// A vector counts as one row, whose squares are in byCol.
	byRow, byCol, first := arg{}, buffer(last-1), last-1
	lines, rows, cols, matrices := int64(1), int64(1), shape.Elements(), int64(1)
	if n := len(shape); n > 1 {
		cols, rows = shape[n-1], shape[n-2]
		lines = shape.Elements() / cols
		matrices = lines / rows
		byRow, first = buffer(last-2), last-2
	}
	m, mType := arg{}, arg{} // the mean of steps, if there is one
	if first == 3 {
		m, mType = buffer(2), i64(storageCodes[c.In[2].DType])
	}
	blocks := max(1, min(lines, int64(d.gpu.multiprocessors)*8))
	mean, partial := scratchAt(0), scratchAt(aligned(4*matrices))
	rates := scratchAt(aligned(4*matrices) + aligned(16*blocks))
	p.workspace = int64(rates.bits) + alignment

	// Several passes, each of which needs the whole pass before it.
	launch := func(name string, blocks int64, args ...arg) error {
		return p.add(d.line(u, name, blocks, threads, args...))
	}
	if len(shape) > 1 {
		err = cmp.Or(
			launch("adafactorRows", blocks, g, byRow, clip, i64(lines), i64(cols), scalar("take"), scalar("eps")),
			p.add(d.grid(u, "adafactorColumns", [3]int64{ceilDiv(cols, 32), matrices, 1}, [3]int64{32, 32, 1}, 0,
				g, byCol, clip, i64(rows), i64(cols), scalar("take"), scalar("eps"))),
			launch("adafactorMeans", matrices, byRow, mean, i64(rows)))
	} else {
		err = launch("adafactorVector", d.strideBlocks(cols), g, byCol, clip, i64(cols), scalar("take"), scalar("eps"))
	}
	count := arg{bits: math.Float64bits(float64(lines * cols))}
	apply := append([]arg{w, wType, key(), row(), g, m, mType, byRow, byCol, mean, clip, rates}, copied...)
	err = cmp.Or(err,
		launch("adafactorSizes", blocks, w, wType, g, byRow, byCol, mean, clip, partial, i64(lines), i64(rows), i64(cols)),
		p.add(d.line(u, "adafactorRates", 1, 1, partial, rates, i64(blocks), count, scalar("rate"), scalar("min_scale"), scalar("threshold"))),
		launch("adafactorApply", blocks, append(apply, i64(lines), i64(rows), i64(cols), scalar("decay"), scalar("beta1"))...))
	return p, err
}
