package cuda

import (
	"cmp"
	"fmt"

	"spillway/op"
)

func init() {
	register(op.RMSNorm, norm)
	register(op.RMSNormGrad, normGrad)
	register(op.LayerNorm, norm)
	register(op.LayerNormGrad, normGrad)
	register(op.LayerNormGradPlus, normGrad)
}

// normShape says how the rows of a norm are divided among threads.
type normShape struct {
	name  string
	rows  int64
	width int64
	block [3]int64 // threads of a row, rows of a block
	warp  string   // of kernels with a warp for each row, "" for others
}

func normOf(c op.Call) (s normShape, err error) {
	s.width = c.In[1].Shape[0]
	s.rows = c.In[0].Shape.Elements() / s.width
	s.name = "rmsNorm"
	if c.Kind != op.RMSNorm && c.Kind != op.RMSNormGrad {
		s.name = "layerNorm"
	}
	lane := elementsPerLoad(c.In[0].DType)
	if s.width%lane != 0 {
		s.name, lane = s.name+"One", 1
	}
	s.block = [3]int64{32, 8, 1}
	if s.width > 32*lane*4 {
		s.block = [3]int64{min(512, ceilDiv(s.width, 64*lane)*32), 1, 1}
	} else if lane > 1 {
		s.warp = fmt.Sprint("Warp", ceilDiv(s.width, 32*lane))
	}
	return s, same(c.In[0], c.In[1])
}

func norm(d *Device, c op.Call) (program, error) {
	s, err := normOf(c)
	if err != nil {
		return program{}, err
	}
	bias, out := arg{}, buffer(2)
	if c.Attr.Bias {
		bias, out = buffer(2), buffer(3)
	}
	return single(d.grid(unitFor("norm", c.In[0].DType), s.name+s.warp, [3]int64{ceilDiv(s.rows, s.block[1]), 1, 1}, s.block, 0,
		buffer(0), buffer(1), bias, out, i64(s.rows), i64(s.width), f32(c.Attr.Eps)))
}

// The kernels called Pack work on packRows rows at once, and hold packBytes of shared
// memory for each thread: three rounds of two operands.
const (
	packRows  = 2
	packBytes = 3 * packRows * 2 * vectorBytes
)

// normGrad computes dx, and partial sums of the weight's gradients that are added afterwards.
func normGrad(d *Device, c op.Call) (p program, err error) {
	s, err := normOf(c)
	if err != nil {
		return p, err
	}
	weights, t := len(c.Out)-1, c.In[0].DType
	name, shared, rows := s.name+"Grad", 4*s.width*s.block[1]*int64(weights), s.block[1]
	if pack := ceilDiv(s.width, 32*elementsPerLoad(t)) * 32; s.block[1] == 1 && s.width%elementsPerLoad(t) == 0 && pack <= 1024 && packBytes*pack <= int64(d.gpu.shared) {
		name, shared, rows, s.block[0] = name+"Pack", packBytes*pack, packRows, pack
	}
	each := max(1, 1024/(s.block[0]*s.block[1])) // blocks of a multiprocessor
	args := []arg{buffer(0), buffer(1), buffer(2), buffer(len(c.In)), {}, {}, i64(s.rows), i64(s.width), f32(c.Attr.Eps)}
	if c.Kind == op.LayerNormGradPlus {
		name, args = name+"Plus", append(args, buffer(3))
		if s.warp == "" {
			return p, unsupported("rows that a warp cannot hold in registers are added to by an op of its own")
		}
	}
	if s.warp != "" {
		s.block[1], each = 4, 3
		name, shared, rows = name+s.warp, 4*s.width*s.block[1], s.block[1]
	}
	blocks := min(ceilDiv(s.rows, rows), int64(d.gpu.multiprocessors)*each)
	size := aligned(4 * blocks * s.width)
	for i := range weights {
		args[4+i] = scratchAt(int64(i) * size)
	}
	p.workspace = int64(weights) * size
	err = p.add(d.grid(unitFor("norm", t), name, [3]int64{blocks, 1, 1}, s.block, shared, args...))
	for i := range weights {
		err = cmp.Or(err, p.add(d.foldRows(c.In[1].DType, args[4+i], buffer(len(c.In)+1+i), blocks, s.width, c.Attr.Accumulate)))
	}
	return p, err
}
