package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() {
	RegisterNative(op.Copy, copyOrAdd, nil)
	RegisterNative(op.Detach, copyOrAdd, nil)
	RegisterNative(op.Follow, copyOrAdd, nil)
	RegisterNative(op.Add, add, func(c op.Call) bool { return allWide(c) || worksInParts(c) })
	Register(op.Mul, mul)
	Register(op.Scale, scale)
	Register(op.Unary, unary)
	Register(op.UnaryGrad, unaryGrad)
	RegisterNative(op.Gated, gated, func(c op.Call) bool { return allWide(c) || worksInParts(c) })
	RegisterNative(op.GatedGrad, gatedGrad, func(c op.Call) bool { return allWide(c) || worksInParts(c) })
	Register(op.Dropout, dropout)
}

// elements makes a program whose elements are independent. set takes the operands of a
// launch, do works on a range of elements.
func elements(c op.Call, set func(l *device.Launch), do func(from, to int)) Program {
	return rowsOf(c.Out[0].Shape.Elements(), 1, func(_, from, to int) { do(from, to) }).program(0, set)
}

// pair is an elementwise op of one operand, triple of two.
type pair struct{ y, x []float32 }

func (o *pair) set(l *device.Launch) { o.x, o.y = F32(l, 0), F32(l, 1) }

type triple struct{ z, x, y []float32 }

func (o *triple) set(l *device.Launch) { o.x, o.y, o.z = F32(l, 0), F32(l, 1), F32(l, 2) }

// copyOrAdd copies bytes of any type, of the first operand, or adds.
func copyOrAdd(c op.Call, workers int) Program {
	if c.Attr.Accumulate && narrow(c.In[0].DType) {
		return addNarrow(c, workers)
	}
	if c.Attr.Accumulate {
		o := &pair{}
		return elements(c, o.set, func(from, to int) { kernel.AddScaled(o.y[from:to], o.x[from:to], 1) })
	}
	var dst, src []byte
	work := rowsOf(c.Out[0].Bytes(), 1, func(_, from, to int) { copy(dst[from:to], src[from:to]) })
	return work.program(0, func(l *device.Launch) { dst, src = l.Buffers[len(c.In)].Host(), l.Buffers[0].Host() })
}

// addNarrow adds numbers of a 16-bit type to others, some at a time in each worker's own
// buffer, so that sums of gradients need no workspace.
func addNarrow(c op.Call, workers int) Program {
	of := c.In[0].DType
	var x, y []uint16
	room := make([][2][widenedAtOnce]float32, workers)
	work := rowsOf(c.Out[0].Shape.Elements(), 1, func(worker, from, to int) {
		for i := from; i < to; i += widenedAtOnce {
			j := min(i+widenedAtOnce, to)
			a, b := room[worker][0][:j-i], room[worker][1][:j-i]
			widening[of](a, x[i:j])
			widening[of](b, y[i:j])
			kernel.AddScaled(b, a, 1)
			narrowing[of](y[i:j], b)
		}
	})
	return work.program(0, func(l *device.Launch) { x, y = view[uint16](l.Buffers[0]), view[uint16](l.Buffers[1]) })
}

func scale(c op.Call, _ int) Program {
	o, s := &pair{}, float32(c.Attr.Scale)
	if c.Attr.Accumulate {
		return elements(c, o.set, func(from, to int) { kernel.AddScaled(o.y[from:to], o.x[from:to], s) })
	}
	return elements(c, o.set, func(from, to int) { kernel.Scale(o.y[from:to], o.x[from:to], s) })
}

// add adds the second operand, repeated over the outer dimensions of the first.
func add(c op.Call, workers int) Program {
	if worksInParts(c) {
		return inParts(c, workers, func(v [][]float32) { kernel.Add(v[2], v[0], v[1]) })
	}
	o := &triple{}
	if c.Attr.Accumulate {
		return elements(c, o.set, func(from, to int) {
			kernel.AddScaled(o.z[from:to], o.x[from:to], 1)
			repeat(from, to, len(o.y), func(i, n, j int) { kernel.AddScaled(o.z[i:i+n], o.y[j:j+n], 1) })
		})
	}
	return elements(c, o.set, func(from, to int) {
		repeat(from, to, len(o.y), func(i, n, j int) { kernel.Add(o.z[i:i+n], o.x[i:i+n], o.y[j:j+n]) })
	})
}

func mul(c op.Call, _ int) Program {
	o := &triple{}
	f := kernel.Mul
	if c.Attr.Accumulate {
		f = kernel.AddMul
	}
	return elements(c, o.set, func(from, to int) {
		repeat(from, to, len(o.y), func(i, n, j int) { f(o.z[i:i+n], o.x[i:i+n], o.y[j:j+n]) })
	})
}

// repeat walks over from..to in ranges that stay within one repetition of a smaller operand
// of period elements: f gets n elements from i on, which meet those of the operand from j on.
func repeat(from, to, period int, f func(i, n, j int)) {
	for i := from; i < to; {
		j := i % period
		n := min(to-i, period-j)
		f(i, n, j)
		i += n
	}
}

func unary(c op.Call, _ int) Program {
	if plainly(c.Attr.Func) {
		return function(c)
	}
	o, f := &pair{}, kernel.Func(c.Attr.Func)
	return elements(c, o.set, func(from, to int) { f.Value(o.y[from:to], o.x[from:to]) })
}

func unaryGrad(c op.Call, _ int) Program {
	if plainly(c.Attr.Func) {
		return functionGrad(c)
	}
	o, f := &triple{}, kernel.Func(c.Attr.Func)
	return elements(c, o.set, func(from, to int) { f.SlopeTimes(o.z[from:to], o.x[from:to], o.y[from:to]) })
}

func gated(c op.Call, workers int) Program {
	o, f := &triple{}, kernel.Func(c.Attr.Func)
	if worksInParts(c) {
		return inParts(c, workers, func(v [][]float32) { f.Times(v[2], v[0], v[1]) })
	}
	return elements(c, o.set, func(from, to int) { f.Times(o.z[from:to], o.x[from:to], o.y[from:to]) })
}

func gatedGrad(c op.Call, workers int) Program {
	var gate, up, dy, dgate, dup []float32
	f := kernel.Func(c.Attr.Func)
	if worksInParts(c) {
		return inParts(c, workers, func(v [][]float32) { f.GatedGrad(v[3], v[4], v[0], v[1], v[2]) })
	}
	set := func(l *device.Launch) {
		gate, up, dy, dgate, dup = F32(l, 0), F32(l, 1), F32(l, 2), F32(l, 3), F32(l, 4)
	}
	return elements(c, set, func(from, to int) {
		f.GatedGrad(dgate[from:to], dup[from:to], gate[from:to], up[from:to], dy[from:to])
	})
}

// dropout multiplies each element by its factor, which follows from its position in the
// random stream.
func dropout(c op.Call, _ int) Program {
	o, d := &pair{}, kernel.NewDropout(c.Attr.Prob)
	perSample := uint64(c.In[0].Shape[1:].Elements())
	set := func(l *device.Launch) {
		o.set(l)
		startDropout(d, c.Attr, argsOf(l), perSample)
	}
	return elements(c, set, func(from, to int) { d.Apply(o.y[from:to], o.x[from:to], uint64(from), 1) })
}

// startDropout sets the random stream of a launch whose sequences have perSample elements.
func startDropout(d *kernel.Dropout, attr op.Attr, a op.Args, perSample uint64) {
	d.Start(op.NewStream(a.Key, attr.Stream), a.Row*perSample)
}
