package cpu

import (
	"math"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() { RegisterNative("muon", newMuon, nil) }

// muon updates a matrix by its momentum, made orthogonal by matmuls. Sums are f64, within each row and then
// over the rows in order, so that they do not depend on which worker computed what.
type muon struct {
	w      *weight
	g      *gradient
	copied *weightCopy
	m      []float32

	x, y, gram, by []float32 // the momentum and its next iterate; x·xᵀ and what is made of it
	sums           []float64 // by row, of squares

	take, blend, clip, shrink, step, scale float32
}

func newMuon(c op.Call, workers int) Program {
	if len(c.In) == 5 { // Adam's states
		o := new(kernel.Adam)
		scalars := scalarsOf(c.Kind, o.Scalars()[1:]...)
		return updateWith(c, workers, o, func(l *device.Launch) op.Scalars {
			var all op.Scalars // with a couple of 0
			s := scalars(l)
			copy(all[1:], s[:8])
			return all
		})
	}
	rows, cols := int(c.In[0].Shape[0]), int(c.In[0].Shape[1])
	n, short := rows*cols, min(rows, cols)
	u := &muon{w: newWeight(c.In[0].DType, workers), g: newGradient(c.In[1].DType, workers), copied: newWeightCopy(c)}
	gram := &kernel.Gemm{M: short, N: short, K: max(rows, cols), CStep: short, A: kernel.Matrix{Step: cols, Transposed: rows > cols}, B: kernel.Matrix{Step: cols, Transposed: rows <= cols}}
	square := &kernel.Gemm{M: short, N: short, K: short, CStep: short, A: kernel.Matrix{Step: short}, B: kernel.Matrix{Step: short}}
	apply := &kernel.Gemm{M: rows, N: cols, K: short, CStep: cols, A: kernel.Matrix{Step: short}, B: kernel.Matrix{Step: cols}}
	if rows > cols {
		apply.A.Step, apply.B.Step = cols, short
	}
	work := max(gram.Workspace(workers), square.Workspace(workers), apply.Workspace(workers))
	begin := rowsOf(int64(rows), int64(cols), func(worker, first, last int) {
		for line := first; line < last; line++ {
			u.begin(worker, line, line*cols, (line+1)*cols)
		}
	})
	scaled := runsOf(int64(n), workers, func(_, from, to int) {
		for i := from; i < to; i++ {
			u.x[i] *= u.scale
		}
	})
	a, b, d := float32(op.MuonCoefficients[0]), float32(op.MuonCoefficients[1]), float32(op.MuonCoefficients[2])
	mixed := runsOf(int64(short*short), workers, func(_, from, to int) {
		for i := from; i < to; i++ {
			u.by[i] = b*u.gram[i] + d*u.by[i]
		}
	})
	next := runsOf(int64(n), workers, func(_, from, to int) {
		for i := from; i < to; i++ {
			u.x[i] = a*u.x[i] + u.y[i]
		}
	})
	end := runsOf(int64(n), workers, u.end)
	scalars := scalarsOf(c.Kind, "shrink", "take", "blend", "muon_rate", "match")
	room, side := alignedFloats(n), alignedFloats(short*short)
	lines := alignedFloats(2 * rows) // in f64
	return Program{Workspace: bytesOf(lines + 2*room + 2*side + work), Run: func(p *kernel.Pool, l *device.Launch) {
		u.w.set(l)
		u.g.set(l.Buffers[1])
		u.copied.set(l)
		u.m, u.clip = F32(l, 2), F32(l, 3)[0]
		if !(u.clip > 0) {
			u.copied.write(u.w.wide, 0, n)
			return
		}
		s := scalars(l)
		u.shrink, u.take, u.blend = s[0], s[1], s[2]
		u.step = float32(float64(s[3]) * op.MuonFactor(int64(rows), int64(cols), s[4] != 0))
		u.sums = view[float64](device.Buffer{Memory: l.Workspace.Memory, Offset: l.Workspace.Offset, Bytes: int64(8 * rows)})
		space := scratch(l)[lines:]
		u.x, u.y, space = space[:n], space[room:room+n], space[2*room:]
		u.gram, u.by, space = space[:short*short], space[side:side+short*short], space[2*side:]
		gram.Work, square.Work, apply.Work = space, space, space
		begin.start(p)
		u.scale = float32(1 / max(math.Sqrt(total(u.sums)), op.MuonEps))
		scaled.start(p)
		gram.A.Data, gram.B.Data, gram.C = u.x, u.x, u.gram
		square.A.Data, square.B.Data, square.C = u.gram, u.gram, u.by
		apply.A.Data, apply.B.Data, apply.C = u.by, u.x, u.y
		if rows > cols {
			apply.A.Data, apply.B.Data = u.x, u.by
		}
		for range op.MuonIterations {
			gram.Run(p)
			square.Run(p)
			mixed.start(p)
			apply.Run(p)
			next.start(p)
		}
		end.start(p)
	}}
}

// begin updates the momentum of a row and takes what is made orthogonal.
func (u *muon) begin(worker, line, from, to int) {
	sum := 0.0
	u.g.each(worker, from, to, func(i, j int, g []float32) {
		m, x := u.m[i:j], u.x[i:j]
		for k := range g {
			v := g[k] * u.clip
			m[k] += (v - m[k]) * u.take
			x[k] = v + (m[k]-v)*u.blend
		}
		sum += kernel.SumSquares(x)
	})
	u.sums[line] = sum
}

// end steps.
func (u *muon) end(worker, from, to int) {
	for i := from; i < to; i += widenedAtOnce {
		j := min(i+widenedAtOnce, to)
		w := u.w.open(worker, i, j)
		for k, x := range u.x[i:j] {
			w[k] = w[k]*u.shrink - u.step*x
		}
		u.w.close(worker, i, j)
	}
	u.copied.write(u.w.wide, from, to)
}
