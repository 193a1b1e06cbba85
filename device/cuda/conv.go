package cuda

import (
	"cmp"
	"fmt"
	"math"

	"spillway/device/cuda/driver"
	"spillway/dtype"
	"spillway/op"
)

func init() {
	register(op.Conv, conv)
	register(op.ConvInput, conv)
	register(op.ConvWeight, conv)
	register(op.Pool, pooled)
	register(op.PoolGrad, pooled)
	register(op.Resample, resampled)
	register(op.ResampleGrad, resampled)
}

// conv is a convolution or a gradient of one: a matmul where windows are single places or lie side by side, else cuDNN's where
// it is there and has an engine, else our plain kernels.
func conv(d *Device, c op.Call) (program, error) {
	v := c.Conv()
	if v.Pointwise() {
		return d.pointwise(c, v)
	}
	if apart(v) {
		return d.patches(c, v)
	}
	if p, err := d.convByDNN(c, v); err != nil || len(p.actions) > 0 {
		return p, err
	}
	return d.plainConv(c, v)
}

// pointwise is a convolution of single places, or a gradient of one, as a matmul of rows.
func (d *Device) pointwise(c op.Call, v op.Convolution) (p program, err error) {
	t, rows := c.In[0].DType, c.In[0].Shape.Rows()
	x := matmulArgs{m: rows, n: v.O, k: v.C, a: matrix{buffer(0), t, v.C, false}, b: matrix{buffer(1), t, v.C, true}, c: matrix{buffer(len(c.In)), t, v.O, false}}
	switch c.Kind {
	case op.ConvInput:
		x.n, x.k = v.C, v.O
		x.a, x.b, x.c = matrix{buffer(0), t, v.O, false}, matrix{buffer(1), t, v.C, false}, matrix{buffer(len(c.In)), t, v.C, false}
	case op.ConvWeight:
		x.m, x.n, x.k, x.add = v.O, v.C, rows, c.Attr.Accumulate
		x.a, x.b, x.c = matrix{buffer(1), t, v.O, true}, matrix{buffer(0), t, v.C, false}, matrix{buffer(2), t, v.C, false}
	}
	if c.Attr.Bias {
		x.bias, x.biasOf = new(buffer(2)), c.In[2].DType
	}
	if c.Attr.Plus {
		x.plus = new(buffer(2))
	}
	p.actions, p.workspace, err = d.multiply(x)
	return p, err
}

// convByDNN is a convolution in one or two dimensions by cuDNN: with weights in the order of windows,
// which are made before, or taken apart after. The program is empty where cuDNN has none.
func (d *Device) convByDNN(c op.Call, v op.Convolution) (p program, err error) {
	if d.lib.DNN == nil || d.lib.DNN.Version < minDNNVersion || v.Kernel[0] != 1 || v.In[0] != 1 || v.Padding[0] != 0 {
		return p, nil
	}
	if fewChannels(c, v) {
		if p, err := d.convOfSquares(c, v); err != nil || len(p.actions) > 0 {
			return p, err
		}
	}
	t := c.In[0].DType
	plan, err := d.planGraph(convGraph(c.Kind, t, v, t == dtype.F32 && !d.options.TF32))
	if plan == nil || err != nil {
		return p, err
	}
	each, taps := v.C/v.Groups, v.Kernel[1]*v.Kernel[2]
	n := v.O * each * taps
	weights := aligned(plan.Workspace)
	p.workspace = weights + t.Bytes(n)
	run := &graphRun{device: d, plan: plan, scratch: scratchAt(0), at: []arg{buffer(0), scratchAt(weights), buffer(len(c.In))}}
	u, blocks := unitFor("conv", t), d.strideBlocks(n)
	if c.Kind == op.ConvWeight {
		run.at = []arg{buffer(0), buffer(1), scratchAt(weights)}
		p.actions = append(p.actions, run)
		err = p.add(d.line(u, "toWeights", blocks, threads, scratchAt(weights), buffer(2), i64(n), i64(each), i64(taps), flag(c.Attr.Accumulate)))
		return p, err
	}
	err = p.add(d.line(u, "byPlaces", blocks, threads, buffer(1), scratchAt(weights), i64(n), i64(each), i64(taps)))
	p.actions = append(p.actions, run)
	return p, cmp.Or(err, d.addBias(&p, c))
}

// mostSquared is up to how many channels the places of a square have together to be taken as one.
const mostSquared = 32

// fewChannels says that a convolution has a stride and so few channels that cuDNN's kernels mostly read what they do not need: the
// first one of a network for images.
func fewChannels(c op.Call, v op.Convolution) bool {
	s := v.Stride[1]
	return c.Kind == op.Conv && c.In[0].DType != dtype.F32 && v.Groups == 1 && s > 1 && v.Stride[2] == s && v.Dilation[1] == 1 && v.Dilation[2] == 1 &&
		v.Kernel[1] > s && v.Kernel[2] > s && v.C*s*s <= mostSquared
}

