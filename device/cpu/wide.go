package cpu

import (
	"slices"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
)

// widened computes a call on 16-bit operands with the f32 kernel: operands are converted into
// the workspace, outputs are rounded from there once. It costs a copy of everything but the
// second operand of a matmul, the weight; kernels where that matters register as native.
func widened(c op.Call, workers int) (Program, string) {
	attr, in := c.Attr, slices.Clone(c.In)
	if narrow(attr.To) { // a cast to a 16-bit type becomes one to f32; rounding the output finishes it
		attr.To = dtype.F32
	}
	for i, t := range in {
		if narrow(t.DType) {
			in[i].DType = dtype.F32
		}
	}
	wide, err := op.Make(c.Kind, attr, in...)
	if err != nil {
		return Program{}, err.Error()
	}
	if c.Kind == op.MatMul {
		wide.In[1].DType = c.In[1].DType
	}
	inner, reason := prepare(wide, workers)
	if reason != "" {
		return Program{}, reason
	}
	w := &widener{inner: inner, launch: device.Launch{Buffers: make([]device.Buffer, len(c.In)+len(c.Out))}}
	at := (inner.Workspace + alignment - 1) / alignment * alignment
	for i, t := range c.In {
		at = w.layOut(i, t, wide.In[i], at, true, false)
	}
	for i, t := range c.Out {
		adds := c.Attr.Accumulate && slices.Contains(c.Kind.Accumulates(c.Attr), i)
		at = w.layOut(len(c.In)+i, t, wide.Out[i], at, adds, true)
	}
	return Program{Workspace: at, Run: w.run}, ""
}

// widener runs a program in f32 on converted operands.
type widener struct {
	inner       Program
	launch      device.Launch
	conversions []*conversion
}

// conversion is a buffer whose f32 form is in the workspace.
type conversion struct {
	buffer   int
	offset   int64 // in the workspace
	bytes    int64 // of the f32 form
	from, to bool  // convert before, after
	widen    *rows
	narrow   *rows

	wide  []float32
	small []uint16
}

// layOut places the f32 form of a buffer at an offset of the workspace, if it has to be
// converted, and returns the offset behind it.
func (w *widener) layOut(buffer int, t, wide op.Type, at int64, from, to bool) int64 {
	if t.DType == wide.DType {
		return at
	}
	c := &conversion{buffer: buffer, offset: at, bytes: wide.Bytes(), from: from, to: to}
	w.conversions = append(w.conversions, c)
	n := t.Shape.Elements()
	grow, shrink := widening[t.DType], narrowing[t.DType]
	c.widen = rowsOf(n, 1, func(_, i, j int) { grow(c.wide[i:j], c.small[i:j]) })
	c.narrow = rowsOf(n, 1, func(_, i, j int) { shrink(c.small[i:j], c.wide[i:j]) })
	return at + (c.bytes+alignment-1)/alignment*alignment
}

func (w *widener) run(p *kernel.Pool, l *device.Launch) {
	copy(w.launch.Buffers, l.Buffers)
	w.launch.Args = l.Args
	w.launch.Workspace = l.Workspace
	w.launch.Workspace.Bytes = w.inner.Workspace
	for _, c := range w.conversions {
		b := device.Buffer{Memory: l.Workspace.Memory, Offset: l.Workspace.Offset + c.offset, Bytes: c.bytes}
		c.wide, c.small = view[float32](b), view[uint16](l.Buffers[c.buffer])
		w.launch.Buffers[c.buffer] = b
		if c.from {
			c.widen.start(p)
		}
	}
	w.inner.Run(p, &w.launch)
	for _, c := range w.conversions {
		if c.to {
			c.narrow.start(p)
		}
	}
}
