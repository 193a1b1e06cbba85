package cuda

import (
	"cmp"
	"fmt"

	"spillway/dtype"
	"spillway/op"
)

func init() { registerUnaligned("muon", muon) }

// muon updates a matrix by its momentum, made orthogonal by matmuls in bf16 as PyTorch's are, and every other param as
// Adam does.
func muon(d *Device, c op.Call) (p program, err error) {
	if len(c.In) == 5 {
		return d.muonByAdam(c)
	}
	copied, err := copyArgs(c)
	if err != nil {
		return p, err
	}
	const bf16 = dtype.BF16
	rows, cols := c.In[0].Shape[0], c.In[0].Shape[1]
	short, long := min(rows, cols), max(rows, cols)
	// Rows begin at multiples of what a thread loads, so that the library has algorithms for every size.
	whole := func(n int64) int64 { return ceilDiv(n, elementsPerLoad(bf16)) * elementsPerLoad(bf16) }
	step, side := whole(cols), whole(short)
	take := func(bytes int64) int64 {
		at := p.workspace
		p.workspace += aligned(bytes)
		return at
	}
	blocks := max(1, min(rows, int64(d.gpu.multiprocessors)*8))
	partial, norm := take(8*blocks), take(4)
	x, next := take(bf16.Bytes(rows*step)), take(bf16.Bytes(rows*step))
	gram, by := take(bf16.Bytes(short*side)), take(bf16.Bytes(short*side))
	scratch := p.workspace
	table := func(at, step int64, transposed bool) matrix { return matrix{scratchAt(at), bf16, step, transposed} }
	scalar := func(name string) arg { return iteration(c.Kind.Slots(name)[0]) }
	u, clip := unitFor("muon", c.In[1].DType), buffer(len(c.In)-1)
	err = cmp.Or(
		p.add(d.line(u, "muonBegin", blocks, threads, buffer(1), buffer(2), clip, scratchAt(x), scratchAt(partial), i64(rows), i64(cols), i64(step), scalar("take"), scalar("blend"))),
		p.add(d.line(u, "muonNorm", 1, threads, scratchAt(partial), scratchAt(norm), i64(blocks), f32(op.MuonEps))),
		p.add(d.line(u, "muonScale", d.strideBlocks(rows*step), threads, scratchAt(x), scratchAt(norm), i64(rows*step))))
	tall := rows > cols
	for range op.MuonIterations {
		apply := matmulArgs{m: rows, n: cols, k: short, a: table(by, side, false), b: table(x, step, false), c: table(next, step, false)}
		if tall {
			apply.a, apply.b = table(x, step, false), table(by, side, false)
		}
		err = cmp.Or(err,
			d.iterate(&p, scratch, matmulArgs{m: short, n: short, k: long, a: table(x, step, tall), b: table(x, step, !tall), c: table(gram, side, false)}, 1, 0, nil),
			d.iterate(&p, scratch, matmulArgs{m: short, n: short, k: short, a: table(gram, side, false), b: table(gram, side, false), c: table(by, side, false)},
				op.MuonCoefficients[2], op.MuonCoefficients[1], new(scratchAt(gram))),
			d.iterate(&p, scratch, apply, 1, op.MuonCoefficients[0], new(scratchAt(x))))
		x, next = next, x
	}
	end := append([]arg{buffer(0), i64(storageCodes[c.In[0].DType]), key(), row(), scratchAt(x), clip}, copied...)
	end = append(end, i64(rows), i64(cols), i64(step), f64(op.MuonFactor(rows, cols, false)), f64(op.MuonFactor(rows, cols, true)), scalar("shrink"), scalar("muon_rate"), scalar("match"))
	return p, cmp.Or(err, p.add(d.line(u, "muonEnd", blocks, threads, end...)))
}

// iterate appends alpha·a·b + beta·plus, by cuBLASLt.
func (d *Device) iterate(p *program, scratch int64, x matmulArgs, alpha, beta float64, plus *arg) error {
	x.scratch, x.plus = scratch, plus
	g, err := d.tryBLAS(x)
	if err != nil {
		return err
	}
	if g == nil {
		return unsupported(fmt.Sprintf("cuBLASLt has no matmul of %d × %d × %d in bf16", x.m, x.k, x.n))
	}
	g.prepared.Alpha, g.prepared.Beta = float32(alpha), float32(beta)
	p.actions = append(p.actions, g)
	p.workspace = max(p.workspace, scratch+g.prepared.Algorithm.Workspace)
	return nil
}

// muonByAdam is the update of what is no matrix, with Adam's kernels.
func (d *Device) muonByAdam(c op.Call) (program, error) {
	scalars := []arg{f32(0)} // nothing couples weights to gradients
	for _, slot := range c.Kind.Slots("beta1", "rest1", "beta2", "rest2", "root", "eps", "rate", "shrink") {
		scalars = append(scalars, iteration(slot))
	}
	return d.updatedWith(c, "adam", "adam", scalars)
}
