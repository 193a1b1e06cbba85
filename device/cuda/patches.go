package cuda

import (
	"cmp"

	"spillway/op"
	"spillway/shape"
)

// apart says that the windows of a convolution lie side by side and cover everything: patches of an image.
func apart(v op.Convolution) bool {
	for i := range v.Kernel {
		if v.Kernel[i] != v.Stride[i] || v.Out[i]*v.Kernel[i] != v.In[i] || v.Dilation[i] != 1 && v.Kernel[i] > 1 {
			return false
		}
	}
	return v.Groups == 1 && v.Padding == [3]int64{}
}

// patches is a convolution whose windows are apart, or a gradient of one: the elements of a window as a row, times
// the weights.
func (d *Device) patches(c op.Call, v op.Convolution) (p program, err error) {
	t, taps := c.In[0].DType, v.Kernel[0]*v.Kernel[1]*v.Kernel[2]
	rows, width := v.B*v.Out[0]*v.Out[1]*v.Out[2], taps*v.C
	windows, weights := int64(0), aligned(t.Bytes(rows*width))
	gemm := weights + aligned(t.Bytes(v.O*width))
	table := matrix{scratchAt(windows), t, width, false}
	byPlaces := matrix{scratchAt(weights), t, width, false}
	x := matmulArgs{scratch: gemm, m: rows, n: v.O, k: width, a: table, b: byPlaces, c: matrix{buffer(len(c.In)), t, v.O, false}}
	x.b.transposed = true
	if c.Attr.Bias {
		x.bias, x.biasOf = new(buffer(2)), c.In[2].DType
	}
	images := buffer(0)
	switch c.Kind {
	case op.ConvInput:
		images = buffer(2)
		x = matmulArgs{scratch: gemm, m: rows, n: width, k: v.O, a: matrix{buffer(0), t, v.O, false}, b: byPlaces, c: table}
	case op.ConvWeight:
		x = matmulArgs{scratch: gemm, m: v.O, n: width, k: rows, a: matrix{buffer(1), t, v.O, true}, b: table, c: byPlaces}
	}
	product, workspace, err := d.multiply(x)
	if err != nil {
		return p, err
	}
	p.workspace = gemm + workspace
	cut := func() error { return p.add(d.move(t, windowsWalk(v, 0), images, scratchAt(windows))) }
	turn := func() error {
		n := v.O * width
		return p.add(d.line(unitFor("conv", t), "byPlaces", d.strideBlocks(n), threads, buffer(1), scratchAt(weights), i64(n), i64(v.C), i64(taps)))
	}
	switch c.Kind {
	case op.ConvInput:
		err = turn()
		p.actions = append(p.actions, product...)
		return p, cmp.Or(err, p.add(d.move(t, windowsWalk(v, 1), scratchAt(windows), images)))
	case op.ConvWeight:
		err = cut()
		p.actions = append(p.actions, product...)
		n := v.O * width
		return p, cmp.Or(err, p.add(d.line(unitFor("conv", t), "toWeights", d.strideBlocks(n), threads, scratchAt(weights), buffer(2), i64(n), i64(v.C), i64(taps), flag(c.Attr.Accumulate))))
	}
	err = cmp.Or(cut(), turn())
	p.actions = append(p.actions, product...)
	return p, err
}

// windowsWalk goes over windows and their elements: of an image, which is tensor number image, and of a table with a row
// for each window.
func windowsWalk(v op.Convolution, table int) shape.Walk {
	o, k := v.Out, v.Kernel
	line := k[2] * v.C
	w := shape.Walk{Dims: shape.Shape{v.B, o[0], o[1], o[2], k[0], k[1], line}}
	image := []int64{v.In[0] * v.In[1] * v.In[2] * v.C, k[0] * v.In[1] * v.In[2] * v.C, k[1] * v.In[2] * v.C, line, v.In[1] * v.In[2] * v.C, v.In[2] * v.C, 1}
	w.Strides = [][]int64{image, w.Dims.Strides()}
	if table == 1 {
		w.Strides[0], w.Strides[1] = w.Strides[1], w.Strides[0]
	}
	return w.Merged()
}
