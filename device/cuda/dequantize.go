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

// compressedAtOnce is how many elements a block of threads decodes of weights in 12 bits, as compressed.cu does.
const compressedAtOnce = 16 * 1024

// rowKernels decode types whose blocks are rows.
var rowKernels = map[dtype.Type]string{quant.RowI8: "dequantizeRowI8", quant.RowF8: "dequantizeRowF8"}

func dequantize(d *Device, c op.Call) (program, error) {
	n := c.In[0].Shape.Elements()
	if c.In[0].DType == quant.CompressedBF16 {
		return d.decompress(c, n)
	}
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

// decompress decodes a weight in 12 bits. It is one for kernels that follow, which read it as early as any other.
func (d *Device) decompress(c op.Call, n int64) (program, error) {
	if rows, cols := c.In[0].Shape.Rows(), c.In[0].Shape.Last(); c.Out[0].DType != dtype.BF16 || !quant.CompressedShape(rows, cols) {
		return program{}, unsupported("weights in 12 bits are decoded to bf16, in blocks of 32 by 32")
	}
	k, err := d.line(unitFor("compressed", dtype.BF16), "decompress", ceilDiv(n, compressedAtOnce), threads, buffer(0), buffer(1), i64(n), i64(c.In[0].Shape.Last()))
	if err != nil {
		return program{}, err
	}
	k.writesWeight = true
	return single(k, nil)
}
