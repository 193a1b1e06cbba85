package cuda

import (
	"cmp"
	"fmt"

	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

func init() {
	register(op.QuantizedMatmul, quantizedMatmul)
}

// fourBitFormats number the 4-bit formats as fourBitValues has them in kernels.
var fourBitFormats = map[dtype.Type]int64{quant.NF4: 0, quant.FP4: 1}

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

// blockUnit is the kernels that work on a block format by its header in kernels/codecs. A
// format without one has no kernels here.
func blockUnit(element, format dtype.Type) (unit, error) {
	u := unit{file: "block", element: element, codec: format.String()}
	if _, err := kernelFiles.ReadFile(u.header()); err != nil {
		return u, unsupported(fmt.Sprintf("there is no %s for weights in %v", u.header(), format))
	}
	return u, nil
}

// quantizedMatmul decodes the weight as it is read, once for every row: it is for few rows.
func quantizedMatmul(d *Device, c op.Call) (program, error) {
	if c.Attr.Exact {
		return program{}, unsupported("with packed weights the bits of a row depend on how many rows there are; leave out --exact, or use 16-bit weights")
	}
	rows, outputs, width := c.In[0].Shape.Rows(), c.In[1].Shape[0], c.In[1].Shape[1]
	if p, ok, err := d.packedMatmul(c); ok {
		return p, err
	}
	bias, out := arg{}, buffer(2)
	if c.Attr.Bias {
		bias, out = buffer(2), buffer(3)
	}
	unit, grid, block := unitFor("quantized", c.In[0].DType), [3]int64{ceilDiv(outputs, 8), rows, 1}, [3]int64{32, 8, 1}
	if kind, ok := fourBitFormats[c.In[1].DType]; ok && width%quant.FourBitBlock == 0 {
		name, group := fourBitKernel(rows)
		grid[1] = ceilDiv(rows, group)
		return single(d.grid(unit, name, grid, block, 0, buffer(0), buffer(1), bias, out, i64(rows), i64(outputs), i64(width), i64(kind)))
	}
	if c.Attr.OutlierThreshold == 0 {
		unit, err := blockUnit(c.In[0].DType, c.In[1].DType)
		if err != nil {
			return program{}, err
		}
		return single(d.grid(unit, "quantizedMatmul", grid, block, 0, buffer(0), buffer(1), bias, out, i64(outputs), i64(width)))
	}
	apart, most, threshold := scratchAt(0), scratchAt(aligned(width)), f32(c.Attr.OutlierThreshold)
	p := program{workspace: aligned(width) + aligned(4*rows)}
	err := cmp.Or(
		p.add(d.line(unit, "findOutliers", ceilDiv(width, threads), threads, buffer(0), apart, i64(rows), i64(width), threshold)),
		p.add(d.line(unit, "rowSizes", rows, threads, buffer(0), most, i64(width), threshold)),
		p.add(d.grid(unit, "outlierMatmul", grid, block, 0, buffer(0), buffer(1), bias, apart, most, out, i64(outputs), i64(width))))
	return p, err
}
