package cuda

import (
	"cmp"

	"spillway/op"
)

func init() {
	register(op.GroupNorm, groupNorm)
	register(op.GroupNormAgain, groupNormAgain)
	register(op.GroupNormGrad, groupNormGrad)
}

// groupSums is how a norm over groups is divided: strips of channels over shares of the rows. A block is
// lanes times high threads, of which each has some neighbouring channels: each.
type groupSums struct {
	op.NormGroups
	channels, each, lanes, high, tiles, share, shares int64
	unit                                              unit
	eps, relu                                         arg
}

func (d *Device) groupSums(c op.Call) groupSums {
	t := c.In[0].DType
	s := groupSums{NormGroups: c.NormGroups(), each: elementsPerLoad(t), unit: unitFor("groupnorm", t), eps: f32(c.Attr.Eps), relu: flag(c.Attr.Func == op.ReLU)}
	s.channels = s.Groups * s.Width
	if c.Kind == op.GroupNormGrad {
		s.each /= 2
	}
	if s.channels%s.each != 0 {
		s.each = 1
	}
	vectors := s.channels / s.each
	s.lanes = ceilDiv(vectors, ceilDiv(vectors, 32))
	s.high = threads / s.lanes
	s.tiles = s.Sets * ceilDiv(vectors, s.lanes)
	s.share = max(4*s.high, ceilDiv(s.Rows, max(1, 4*int64(d.gpu.multiprocessors)/s.tiles)))
	s.shares = ceilDiv(s.Rows, s.share)
	return s
}

// bytes of the partial sums.
func (s groupSums) bytes() int64 { return aligned(8 * s.Sets * s.shares * s.channels) }

// strips launches a kernel over all strips and shares.
func (d *Device) strips(s groupSums, name string, args ...arg) (*kernelLaunch, error) {
	if s.each == 1 {
		name += "Single"
	}
	return d.grid(s.unit, name, [3]int64{s.tiles, s.shares, 1}, [3]int64{s.lanes, s.high, 1}, 0, args...)
}

// folds launches a kernel with a warp for each group of each set.
func (d *Device) folds(s groupSums, name string, args ...arg) (*kernelLaunch, error) {
	return d.grid(s.unit, name, [3]int64{ceilDiv(s.Sets*s.Groups, 4), 1, 1}, [3]int64{32, 4, 1}, 0, args...)
}

// applied is y of a norm with these statistics.
func (d *Device) applied(s groupSums, c op.Call, mean, variance arg) (*kernelLaunch, error) {
	var w, b, plus arg
	n := 1
	if c.Attr.Bias {
		w, b, n = buffer(1), buffer(2), 3
	}
	if c.Attr.Plus {
		plus = buffer(n)
	}
	return d.strips(s, "normApply", buffer(0), w, b, plus, mean, variance, buffer(len(c.In)), i64(s.Rows), i64(s.channels), i64(s.Width), i64(s.share), s.eps, s.relu)
}

func groupNorm(d *Device, c op.Call) (p program, err error) {
	s, out := d.groupSums(c), len(c.In)
	p.workspace = s.bytes()
	err = cmp.Or(
		p.add(d.strips(s, "normMoments", buffer(0), scratchAt(0), i64(s.Rows), i64(s.channels), i64(s.share), i64(s.shares))),
		p.add(d.folds(s, "normFold", buffer(0), scratchAt(0), buffer(out+1), buffer(out+2), i64(s.Sets), i64(s.Rows), i64(s.channels), i64(s.Width), i64(s.shares))),
		p.add(d.applied(s, c, buffer(out+1), buffer(out+2))))
	return p, err
}

func groupNormAgain(d *Device, c op.Call) (program, error) {
	return single(d.applied(d.groupSums(c), c, buffer(len(c.In)-2), buffer(len(c.In)-1)))
}

func groupNormGrad(d *Device, c op.Call) (p program, err error) {
	s, o, out := d.groupSums(c), c.Attr.NormOperands(), len(c.In)
	var w, b, plus, dplus, dw, db arg
	if c.Attr.Bias {
		w = buffer(o.Weight)
	}
	if o.Bias > 0 {
		b = buffer(o.Bias)
	}
	if c.Attr.Bias && !c.Attr.InputOnly {
		dw, db = buffer(out+1), buffer(out+2)
	}
	mean, variance, dy := buffer(o.Mean), buffer(o.Mean+1), buffer(o.DY)
	totals := s.bytes()
	means := totals + aligned(8*s.Sets*s.channels)
	p.workspace = means + 8*s.Sets*s.Groups
	name := "normGradSums"
	if c.Attr.Plus {
		name, plus, dplus = "normSumGradSums", buffer(o.Plus), buffer(out+len(c.Out)-1)
	}
	sizes := []arg{i64(s.Rows), i64(s.channels), i64(s.Width), i64(s.share)}
	err = cmp.Or(
		p.add(d.strips(s, name, append(append([]arg{buffer(0), w, b, plus, mean, variance, dy, dplus, scratchAt(0)}, sizes...), i64(s.shares), s.eps, s.relu)...)),
		p.add(d.folds(s, "normGradFold", scratchAt(0), w, variance, scratchAt(means), scratchAt(totals), dw, db, i64(s.Sets), i64(s.Rows), i64(s.channels), i64(s.Width), i64(s.shares), s.eps, flag(c.Attr.Accumulate))))
	if c.Attr.Plus {
		dy, s.relu = dplus, flag(false) // cut off already
	}
	err = cmp.Or(err, p.add(d.strips(s, "normInput", append(append([]arg{buffer(0), w, b, mean, variance, dy, scratchAt(means), buffer(out)}, sizes...), s.eps, s.relu)...)))
	if s.Sets > 1 && c.Attr.Bias && !c.Attr.InputOnly {
		err = cmp.Or(err, p.add(d.line(s.unit, "normWeights", ceilDiv(s.channels, 64), 64, scratchAt(totals), dw, db, i64(s.Sets), i64(s.channels), flag(c.Attr.Accumulate))))
	}
	return p, err
}
