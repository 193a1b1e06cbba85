package cuda

import (
	"cmp"

	"spillway/op"
)

func init() {
	register(op.GroupNorm, groupNorm)
	register(op.GroupNormGrad, groupNormGrad)
}

// groupSums is how the sums of a norm over groups are divided: strips of channels over shares of the rows.
type groupSums struct {
	op.NormGroups
	channels, tiles, share, shares int64
}

func (d *Device) groupSums(c op.Call) groupSums {
	s := groupSums{NormGroups: c.NormGroups()}
	s.channels = s.Groups * s.Width
	s.tiles = s.Sets * ceilDiv(s.channels, 32)
	s.share = max(64, ceilDiv(s.Rows, max(1, 8*int64(d.gpu.multiprocessors)/s.tiles)))
	s.shares = ceilDiv(s.Rows, s.share)
	return s
}

// bytes of the partial sums.
func (s groupSums) bytes() int64 { return aligned(8 * s.Sets * s.shares * s.channels) }

func (s groupSums) sizes() []arg { return []arg{i64(s.Rows), i64(s.channels), i64(s.Width)} }

func (d *Device) strips(s groupSums, u unit, name string, at ...arg) (*kernelLaunch, error) {
	args := append(append(at, scratchAt(0)), s.sizes()...)
	return d.grid(u, name, [3]int64{s.tiles, s.shares, 1}, [3]int64{32, 8, 1}, 0, append(args, i64(s.share), i64(s.shares))...)
}

func groupNorm(d *Device, c op.Call) (p program, err error) {
	s, u, out := d.groupSums(c), unitFor("groupnorm", c.In[0].DType), len(c.In)
	w, b := arg{}, arg{}
	if c.Attr.Bias {
		w, b = buffer(1), buffer(2)
	}
	p.workspace = s.bytes()
	fold := func(to arg) error {
		args := append([]arg{scratchAt(0), to, i64(s.Sets)}, s.sizes()...)
		return p.add(d.line(u, "normFold", ceilDiv(s.Sets*s.Groups, 64), 64, append(args, i64(s.shares))...))
	}
	n := c.In[0].Shape.Elements()
	args := append([]arg{buffer(0), w, b, buffer(out + 1), buffer(out + 2), buffer(out), i64(n)}, s.sizes()...)
	err = cmp.Or(
		p.add(d.strips(s, u, "normSums", buffer(0))), fold(buffer(out+1)),
		p.add(d.strips(s, u, "normSquares", buffer(0), buffer(out+1))), fold(buffer(out+2)),
		p.add(d.line(u, "normApply", d.strideBlocks(n), threads, append(args, f32(c.Attr.Eps))...)))
	return p, err
}

func groupNormGrad(d *Device, c op.Call) (p program, err error) {
	s, u, out := d.groupSums(c), unitFor("groupnorm", c.In[0].DType), len(c.In)
	w, stats := arg{}, 1
	if c.Attr.Bias {
		w, stats = buffer(1), 2
	}
	mean, variance, dy, n := buffer(stats), buffer(stats+1), buffer(stats+2), c.In[0].Shape.Elements()
	means, eps := scratchAt(s.bytes()), f32(c.Attr.Eps)
	p.workspace = s.bytes() + 8*s.Sets*s.Groups
	fold := append([]arg{scratchAt(0), w, variance, means, i64(s.Sets)}, s.sizes()...)
	args := append([]arg{buffer(0), w, mean, variance, dy, means, buffer(out), i64(n)}, s.sizes()...)
	err = cmp.Or(
		p.add(d.strips(s, u, "normGradSums", buffer(0), dy, mean)),
		p.add(d.line(u, "normGradFold", ceilDiv(s.Sets*s.Groups, 64), 64, append(fold, i64(s.shares), eps)...)),
		p.add(d.line(u, "normInput", d.strideBlocks(n), threads, append(args, eps)...)))
	if len(c.Out) > 1 {
		err = cmp.Or(err, p.add(d.line(u, "normWeights", ceilDiv(s.channels, 64), 64, scratchAt(0), variance, buffer(out+1), buffer(out+2),
			i64(s.Sets), i64(s.channels), i64(s.Width), i64(s.shares), eps, flag(c.Attr.Accumulate))))
	}
	return p, err
}
