package cpu

import (
	"math"
	"slices"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
)

func sumSquares(c op.Call, _ int) program {
	var x []float32
	return partialSums(c.In[0].Shape.Elements(), func(l *device.Launch) { x = f32(l, 0) },
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
func clipScale(op.Call, int) program {
	return program{run: func(_ *kernel.Pool, l *device.Launch) {
		sum := 0.0
		for _, v := range view[float64](l.Buffers[0]) {
			sum += v
		}
		norm, factor := math.Sqrt(sum), 1.0
		if most := float64(scalars(l)[op.ArgMaxNorm]); most > 0 {
			factor = min(1, most/(norm+1e-6))
		}
		out := f32(l, 1)
		out[0], out[1] = float32(factor), float32(norm)
	}}
}

// scalars of a launch, zeros if it has none.
func scalars(l *device.Launch) [8]float32 {
	if l.Args == nil {
		return [8]float32{}
	}
	return l.Args.F
}

func adam(c op.Call, workers int) program {
	var m, v []float32
	a := &kernel.Adam{Decoupled: c.Attr.Decoupled}
	set := func(l *device.Launch) float32 {
		s := scalars(l)
		a.Rate, a.Decay, a.Beta1, a.Beta2, a.Eps = s[op.ArgRate], s[op.ArgDecay], s[op.ArgBeta1], s[op.ArgBeta2], s[op.ArgEps]
		a.Bias1, a.Bias2, a.Clip = s[op.ArgBias1], s[op.ArgBias2], f32(l, 4)[0]
		return a.Clip
	}
	if coded(c) {
		return updateCoded(c, workers, set, func(w, g []float32, s [2][]float32) { a.Update(w, g, s[0], s[1]) })
	}
	return update(c, func(l *device.Launch) { set(l); m, v = f32(l, 2), f32(l, 3) },
		func(w, g []float32, from, to int) { a.Update(w, g, m[from:to], v[from:to]) })
}

func sgd(c op.Call, workers int) program {
	var m []float32
	last := len(c.In) - 1
	o := &kernel.SGD{Nesterov: c.Attr.Nesterov}
	set := func(l *device.Launch) float32 {
		s := scalars(l)
		o.Rate, o.Decay, o.Momentum, o.Dampening = s[op.ArgRate], s[op.ArgDecay], s[op.ArgBeta1], s[op.ArgBeta2]
		o.First, o.Clip = s[op.ArgBias1] != 0, f32(l, last)[0]
		return o.Clip
	}
	switch {
	case coded(c):
		return updateCoded(c, workers, set, func(w, g []float32, s [2][]float32) { o.Update(w, g, s[0]) })
	case last == 2:
		return update(c, func(l *device.Launch) { set(l) }, func(w, g []float32, _, _ int) { o.UpdatePlain(w, g) })
	}
	return update(c, func(l *device.Launch) { set(l); m = f32(l, 2) },
		func(w, g []float32, from, to int) { o.Update(w, g, m[from:to]) })
}

// coded says that a state of an update rule is in 8 bits.
func coded(c op.Call) bool {
	return slices.ContainsFunc(c.In, func(t op.Type) bool { return t.DType.Block() })
}

// update is the program of an update rule with states in f32: set takes the scalars and
// states of a launch, do makes the step on the weights and gradients of a range.
func update(c op.Call, set func(l *device.Launch), do func(w, g []float32, from, to int)) program {
	var w, g []float32
	copied := &mirror{to: c.Attr.To}
	return elements(c, func(l *device.Launch) {
		w, g = f32(l, 0), f32(l, 1)
		set(l)
		copied.set(l)
	}, func(from, to int) {
		do(w[from:to], g[from:to], from, to)
		copied.write(w, from, to)
	})
}

// mirror is the copy of an updated weight in another type, if the call makes one.
type mirror struct {
	to     dtype.Type
	narrow []uint16
	wide   []float32
}

// set takes the last output of a launch.
func (m *mirror) set(l *device.Launch) {
	switch last := len(l.Buffers) - 1; m.to {
	case dtype.F32:
		m.wide = f32(l, last)
	case dtype.BF16, dtype.F16:
		m.narrow = view[uint16](l.Buffers[last])
	}
}

// write copies a range of the weight.
func (m *mirror) write(w []float32, from, to int) {
	switch m.to {
	case dtype.F32:
		copy(m.wide[from:to], w[from:to])
	case dtype.BF16, dtype.F16:
		narrowing[m.to](m.narrow[from:to], w[from:to])
	}
}
