package cpu

import (
	"math"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
)

func init() {
	Register(op.SumSquares, sumSquares)
	Register(op.ClipScale, clipScale)
}

func sumSquares(c op.Call, _ int) Program {
	var x []float32
	return partialSums(c.In[0].Shape.Elements(), func(l *device.Launch) { x = F32(l, 0) },
		func(from, to int) float64 { return kernel.SumSquares(x[from:to]) },
		func(l *device.Launch, sum float64) {
			out := view[float64](l.Buffers[1])
			if c.Attr.Accumulate {
				sum += out[0]
			}
			out[0] = sum
		})
}

// clipScale turns sums of squares into the norm and the factor that clips it.
func clipScale(c op.Call, _ int) Program {
	scalars := scalarsOf(c.Kind, "max_norm", "loss_scale")
	return Program{Run: func(_ *kernel.Pool, l *device.Launch) {
		sum, s, scale := total(view[float64](l.Buffers[0])), scalars(l), 1.0
		maxNorm, lossScale := float64(s[0]), float64(s[1])
		if lossScale != 0 {
			scale = lossScale
		}
		norm, factor := math.Sqrt(sum)/scale, 1/scale
		if maxNorm > 0 {
			factor = min(1, maxNorm/(norm+1e-6)) / scale
		}
		if math.IsInf(norm, 0) || math.IsNaN(norm) {
			factor = 0
		}
		out := F32(l, 1)
		out[0], out[1] = float32(factor), float32(norm)
	}}
}

func argsOf(l *device.Launch) op.Args {
	if l.Args == nil {
		return op.Args{}
	}
	return *l.Args
}

// scalarsOf finds the scalars of a kind by name when a kernel is prepared; the function it
// gives reads them from a launch, in that order.
func scalarsOf(kind op.Kind, names ...string) func(l *device.Launch) op.Scalars {
	slots := kind.Slots(names...)
	return func(l *device.Launch) (values op.Scalars) {
		all := argsOf(l).Scalars
		for i, slot := range slots {
			values[i] = all[slot]
		}
		return values
	}
}

// registerUpdate adds the kernel of an optimizer's update.
func registerUpdate(kind op.Kind, optimizer func() kernel.Optimizer) {
	RegisterNative(kind, func(c op.Call, workers int) Program { return update(c, workers, optimizer()) }, nil)
}

// update makes the program of an optimizer's update. Where the clip factor is not positive,
// weights and states stay as they are.
func update(c op.Call, workers int, o kernel.Optimizer) Program {
	return updateWith(c, workers, o, scalarsOf(c.Kind, o.Scalars()...))
}

// updateWith is an update whose numbers are read by a function, in the optimizer's order.
func updateWith(c op.Call, workers int, o kernel.Optimizer, scalars func(*device.Launch) op.Scalars) Program {
	w, g, kept := newWeight(c.In[0].DType, workers), newGradient(c.In[1].DType, workers), newStates(c, workers)
	copied, leave := newWeightCopy(c), false
	work := runsOf(c.Out[0].Shape.Elements(), workers, func(worker, from, to int) {
		if leave {
			copied.write(w.wide, from, to)
			return
		}
		g.each(worker, from, to, func(i, j int, g []float32) {
			kept.each(worker, i, j, g, func(i, j int, g []float32, s [2][]float32) {
				o.Update(w.open(worker, i, j), g, s)
				w.close(worker, i, j)
			})
			copied.write(w.wide, i, j)
		})
	})
	return Program{Run: func(p *kernel.Pool, l *device.Launch) {
		w.set(l)
		g.set(l.Buffers[1])
		clip := F32(l, len(c.In)-1)[0]
		o.Set(scalars(l), clip, kept.flush)
		leave = !(clip > 0)
		kept.set(l, clip)
		copied.set(l)
		work.start(p)
	}}
}

// gradient reads gradients as f32 whatever their type: 16-bit ones are widened some at a
// time, so that an update needs no workspace.
type gradient struct {
	of     dtype.Type
	wide   []float32
	narrow []uint16
	bits   [][]float32 // by worker
}

// widenedAtOnce is how many elements are widened at a time: they stay in the cache.
const widenedAtOnce = 1 << 10

func newGradient(of dtype.Type, workers int) *gradient {
	g := &gradient{of: of}
	for range workers {
		if narrow(of) {
			g.bits = append(g.bits, make([]float32, widenedAtOnce))
		}
	}
	return g
}

func (g *gradient) set(b device.Buffer) {
	if narrow(g.of) {
		g.narrow = view[uint16](b)
		return
	}
	g.wide = view[float32](b)
}

// each calls do for a range, whole or in parts.
func (g *gradient) each(worker, from, to int, do func(from, to int, g []float32)) {
	if !narrow(g.of) {
		do(from, to, g.wide[from:to])
		return
	}
	for i := from; i < to; i += widenedAtOnce {
		j := min(i+widenedAtOnce, to)
		part := g.bits[worker][:j-i]
		widening[g.of](part, g.narrow[i:j])
		do(i, j, part)
	}
}

// weightCopy is the copy of an updated weight in another type, if the call makes one.
type weightCopy struct {
	to      dtype.Type
	narrow  []uint16
	narrows func(dst []uint16, src []float32)
	wide    []float32
}

// uncachedElements is from how many elements on the copy is written past the caches: it
// would be evicted before it is read.
const uncachedElements = 1 << 20

func newWeightCopy(c op.Call) *weightCopy {
	m := &weightCopy{to: c.Attr.To, narrows: narrowing[c.Attr.To]}
	if narrow(m.to) && c.Out[0].Shape.Elements() >= uncachedElements {
		m.narrows = m.to.NarrowNonTemporal
	}
	return m
}

// set takes the last output of a launch.
func (m *weightCopy) set(l *device.Launch) {
	switch last := len(l.Buffers) - 1; m.to {
	case dtype.F32:
		m.wide = F32(l, last)
	case dtype.BF16, dtype.F16:
		m.narrow = view[uint16](l.Buffers[last])
	}
}

// write copies a range of the weight.
func (m *weightCopy) write(w []float32, from, to int) {
	switch m.to {
	case dtype.F32:
		copy(m.wide[from:to], w[from:to])
	case dtype.BF16, dtype.F16:
		m.narrows(m.narrow[from:to], w[from:to])
	}
}
