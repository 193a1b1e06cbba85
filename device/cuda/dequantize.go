package cuda

import (
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

func init() {
	register(op.Dequantize, dequantize)
}

// decodedAtOnce is how many elements a block of threads decodes, as dequantize.cu does.
const decodedAtOnce = 8192

// rowKernels decode types whose blocks are rows.
var rowKernels = map[dtype.Type]string{quant.RowI8: "dequantizeRowI8", quant.RowF8: "dequantizeRowF8"}

func dequantize(d *Device, c op.Call) (program, error) {
	n := c.In[0].Shape.Elements()
	if name, ok := rowKernels[c.In[0].DType]; ok {
		return single(d.line(unitFor("dequantize", c.Out[0].DType), name, d.strideBlocks(ceilDiv(n, 8)), threads, buffer(0), buffer(1), i64(n), i64(c.In[0].Shape.Last())))
	}
	if kind, ok := fourBitFormats[c.In[0].DType]; ok {
		return single(d.line(unitFor("dequantize", c.Out[0].DType), "dequantize", ceilDiv(n, decodedAtOnce), threads, buffer(0), buffer(1), i64(n), i64(kind)))
	}
	unit, err := blockUnit(c.Out[0].DType, c.In[0].DType)
	if err != nil {
		return program{}, err
	}
	return single(d.line(unit, "dequantizeBlocks", d.strideBlocks(ceilDiv(n, 8)), threads, buffer(0), buffer(1), i64(n), i64(c.In[0].Shape.Last())))
}
