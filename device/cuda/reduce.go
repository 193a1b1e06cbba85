package cuda

import (
	"spillway/dtype"
	"spillway/op"
)

// sequence makes a program of launches, keeping the first error.
func sequence(workspace int64, steps ...func() (*launch, error)) (p program, err error) {
	p.workspace = workspace
	for _, prepare := range steps {
		s, err := prepare()
		if err != nil {
			return p, err
		}
		p.steps = append(p.steps, s)
	}
	return p, nil
}

// sumRows sums shares of the rows and then the shares.
func sumRows(d *Device, c op.Call) (program, error) {
	width := c.Out[0].Shape.Elements()
	rows := c.In[0].Shape.Elements() / width
	tiles := parts(width, 32)
	share := max(64, parts(rows, max(1, 4*int64(d.card.multiprocessors)/tiles)))
	shares := max(1, parts(rows, share))
	u := of("reduce", c.In[0].DType)
	return sequence(4*shares*width,
		func() (*launch, error) {
			return d.grid(u, "sumRows", [3]int64{tiles, shares, 1}, [3]int64{32, 8, 1}, 0,
				buffer(0), work(0), i64(rows), i64(width), i64(share))
		},
		func() (*launch, error) {
			return d.foldRows(c.In[0].DType, work(0), buffer(1), shares, width, c.Attr.Accumulate)
		})
}

// foldRows adds parts of sums over rows in their order.
func (d *Device) foldRows(t dtype.Type, partial, to arg, shares, width int64, add bool) (*launch, error) {
	return d.grid(of("reduce", t), "foldRows", [3]int64{parts(width, 32), 1, 1}, [3]int64{32, 32, 1}, 0, partial, to, i64(shares), i64(width), flag(add))
}

// sumAll sums something over n elements in parts, and folds the parts with one block.
func (d *Device) sumAll(t dtype.Type, n int64, first, second string, before, after []arg) (program, error) {
	u, blocks := of("reduce", t), d.stride(n)
	return sequence(8*blocks,
		func() (*launch, error) {
			return d.line(u, first, blocks, threads, append(before, work(0), i64(n))...)
		},
		func() (*launch, error) {
			return d.line(u, second, 1, threads, append([]arg{work(0)}, after...)...)
		})
}

func sumSquares(d *Device, c op.Call) (program, error) {
	n := c.In[0].Shape.Elements()
	return d.sumAll(c.In[0].DType, n, "sumSquares", "foldSquares",
		[]arg{buffer(0)}, []arg{buffer(1), i64(d.stride(n)), flag(c.Attr.Accumulate)})
}

func meanSquare(d *Device, c op.Call) (program, error) {
	n := c.In[0].Shape.Elements()
	return d.sumAll(c.In[0].DType, n, "sumDifferences", "foldDifferences",
		[]arg{buffer(0), buffer(1)}, []arg{buffer(2), buffer(3), i64(d.stride(n))})
}

func meanSquareGrad(d *Device, c op.Call) (program, error) {
	n := c.In[0].Shape.Elements()
	return just(d.line(of("reduce", c.In[0].DType), "meanSquareGrad", d.stride(n), threads,
		buffer(0), buffer(1), buffer(2), buffer(3), buffer(4), i64(n)))
}

func clipScale(d *Device, c op.Call) (program, error) {
	return just(d.line(of("reduce", dtype.F32), "clipScale", 1, 1,
		buffer(0), buffer(1), i64(c.In[0].Shape.Elements()), iteration(op.ArgMaxNorm), iteration(op.ArgScale)))
}