// convOfSquares is a convolution with a stride as one without over squares of the stride's side: a square is a place with all
// channels of its places. It takes half the time; the gradient of the weights gains nothing. The program is empty where
// cuDNN has none.
func (d *Device) convOfSquares(c op.Call, v op.Convolution) (p program, err error) {
	t, s, square := c.In[0].DType, v.Stride[1], v
	for i := 1; i < 3; i++ {
		square.Kernel[i], square.Stride[i], square.Padding[i] = ceilDiv(v.Kernel[i], s), 1, 0
		square.In[i] = v.Out[i] + square.Kernel[i] - 1
	}
	square.C = ceilDiv(v.C*s*s, elementsPerLoad(t)) * elementsPerLoad(t)
	plan, err := d.planGraph(convGraph(c.Kind, t, square, false))
	if plan == nil || err != nil {
		return p, err
	}
	places := v.B * square.In[1] * square.In[2] * square.C
	if places >= 1<<31 {
		return p, nil
	}
	made := v.O * square.C * square.Kernel[1] * square.Kernel[2]
	weights := aligned(plan.Workspace)
	x := weights + aligned(t.Bytes(made))
	p.workspace = x + t.Bytes(places)
	u, packs := unitFor("conv", t), places/elementsPerLoad(t)
	name := "squares"
	if v.C == 3 && s == 2 && square.C == 16 {
		name = "squaresOfImages"
	}
	err = p.add(d.line(u, name, d.strideBlocks(packs), threads, buffer(0), scratchAt(x), i64(packs), i64(v.In[1]), i64(v.In[2]), i64(v.C), i64(s),
		i64(v.Padding[1]), i64(v.Padding[2]), i64(square.In[1]), i64(square.In[2]), i64(square.C)))
	err = cmp.Or(err, p.add(d.line(u, "squareWeights", d.strideBlocks(made), threads, buffer(1), scratchAt(weights), i64(made),
		i64(v.C), i64(s), i64(v.Kernel[1]), i64(v.Kernel[2]), i64(square.Kernel[1]), i64(square.Kernel[2]), i64(square.C))))
	p.actions = append(p.actions, &graphRun{device: d, plan: plan, scratch: scratchAt(0), at: []arg{scratchAt(x), scratchAt(weights), buffer(len(c.In))}})
	return p, cmp.Or(err, d.addBias(&p, c))
}

// addBias adds the bias of a convolution to what it made.
func (d *Device) addBias(p *program, c op.Call) error {
	if !c.Attr.Bias {
		return nil
	}
	t, n := c.Out[0].DType, c.Out[0].Shape.Elements()
	return p.add(d.line(unitFor("elementwise", t), "addRepeated", ceilDiv(n, threads*elementsPerLoad(t)), threads,
		buffer(len(c.In)), buffer(2), buffer(len(c.In)), i64(n), i64(c.Out[0].Shape.Last()), flag(false)))
}

// convGraph describes a convolution, or a gradient of one, to cuDNN. Outside are the call's operands and
// output in order.
func convGraph(kind op.Kind, t dtype.Type, v op.Convolution, exact bool) *driver.DNNGraph {
	last := func(id, n, c, h, w int64) *driver.Tensor {
		return &driver.Tensor{ID: id, Type: tensors[t], Shape: [4]int64{n, c, h, w}, Strides: [4]int64{h * w * c, 1, w * c, c}}
	}
	x, y := last(1, v.B, v.C, v.In[1], v.In[2]), last(3, v.B, v.O, v.Out[1], v.Out[2])
	w := last(2, v.O, v.C/v.Groups, v.Kernel[1], v.Kernel[2])
	o := driver.Operation{Kind: driver.Convolve, X: x, B: w, Y: y, Windows: &driver.Windows{
		Strides: [2]int64(v.Stride[1:]), Padding: [2]int64(v.Padding[1:]), Dilation: [2]int64(v.Dilation[1:])}}
	g := &driver.DNNGraph{Outside: []*driver.Tensor{x, w, y}, Exact: exact}
	switch kind {
	case op.ConvInput:
		o.Kind, g.Outside = driver.ConvolveInput, []*driver.Tensor{y, w, x}
	case op.ConvWeight:
		o.Kind, g.Outside = driver.ConvolveWeight, []*driver.Tensor{x, y, w}
	}
	g.Operations = []driver.Operation{o}
	return g
}

// f64 is a parameter of the type double.
func f64(f float64) arg { return arg{bits: math.Float64bits(f)} }

func three(lists ...[3]int64) (args []arg) {
	for _, l := range lists {
		for _, n := range l {
			args = append(args, i64(n))
		}
	}
	return args
}

