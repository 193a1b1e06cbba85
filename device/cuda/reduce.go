package cuda

import (
	"cmp"

	"spillway/dtype"
	"spillway/op"
)

func init() {
	register(op.SumRows, sumRows)
	register(op.MeanSquare, meanSquare)
	register(op.MeanSquareGrad, meanSquareGrad)
	registerUnaligned(op.SumSquares, sumSquares)
	registerUnaligned(op.ClipScale, clipScale)
}

// sumRows sums groups of rows and then the groups, so that the order of the sum is fixed.
func sumRows(d *Device, c op.Call) (p program, err error) {
	width := c.Out[0].Shape.Elements()
	rows := c.In[0].Shape.Elements() / width
	name, lane := "sumRowsWide", elementsPerLoad(c.In[0].DType)
	if width%lane != 0 {
		name, lane = "sumRows", 1
	}
	tiles, share, shares := d.rowShares(rows, width, lane)
	p.workspace = 4 * shares * width
	err = cmp.Or(
		p.add(d.grid(unitFor("reduce", c.In[0].DType), name, [3]int64{tiles, shares, 1}, [3]int64{32, 8, 1}, 0,
			buffer(0), scratchAt(0), i64(rows), i64(width), i64(share))),
		p.add(d.foldRows(c.In[0].DType, scratchAt(0), buffer(1), shares, width, c.Attr.Accumulate)))
	return p, err
}

// rowShares divides sums over rows: tiles of columns, 32 threads of so many each, and shares of rows, as many as fill
// the GPU.
func (d *Device) rowShares(rows, width, lane int64) (tiles, share, shares int64) {
	tiles = ceilDiv(width, 32*lane)
	share = max(64, ceilDiv(rows, max(1, 4*int64(d.gpu.multiprocessors)/tiles)))
	return tiles, share, max(1, ceilDiv(rows, share))
}

// foldRows adds partial sums over rows in order.
func (d *Device) foldRows(t dtype.Type, partial, to arg, shares, width int64, add bool) (*kernelLaunch, error) {
	return d.grid(unitFor("reduce", t), "foldRows", [3]int64{ceilDiv(width, 32), 1, 1}, [3]int64{32, 32, 1}, 0, partial, to, i64(shares), i64(width), flag(add))
}

// sumAll sums something over n elements by many blocks, and adds the partial sums with one.
func (d *Device) sumAll(t dtype.Type, n int64, first, second string, before, after []arg) (p program, err error) {
	u, blocks := unitFor("reduce", t), d.strideBlocks(n)
	p.workspace = 8 * blocks
	err = cmp.Or(
		p.add(d.line(u, first, blocks, threads, append(before, scratchAt(0), i64(n))...)),
		p.add(d.line(u, second, 1, threads, append([]arg{scratchAt(0)}, after...)...)))
	return p, err
}

func sumSquares(d *Device, c op.Call) (program, error) {
	n := c.In[0].Shape.Elements()
	return d.sumAll(c.In[0].DType, n, "sumSquares", "foldSquares",
		[]arg{buffer(0)}, []arg{buffer(1), i64(d.strideBlocks(n)), flag(c.Attr.Accumulate)})
}

func meanSquare(d *Device, c op.Call) (program, error) {
	n := c.In[0].Shape.Elements()
	return d.sumAll(c.In[0].DType, n, "sumDifferences", "foldDifferences",
		[]arg{buffer(0), buffer(1)}, []arg{buffer(2), buffer(3), i64(d.strideBlocks(n))})
}

func meanSquareGrad(d *Device, c op.Call) (program, error) {
	n := c.In[0].Shape.Elements()
	return single(d.line(unitFor("reduce", c.In[0].DType), "meanSquareGrad", d.strideBlocks(n), threads,
		buffer(0), buffer(1), buffer(2), buffer(3), buffer(4), i64(n)))
}

func clipScale(d *Device, c op.Call) (program, error) {
	slots := c.Kind.Slots("max_norm", "loss_scale")
	return single(d.line(unitFor("reduce", dtype.F32), "clipScale", 1, 1,
		buffer(0), buffer(1), i64(c.In[0].Shape.Elements()), iteration(slots[0]), iteration(slots[1])))
}
