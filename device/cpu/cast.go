package cpu

import (
	"spillway/device"
	"spillway/dtype"
	"spillway/op"
)

func init() {
	RegisterNative(op.Cast, cast, func(c op.Call) bool {
		return c.In[0].DType == c.Out[0].DType || c.In[0].DType == dtype.F32 || c.Out[0].DType == dtype.F32
	})
}

// cast converts between f32 and the 16-bit types, and integers to f32.
func cast(c op.Call, _ int) Program {
	from, to := c.In[0].DType, c.Out[0].DType
	var wide []float32
	var narrow []uint16
	switch {
	case from == to:
		return copyOrAdd(c, 0)
	case from == dtype.I32:
		var integers []int32
		return elements(c, func(l *device.Launch) { integers, wide = ids(l, 0), F32(l, 1) }, func(i, j int) {
			for k, n := range integers[i:j] {
				wide[i+k] = float32(n)
			}
		})
	case to == dtype.F32:
		f := widening[from]
		return elements(c, func(l *device.Launch) { narrow, wide = view[uint16](l.Buffers[0]), F32(l, 1) },
			func(i, j int) { f(wide[i:j], narrow[i:j]) })
	}
	f := narrowing[to]
	return elements(c, func(l *device.Launch) { wide, narrow = F32(l, 0), view[uint16](l.Buffers[1]) },
		func(i, j int) { f(narrow[i:j], wide[i:j]) })
}

var (
	widening  = map[dtype.Type]func(dst []float32, src []uint16){dtype.BF16: dtype.BF16.Widen, dtype.F16: dtype.F16.Widen}
	narrowing = map[dtype.Type]func(dst []uint16, src []float32){dtype.BF16: dtype.BF16.Narrow, dtype.F16: dtype.F16.Narrow}
)