// plainConv is a convolution by a thread per element, or a block per weight.
func (d *Device) plainConv(c op.Call, v op.Convolution) (p program, err error) {
	geometry := append([]arg{i64(v.B), i64(v.C), i64(v.O), i64(v.C / v.Groups), i64(v.O / v.Groups)}, three(v.In, v.Out, v.Kernel, v.Stride, v.Padding, v.Dilation)...)
	u, n := unitFor("conv", c.In[0].DType), c.Out[0].Shape.Elements()
	at := []arg{buffer(0), buffer(1), buffer(len(c.In))}
	switch c.Kind {
	case op.ConvWeight:
		return single(d.line(u, "convWeight", n, threads, append(append(at, flag(c.Attr.Accumulate)), geometry...)...))
	case op.ConvInput:
		return single(d.line(u, "convInput", d.strideBlocks(n), threads, append(at, geometry...)...))
	}
	err = p.add(d.line(u, "convForward", d.strideBlocks(n), threads, append(at, geometry...)...))
	return p, cmp.Or(err, d.addBias(&p, c))
}

// pooled is pooling and its gradient.
func pooled(d *Device, c op.Call) (program, error) {
	w := c.Windows()
	kernel, stride, padding, dilation, adaptive, counts := w.Kernel()
	name, at := "pool", []arg{buffer(0), buffer(1)}
	if c.Kind == op.PoolGrad {
		name, at = "poolGrad", []arg{buffer(0), buffer(len(c.In) - 1), buffer(len(c.In))}
	}
	geometry := append([]arg{i64(w.B), i64(w.C)}, three(w.In, w.Out, kernel, stride, padding, dilation)...)
	geometry = append(geometry, flag(adaptive), flag(counts))
	if c.Attr.Reduction == op.ReduceMax && !adaptive && kernel[0]*kernel[1]*kernel[2] < 256 {
		if p, err := d.largest(c, w, geometry); err != nil || len(p.actions) > 0 {
			return p, err
		}
	}
	at = append(append(at, flag(c.Attr.Reduction == op.ReduceMax)), geometry...)
	return single(d.line(unitFor("conv", c.In[0].DType), name, d.strideBlocks(c.Out[0].Shape.Elements()), threads, at...))
}

// largest is pooling by the largest, or its gradient, with loads of several channels; the program is empty
// where they do not divide the channels. Which place was the largest is found again for the gradient, once for each window.
func (d *Device) largest(c op.Call, w op.Windows, geometry []arg) (p program, err error) {
	t := c.In[0].DType
	each := elementsPerLoad(t)
	in, out := w.B*w.In[0]*w.In[1]*w.In[2]*w.C, w.B*w.Out[0]*w.Out[1]*w.Out[2]*w.C
	if w.C%each != 0 || max(in, out) >= 1<<31 {
		return p, nil
	}
	u, blocks := unitFor("conv", t), ceilDiv(out/each, threads)
	if c.Kind == op.Pool {
		return single(d.line(u, "poolLargest", blocks, threads, append([]arg{buffer(0), buffer(1), {}}, geometry...)...))
	}
	p.workspace = out
	err = p.add(d.line(u, "poolLargest", blocks, threads, append([]arg{buffer(0), {}, scratchAt(0)}, geometry...)...))
	size, _, before, _, _, _ := w.Kernel()
	if rows := w.B * ((w.In[1] + before[1] + 1) / 2); halves(w) && rows < 1<<16 {
		across := ceilDiv((w.In[2]+before[2]+1)/2*w.C/each, threads)
		return p, cmp.Or(err, p.add(d.grid(u, fmt.Sprint("poolHalvedGrad", size[2]), [3]int64{across, rows, 1}, [3]int64{threads, 1, 1}, 0, scratchAt(0), buffer(1), buffer(2),
			i64(w.C), i64(w.In[1]), i64(w.In[2]), i64(w.Out[1]), i64(w.Out[2]), i64(before[1]), i64(before[2]))))
	}
	return p, cmp.Or(err, p.add(d.line(u, "poolLargestGrad", ceilDiv(in/each, threads), threads, append([]arg{scratchAt(0), buffer(1), buffer(2)}, geometry...)...)))
}

// halves says that windows are two or three places wide and high, and move by two.
func halves(w op.Windows) bool {
	size, stride, _, apart, _, _ := w.Kernel()
	return w.In[0] == 1 && w.Out[0] == 1 && (size == [3]int64{1, 2, 2} || size == [3]int64{1, 3, 3}) && stride[1] == 2 && stride[2] == 2 && apart[1] == 1 && apart[2] == 1
}

// resampled is resampling along a dimension and its gradient.
func resampled(d *Device, c op.Call) (program, error) {
	a, back := c.Attr, c.Kind == op.ResampleGrad
	t := c.In[0]
	if back {
		t = c.Out[0]
	}
	outer, n, inner := t.Shape.Around(a.Axis, 1)
	return single(d.line(unitFor("conv", c.In[0].DType), "resample", d.strideBlocks(c.Out[0].Shape.Elements()), threads, buffer(0), buffer(1),
		i64(outer), i64(n), i64(a.Length), i64(inner), i64(int64(a.Resampling)), flag(a.AlignCorners), f64(a.Spacing(n)), flag(back)))
}
