package cpu

import (
	"math"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() {
	Register(op.GroupNorm, groupNorm)
	Register(op.GroupNormGrad, groupNormGrad)
}

// grouped is a norm over groups of channels. Rows of a set are cut into parts, whose sums are added in
// order, so that they do not depend on who computed what.
type grouped struct {
	sets, rows, groups, width, channels int
	parts, step                         int
	eps                                 float64
}

func groupedOf(c op.Call) *grouped {
	n := c.NormGroups()
	g := &grouped{sets: int(n.Sets), rows: int(n.Rows), groups: int(n.Groups), width: int(n.Width), eps: c.Attr.Eps}
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

func groupNorm(c op.Call, workers int) Program {
	g := groupedOf(c)
	var x, y, w, b, work, means, variances []float32
	room := make([][]float32, workers)
	for i := range room {
		room[i] = make([]float32, g.channels)
	}
	row := func(f []float32, i int) []float32 { return f[i*g.channels:][:g.channels] }
	// A part has its mean, and the sum of squares around it.
	moments := g.each(func(worker, set, part, from, to int) {
		mean, squares := g.part(work, set, part)
		clear(mean)
		clear(squares)
		for i := from; i < to; i++ {
			kernel.AddScaled(mean, row(x, i), 1)
		}
		kernel.Scale(mean, mean, -1/float32(to-from)) // with the other sign, to be added
		away := room[worker]
		for i := from; i < to; i++ {
			kernel.Add(away, row(x, i), mean)
			kernel.AddMul(squares, away, away)
		}
	})
	apply := g.each(func(_, set, _, from, to int) {
		shift, scale, add := g.line(work, set, 3, 0), g.line(work, set, 3, 1), g.line(work, set, 3, 2)
		for i := from; i < to; i++ {
			kernel.Add(row(y, i), row(x, i), shift)
			kernel.Mul(row(y, i), row(y, i), scale)
			if b != nil {
				kernel.Add(row(y, i), row(y, i), add)
			}
		}
	})
	return Program{Workspace: g.workspace(3), Run: func(p *kernel.Pool, l *device.Launch) {
		out := len(c.In)
		x, y, means, variances, work = F32(l, 0), F32(l, out), F32(l, out+1), F32(l, out+2), scratch(l)
		if w, b = nil, nil; c.Attr.Bias {
			w, b = F32(l, 1), F32(l, 2)
		}
		moments.start(p)
		for set := range g.sets {
			for k := range g.groups {
				mean, variance := g.fold(work, set, k)
				means[set*g.groups+k], variances[set*g.groups+k] = float32(mean), float32(variance)
				inverse := float32(1 / math.Sqrt(variance+g.eps))
				for i := k * g.width; i < (k+1)*g.width; i++ {
					shift, scale, add := g.line(work, set, 3, 0), g.line(work, set, 3, 1), g.line(work, set, 3, 2)
					shift[i], scale[i] = float32(-mean), inverse
					if b != nil {
						scale[i], add[i] = inverse*w[i], b[i]
					}
				}
			}
		}
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
	g, stats := groupedOf(c), 1
	if c.Attr.Bias {
		stats = 2
	}
	var x, dy, dx, work []float32
	room := make([][]float32, workers)
	for i := range room {
		room[i] = make([]float32, g.channels)
	}
	row := func(f []float32, i int) []float32 { return f[i*g.channels:][:g.channels] }
	const lines = 4 // minus the mean, and what multiplies dy, x - mean and 1
	sums := g.each(func(worker, set, part, from, to int) {
		level, along := g.part(work, set, part)
		clear(level)
		clear(along)
		away, minus := room[worker], g.line(work, set, lines, 0)
		for i := from; i < to; i++ {
			kernel.AddScaled(level, row(dy, i), 1)
			kernel.Add(away, row(x, i), minus)
			kernel.AddMul(along, away, row(dy, i))
		}
	})
	apply := g.each(func(worker, set, _, from, to int) {
		away, minus := room[worker], g.line(work, set, lines, 0)
		byDY, byX, add := g.line(work, set, lines, 1), g.line(work, set, lines, 2), g.line(work, set, lines, 3)
		for i := from; i < to; i++ {
			to := row(dx, i)
			kernel.Add(away, row(x, i), minus)
			kernel.Mul(to, row(dy, i), byDY)
			kernel.AddMul(to, away, byX)
			kernel.Add(to, to, add)
		}
	})
	return Program{Workspace: g.workspace(lines), Run: func(p *kernel.Pool, l *device.Launch) {
		x, dy, dx, work = F32(l, 0), F32(l, stats+2), F32(l, len(c.In)), scratch(l)
		means, variances := F32(l, stats), F32(l, stats+1)
		for set := range g.sets {
			minus := g.line(work, set, lines, 0)
			for i := range minus {
				minus[i] = -means[set*g.groups+i/g.width]
			}
		}
		sums.start(p)
		var w, dw, db []float32
		if c.Attr.Bias {
			w = F32(l, 1)
		}
		if len(c.Out) > 1 {
			dw, db = F32(l, len(c.In)+1), F32(l, len(c.In)+2)
			if !c.Attr.Accumulate {
				clear(dw)
				clear(db)
			}
		}
		for set := range g.sets {
			byDY, byX, add := g.line(work, set, lines, 1), g.line(work, set, lines, 2), g.line(work, set, lines, 3)
			for part := 1; part < g.parts; part++ {
				level, along := g.part(work, set, 0)
				a, b := g.part(work, set, part)
				kernel.AddScaled(level, a, 1)
				kernel.AddScaled(along, b, 1)
			}
			level, along := g.part(work, set, 0)
			for k := range g.groups {
				inverse := 1 / math.Sqrt(float64(variances[set*g.groups+k])+g.eps)
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
		apply.start(p)
	}}
}
