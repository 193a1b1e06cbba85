package cpu

import (
	"math"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() {
	Register(op.InverseNorm, inverseNorm)
}

// inverseNorm adds up an output's adapted weights in scratch memory of the worker, then
// takes the norm.
func inverseNorm(c op.Call, workers int) Program {
	o := &adaptedNorms{rank: int(c.In[1].Shape[0]), width: int(c.In[1].Shape[1]), scale: float32(c.Attr.Scale), step: int(c.In[0].Shape[1]), rows: c.Attr.TransB}
	work := rowsOf(c.Out[0].Shape[0], int64(o.width), o.piece)
	return work.program(bytesOf(workers*o.width), func(l *device.Launch) {
		o.w, o.a, o.b, o.out, o.scratch = F32(l, 0), F32(l, 1), F32(l, 2), F32(l, 3), scratch(l)
	})
}

type adaptedNorms struct {
	rank, width int
	scale       float32
	step        int  // elements from a row of w to the next
	rows        bool // an output is a row of w
	w, a, b     []float32
	out         []float32
	scratch     []float32
}

func (o *adaptedNorms) piece(worker, from, to int) {
	sum := o.scratch[worker*o.width:][:o.width]
	for i := from; i < to; i++ {
		if o.rows {
			copy(sum, o.w[i*o.step:])
		} else {
			for k := range sum {
				sum[k] = o.w[k*o.step+i]
			}
		}
		for r := range o.rank {
			kernel.AddScaled(sum, o.a[r*o.width:], o.scale*o.b[i*o.rank+r])
		}
		o.out[i] = 0
		if s := kernel.SumSquares(sum); s > 0 {
			o.out[i] = float32(1 / math.Sqrt(s))
		}
	}
}
