package cuda

import (
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

func init() {
	register(op.QuantizedMatmul, quantizedMatmul)
}

// quantizedFormats are the numbers kernels know block formats by.
var quantizedFormats = map[dtype.Type]int64{quant.NF4: 0, quant.FP4: 1, quant.RowI8: 2, quant.RowF8: 3}

// fourBitKernel is the kernel for so many rows, and how many it takes at once.
func fourBitKernel(rows int64) (name string, group int64) {
	switch {
	case rows == 1:
		return "fourBitOne", 1
	case rows == 2:
		return "fourBitTwo", 2
	case rows <= 4:
		return "fourBitFour", 4
	}
	return "fourBitEight", 8
}

// quantizedMatmul decodes the weight as it is read, once for every row: it is for few rows.
func quantizedMatmul(d *Device, c op.Call) (program, error) {
	rows, outputs, width := c.In[0].Shape.Rows(), c.In[1].Shape[0], c.In[1].Shape[1]
	bias, out := arg{}, buffer(2)
	if c.Attr.Bias {
		bias, out = buffer(2), buffer(3)
	}
	unit, grid, block := unitFor("coded", c.In[0].DType), [3]int64{ceilDiv(outputs, 8), rows, 1}, [3]int64{32, 8, 1}
	if kind := quantizedFormats[c.In[1].DType]; kind < 2 && width%quant.FourBitBlock == 0 {
		name, group := fourBitKernel(rows)
		grid[1] = ceilDiv(rows, group)
		return single(d.grid(unit, name, grid, block, 0, buffer(0), buffer(1), bias, out, i64(rows), i64(outputs), i64(width), i64(kind)))
	}
	if c.Attr.OutlierThreshold == 0 {
		return single(d.grid(unit, "codedProduct", grid, block, 0, buffer(0), buffer(1), bias, out, i64(outputs), i64(width), i64(quantizedFormats[c.In[1].DType])))
	}
	apart, most, threshold := scratchAt(0), scratchAt(aligned(width)), f32(c.Attr.OutlierThreshold)
	p := program{workspace: aligned(width) + aligned(4*rows)}
	find, err := d.line(unit, "findOutliers", ceilDiv(width, threads), threads, buffer(0), apart, i64(rows), i64(width), threshold)
	if err != nil {
		return p, err
	}
	sizes, err := d.line(unit, "rowSizes", rows, threads, buffer(0), most, i64(width), threshold)
	if err != nil {
		return p, err
	}
	product, err := d.grid(unit, "outlierProduct", grid, block, 0, buffer(0), buffer(1), bias, apart, most, out, i64(outputs), i64(width))
	p.actions = []action{find, sizes, product}
	return p, err
}
