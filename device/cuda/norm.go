package cuda

import (
	"cmp"

	"spillway/op"
)

func init() {
	register(op.RMSNorm, norm)
	register(op.RMSNormGrad, normGrad)
	register(op.LayerNorm, norm)
	register(op.LayerNormGrad, normGrad)
}

// normShape says how the rows of a norm are divided among threads.
type normShape struct {
	name  string
	rows  int64
	width int64
	block [3]int64 // threads of a row, rows of a block
}

func normOf(c op.Call) (s normShape, err error) {
	s.width = c.In[1].Shape[0]
	s.rows = c.In[0].Shape.Elements() / s.width
	s.name = "rmsNorm"
	if c.Kind == op.LayerNorm || c.Kind == op.LayerNormGrad {
		s.name = "layerNorm"
	}
	lane := elementsPerLoad(c.In[0].DType)
	if s.width%lane != 0 {
		s.name, lane = s.name+"One", 1
	}
	s.block = [3]int64{32, 8, 1}
	if s.width > 32*lane*4 {
		s.block = [3]int64{min(512, ceilDiv(s.width, 64*lane)*32), 1, 1}
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
	return single(d.grid(unitFor("norm", c.In[0].DType), s.name, [3]int64{ceilDiv(s.rows, s.block[1]), 1, 1}, s.block, 0,
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
	blocks := min(ceilDiv(s.rows, rows), int64(d.gpu.multiprocessors)*max(1, 1024/(s.block[0]*s.block[1])))
	size := aligned(4 * blocks * s.width)
	partial := []arg{{}, {}}
	for i := range weights {
		partial[i] = scratchAt(int64(i) * size)
	}
	p.workspace = int64(weights) * size
	err = p.add(d.grid(unitFor("norm", t), name, [3]int64{blocks, 1, 1}, s.block, shared,
		buffer(0), buffer(1), buffer(2), buffer(3), partial[0], partial[1], i64(s.rows), i64(s.width), f32(c.Attr.Eps)))
	for i := range weights {
		err = cmp.Or(err, p.add(d.foldRows(c.In[1].DType, partial[i], buffer(4+i), blocks, s.width, c.Attr.Accumulate)))
	}
	return p, err
}
