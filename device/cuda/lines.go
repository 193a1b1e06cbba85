package cuda

import (
	"cmp"

	"spillway/op"
)

func init() {
	register(op.Reduce, reduction)
	register(op.ReduceGrad, byLine("reduceGrad", func(c op.Call) int64 { return int64(c.Attr.Reduction) }))
	register(op.Softmax, byLine("softmax", logs))
	register(op.SoftmaxGrad, byLine("softmaxGrad", logs))
	register(op.CumSum, cumSum)
	register(op.ArgMax, byLine("argMax", func(c op.Call) int64 {
		if c.Attr.Inverse {
			return 1
		}
		return 0
	}))
}

func logs(c op.Call) int64 {
	if c.Attr.Log {
		return 1
	}
	return 0
}

// byLine is a kernel of lines.cu with a block per line: all buffers, the length of lines, the distance
// of their elements, and a number.
func byLine(name string, number func(c op.Call) int64) maker {
	return func(d *Device, c op.Call) (program, error) {
		outer, along, inner := c.In[0].Shape.Around(c.Attr.Axis, c.Attr.Dims)
		var args []arg
		for i := range len(c.In) + len(c.Out) {
			args = append(args, buffer(i))
		}
		args = append(args, i64(along), i64(inner), i64(number(c)))
		return single(d.line(unitFor("lines", c.In[0].DType), name, outer*inner, lineThreads(along), args...))
	}
}

// lineThreads is how many threads work on a line: whole warps, no more than a line has elements.
func lineThreads(along int64) int64 { return min(threads, ceilDiv(along, 32)*32) }

// reduction is a block per line where lines lie in order, else strips of neighbouring lines, in shares
// that fill the GPU and are joined in order.
func reduction(d *Device, c op.Call) (p program, err error) {
	outer, along, inner := c.In[0].Shape.Around(c.Attr.Axis, c.Attr.Dims)
	u, r := unitFor("lines", c.In[0].DType), c.Attr.Reduction
	if inner == 1 || r == op.ReduceLogSumExp {
		return single(d.line(u, "reduceLine", outer*inner, lineThreads(along), buffer(0), buffer(1), i64(along), i64(inner), i64(int64(r)), flag(c.Attr.Accumulate)))
	}
	tiles := outer * ceilDiv(inner, 32)
	share := max(64, ceilDiv(along, max(1, 4*int64(d.gpu.multiprocessors)/tiles)))
	shares := ceilDiv(along, share)
	p.workspace = 4 * outer * shares * inner
	err = cmp.Or(
		p.add(d.grid(u, "reduceStrips", [3]int64{tiles, shares, 1}, [3]int64{32, 8, 1}, 0, buffer(0), scratchAt(0), i64(along), i64(inner), i64(share), i64(shares), i64(int64(r)))),
		p.add(d.line(u, "reduceFold", ceilDiv(outer*inner, threads), threads, scratchAt(0), buffer(1), i64(outer*inner), i64(along), i64(inner), i64(shares), i64(int64(r)), flag(c.Attr.Accumulate))))
	return p, err
}

func cumSum(d *Device, c op.Call) (program, error) {
	outer, along, inner := c.In[0].Shape.Around(c.Attr.Axis, 1)
	return single(d.line(unitFor("lines", c.In[0].DType), "cumSum", ceilDiv(outer*inner, threads), threads,
		buffer(0), buffer(1), i64(outer*inner), i64(along), i64(inner), flag(c.Attr.Inverse)))
}
