package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

// outlierMatmul is LLM.int8: integers are multiplied, as floats that hold them, and
// the columns of outliers are added as they are.
func outlierMatmul(c op.Call, workers int) Program {
	t := newTiles(c, workers)
	o := &outliers{tiles: t, threshold: float32(c.Attr.OutlierThreshold), most: make([]float32, t.gemm.M), columns: make([]int, 0, t.gemm.K), outlier: make([]bool, t.gemm.K)}
	t.into = o.quantize
	rounding := rowsOf(int64(t.gemm.M), int64(t.gemm.K), o.round)
	finishing := rowsOf(int64(t.gemm.M), int64(t.most), o.finish)
	inputs := t.gemm.M * t.gemm.K
	return Program{Workspace: bytesOf(2*inputs) + t.workspace(), Run: func(p *kernel.Pool, l *device.Launch) {
		work := scratch(l)
		inner := *l
		inner.Workspace.Offset += bytesOf(2 * inputs)
		inner.Workspace.Bytes -= bytesOf(2 * inputs)
		t.bind(c, &inner)
		o.halves, o.codes, o.x, o.bias = work[:inputs], work[inputs:2*inputs], F32(l, 0), nil
		if c.Attr.Bias {
			o.bias = F32(l, 2)
		}
		o.find()
		rounding.start(p)
		t.gemm.A.Data = o.codes
		t.run(p, func() {
			t.gemm.Run(p)
			finishing.start(p)
		})
	}}
}

type outliers struct {
	*tiles
	threshold float32
	x, bias   []float32
	halves    []float32 // x rounded to f16
	codes     []float32 // 127ths of its rows
	most      []float32 // the largest of each row below the threshold
	outlier   []bool    // by column
	columns   []int     // of outliers
}

// find rounds the input and finds the columns of outliers and the size of each row.
func (o *outliers) find() {
	k := o.gemm.K
	clear(o.outlier)
	clear(o.most)
	for i, f := range o.x {
		h := dtype.FromF16(dtype.ToF16(f))
		o.halves[i] = h
		if size := max(h, -h); size >= o.threshold {
			o.outlier[i%k] = true
		} else if size > o.most[i/k] {
			o.most[i/k] = size
		}
	}
	o.columns = o.columns[:0]
	for l, apart := range o.outlier {
		if apart {
			o.columns = append(o.columns, l)
		}
	}
}

// round makes integers of rows; outliers count as 0.
func (o *outliers) round(_, from, to int) {
	k := o.gemm.K
	for i := from; i < to; i++ {
		for l := range k {
			o.codes[i*k+l] = 0
			if !o.outlier[l] {
				o.codes[i*k+l] = float32(op.RoundInt8(o.halves[i*k+l], o.most[i]))
			}
		}
	}
}

// quantize writes the codes of an output as numbers.
func (o *outliers) quantize(_ int, dst []float32, output int) {
	for i, c := range o.weight.raw[output*o.gemm.K:][:len(dst)] {
		dst[i] = float32(int8(c))
	}
}

// finish scales the sums of rows of the tile and adds outliers and bias.
func (o *outliers) finish(_, from, to int) {
	k := o.gemm.K
	for i := from; i < to; i++ {
		row := o.out[i*o.gemm.CStep+o.first:][:o.gemm.N]
		for j := range row {
			scale := quant.RowScale(o.weight.raw, o.weight.n, o.first+j)
			var plain float32
			for _, l := range o.columns {
				plain += o.x[i*k+l] * o.decoded[j*k+l]
			}
			row[j] = row[j]*(o.most[i]*scale/(127*127)) + plain*(scale/127)
			if o.bias != nil {
				row[j] += o.bias[o.first+j]
			}
		}
	}
}
