package cpu

import (
	"math"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() {
	Register(op.GroupNorm, groupNorm)
	Register(op.GroupNormAgain, groupNormAgain)
	Register(op.GroupNormGrad, groupNormGrad)
	Register(op.NormDrift, normDrift)
}

func normDrift(c op.Call, _ int) Program {
	scale := float32(c.Attr.Scale)
	return Program{Run: func(_ *kernel.Pool, l *device.Launch) {
		mean, variance := F32(l, 2), F32(l, 3)
		toMean, toVariance := F32(l, 4), F32(l, 5)
		for i, m := range F32(l, 0) {
			toMean[i] = m - mean[i]
		}
		for i, v := range F32(l, 1) {
			toVariance[i] = v - float32(scale*variance[i])
		}
	}}
}

// grouped is a norm over groups of channels. Rows of a set are cut into parts, whose sums are added in
// order, so that they do not depend on who computed what.
type grouped struct {
	sets, rows, groups, width, channels int
	parts, step                         int
	eps                                 float64
	relu                                bool
}

func groupedOf(c op.Call) *grouped {
	n := c.NormGroups()
	g := &grouped{sets: int(n.Sets), rows: int(n.Rows), groups: int(n.Groups), width: int(n.Width), eps: c.Attr.Eps, relu: c.Attr.Func == op.ReLU}
	g.channels = g.groups * g.width
	g.step = max((g.rows+normBlocks-1)/normBlocks, min(g.rows, 16))
	g.parts = (g.rows + g.step - 1) / g.step
	return g
}

// workspace has two sums of each part, and lines rows of channels of a set.
func (g *grouped) workspace(lines int) int64 {
	return bytesOf(g.sets*(2*g.parts+lines)*g.channels + 16)
}

// part gives the two sums of a part of a set.
func (g *grouped) part(work []float32, set, part int) (a, b []float32) {
	at := work[(set*g.parts+part)*2*g.channels:]
	return at[:g.channels], at[g.channels : 2*g.channels]
}

// line is a row of channels of a set, behind the sums.
func (g *grouped) line(work []float32, set, lines, i int) []float32 {
	return work[(g.sets*2*g.parts+set*lines+i)*g.channels:][:g.channels]
}

// each runs do for the rows of every part of every set: rows from..to of all.
func (g *grouped) each(do func(worker, set, part, from, to int)) *rows {
	return &rows{n: g.sets * g.parts, step: 1, do: func(worker, i, _ int) {
		set, part := i/g.parts, i%g.parts
		from := part * g.step
		do(worker, set, part, set*g.rows+from, set*g.rows+min(from+g.step, g.rows))
	}}
}

func (g *grouped) row(f []float32, i int) []float32 { return f[i*g.channels:][:g.channels] }

// rooms are a row of channels for each worker.
func (g *grouped) rooms(workers int) [][]float32 {
	room := make([][]float32, workers)
	for i := range room {
		room[i] = make([]float32, g.channels)
	}
	return room
}

// applied is what a norm makes of x once its statistics are known; b and plus may be nil.
type applied struct {
	*grouped
	lines            int // rows of channels behind the sums, of which the first three are taken
	x, b, plus, work []float32
	means, variances []float32
}

// prepare sets shift, scale and what is added from the statistics; w may be nil.
func (a *applied) prepare(w []float32) {
	for set := range a.sets {
		shift, scale, add := a.line(a.work, set, a.lines, 0), a.line(a.work, set, a.lines, 1), a.line(a.work, set, a.lines, 2)
		for i := range shift {
			k := set*a.groups + i/a.width
			shift[i], scale[i] = -a.means[k], float32(1/math.Sqrt(float64(a.variances[k])+a.eps))
			if w != nil {
				scale[i] *= w[i]
			}
			if a.b != nil {
				add[i] = a.b[i]
			}
		}
	}
}

// before is row i of a set before the function.
func (a *applied) before(to []float32, set, i int) {
	kernel.Add(to, a.row(a.x, i), a.line(a.work, set, a.lines, 0))
	kernel.Mul(to, to, a.line(a.work, set, a.lines, 1))
	if a.b != nil {
		kernel.Add(to, to, a.line(a.work, set, a.lines, 2))
	}
	if a.plus != nil {
		kernel.Add(to, to, a.row(a.plus, i))
	}
}

// take sets what the call has behind x: weight and bias, which it gives, and what is added.
func (a *applied) take(c op.Call, l *device.Launch) (w []float32) {
	a.x, a.b, a.plus, a.work = F32(l, 0), nil, nil, scratch(l)
	plus := 1
	if c.Attr.Bias {
		w, a.b, plus = F32(l, 1), F32(l, 2), 3
	}
	if c.Attr.Plus {
		a.plus = F32(l, plus)
	}
	return w
}

// apply writes y.
func (a *applied) apply(y *[]float32) *rows {
	return a.each(func(_, set, _, from, to int) {
		for i := from; i < to; i++ {
			row := a.row(*y, i)
			a.before(row, set, i)
			if a.relu {
				kernel.Func(op.ReLU).Value(row, row)
			}
		}
	})
}

func groupNorm(c op.Call, workers int) Program {
	g := groupedOf(c)
	a := &applied{grouped: g, lines: 3}
	var y []float32
	room := g.rooms(workers)
	// A part has its mean, and the sum of squares around it.
	moments := g.each(func(worker, set, part, from, to int) {
		mean, squares := g.part(a.work, set, part)
		clear(mean)
		clear(squares)
		for i := from; i < to; i++ {
			kernel.AddScaled(mean, g.row(a.x, i), 1)
		}
		kernel.Scale(mean, mean, -1/float32(to-from)) // with the other sign, to be added
		away := room[worker]
		for i := from; i < to; i++ {
			kernel.Add(away, g.row(a.x, i), mean)
			kernel.AddMul(squares, away, away)
		}
	})
	apply := a.apply(&y)
	return Program{Workspace: g.workspace(a.lines), Run: func(p *kernel.Pool, l *device.Launch) {
		out := len(c.In)
		w := a.take(c, l)
		y, a.means, a.variances = F32(l, out), F32(l, out+1), F32(l, out+2)
		moments.start(p)
		for set := range g.sets {
			for k := range g.groups {
				mean, variance := g.fold(a.work, set, k)
				a.means[set*g.groups+k], a.variances[set*g.groups+k] = float32(mean), float32(variance)
			}
		}
		a.prepare(w)
		apply.start(p)
	}}
}

func groupNormAgain(c op.Call, _ int) Program {
	a := &applied{grouped: groupedOf(c), lines: 3}
	var y []float32
	apply := a.apply(&y)
	return Program{Workspace: a.workspace(a.lines), Run: func(p *kernel.Pool, l *device.Launch) {
		w := a.take(c, l)
		y, a.means, a.variances = F32(l, len(c.In)), F32(l, len(c.In)-2), F32(l, len(c.In)-1)
		a.prepare(w)
		apply.start(p)
	}}
}

// fold joins the moments of the parts and channels of a group.
func (g *grouped) fold(work []float32, set, group int) (mean, variance float64) {
	n := 0.0
	for part := range g.parts {
		minus, squares := g.part(work, set, part)
		count := float64(min((part+1)*g.step, g.rows) - part*g.step)
		for i := group * g.width; i < (group+1)*g.width; i++ {
			away := -float64(minus[i]) - mean
			variance += float64(squares[i]) + away*away*n*count/(n+count)
			n += count
			mean += away * count / n
		}
	}
	return mean, variance / n
}

func groupNormGrad(c op.Call, workers int) Program {
	g, o := groupedOf(c), c.Attr.NormOperands()
	a := &applied{grouped: g, lines: 6} // behind the three: what multiplies dy, x - mean and 1
	var dy, dx, dplus []float32
	room, cut := g.rooms(workers), g.rooms(workers)
	// gradient is row i of dy, 0 where the function cuts off.
	gradient := func(worker, set, i int) []float32 {
		if !g.relu {
			return g.row(dy, i)
		}
		to := cut[worker]
		if dplus != nil {
			to = g.row(dplus, i)
		}
		a.before(room[worker], set, i)
		kernel.Func(op.ReLU).SlopeTimes(to, room[worker], g.row(dy, i))
		return to
	}
	sums := g.each(func(worker, set, part, from, to int) {
		level, along := g.part(a.work, set, part)
		clear(level)
		clear(along)
		away, minus := room[worker], g.line(a.work, set, a.lines, 0)
		for i := from; i < to; i++ {
			d := gradient(worker, set, i)
			kernel.AddScaled(level, d, 1)
			kernel.Add(away, g.row(a.x, i), minus)
			kernel.AddMul(along, away, d)
		}
	})
	apply := g.each(func(worker, set, _, from, to int) {
		away, minus := room[worker], g.line(a.work, set, a.lines, 0)
		byDY, byX, add := g.line(a.work, set, a.lines, 3), g.line(a.work, set, a.lines, 4), g.line(a.work, set, a.lines, 5)
		for i := from; i < to; i++ {
			var d []float32
			if dplus != nil {
				d = g.row(dplus, i)
			} else {
				d = gradient(worker, set, i)
			}
			to := g.row(dx, i) // may be where x is
			kernel.Add(away, g.row(a.x, i), minus)
			kernel.Mul(to, d, byDY)
			kernel.AddMul(to, away, byX)
			kernel.Add(to, to, add)
		}
	})
	return Program{Workspace: g.workspace(a.lines), Run: func(p *kernel.Pool, l *device.Launch) {
		var w, dw, db []float32
		a.x, a.b, a.plus, a.work = F32(l, 0), nil, nil, scratch(l)
		if c.Attr.Bias {
			w = F32(l, o.Weight)
		}
		if o.Bias > 0 {
			a.b = F32(l, o.Bias)
		}
		dy, dx, dplus = F32(l, o.DY), F32(l, len(c.In)), nil
		if c.Attr.Plus {
			a.plus, dplus = F32(l, o.Plus), F32(l, len(c.In)+len(c.Out)-1)
		}
		a.means, a.variances = F32(l, o.Mean), F32(l, o.Mean+1)
		a.prepare(w)
		sums.start(p)
		if c.Attr.Bias && !c.Attr.InputOnly {
			dw, db = F32(l, len(c.In)+1), F32(l, len(c.In)+2)
			if !c.Attr.Accumulate {
				clear(dw)
				clear(db)
			}
		}
		for set := range g.sets {
			a.factors(set, w, dw, db)
		}
		apply.start(p)
	}}
}

// factors adds the sums of the parts of a set, and makes of them what dy, x - mean and 1 are multiplied by in
// the gradient of x. Where dw is not nil, the set's gradients of weight and bias are added to dw and db.
func (a *applied) factors(set int, w, dw, db []float32) {
	g := a.grouped
	byDY, byX, add := g.line(a.work, set, a.lines, 3), g.line(a.work, set, a.lines, 4), g.line(a.work, set, a.lines, 5)
	for part := 1; part < g.parts; part++ {
		level, along := g.part(a.work, set, 0)
		x, y := g.part(a.work, set, part)
		kernel.AddScaled(level, x, 1)
		kernel.AddScaled(along, y, 1)
	}
	level, along := g.part(a.work, set, 0)
	for k := range g.groups {
		inverse := 1 / math.Sqrt(float64(a.variances[set*g.groups+k])+g.eps)
		var all, turned float64
		for i := k * g.width; i < (k+1)*g.width; i++ {
			weight := 1.0
			if w != nil {
				weight = float64(w[i])
			}
			all += weight * float64(level[i])
			turned += weight * float64(along[i]) * inverse
			if dw != nil {
				dw[i] += float32(float64(along[i]) * inverse)
				db[i] += level[i]
			}
			byDY[i] = float32(inverse * weight)
		}
		n := float64(g.rows * g.width)
		for i := k * g.width; i < (k+1)*g.width; i++ {
			byX[i], add[i] = float32(-inverse*inverse*turned/n), float32(-inverse*all/n)
		}
	}
}
