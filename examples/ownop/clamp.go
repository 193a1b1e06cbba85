package main

import (
	"spillway/autograd"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/device/cpu/kernel"
	"spillway/device/cuda"
	"spillway/graph"
	"spillway/op"
)

// The kinds of the op and of its gradient, as plans name them.
const (
	Clamp     op.Kind = "clamp"      // y = min(max(x, low), high)
	ClampGrad op.Kind = "clamp_grad" // operands x, dy: dx is dy where low < x < high, else 0
)

func init() {
	bounds := op.Attr{Extra: map[string]float64{"low": -0.5, "high": 0.25}}
	op.Register(op.Op{
		Kind:  Clamp,
		Takes: 1,
		Infer: func(_ op.Attr, in []op.Type) ([]op.Type, error) { return in, nil },
		Reference: func(c op.Call, in, out []op.Array, _ op.Args) {
			for i, x := range in[0].F {
				out[0].F[i] = min(max(x, c.Attr.Extra["low"]), c.Attr.Extra["high"])
			}
		},
		Cases: func(l *op.CaseList) {
			l.Add("3x37", Clamp, bounds, l.X(3, 37))
			l.Add("3x37", ClampGrad, bounds, l.X(3, 37), l.X(3, 37))
		},
	})
	op.Register(op.Op{
		Kind:  ClampGrad,
		Takes: 2,
		Infer: func(_ op.Attr, in []op.Type) ([]op.Type, error) { return in[:1], nil },
		Reference: func(c op.Call, in, out []op.Array, _ op.Args) {
			for i, x := range in[0].F {
				out[0].F[i] = 0
				if x > c.Attr.Extra["low"] && x < c.Attr.Extra["high"] {
					out[0].F[i] = in[1].F[i]
				}
			}
		},
	})
	autograd.Register(Clamp, func(r *autograd.Reverse, n graph.Node, dy []graph.Value) []graph.Value {
		return []graph.Value{r.EmitOne(ClampGrad, n.Attr, n.In[0], dy[0])}
	})
	cuda.Register(Clamp, clampSource, clampLaunch)
	cuda.Register(ClampGrad, clampSource, clampLaunch)
	cpu.Register(Clamp, func(c op.Call, _ int) cpu.Program {
		low, high := float32(c.Attr.Extra["low"]), float32(c.Attr.Extra["high"])
		return cpu.Program{Run: func(_ *kernel.Pool, l *device.Launch) {
			x, y := cpu.F32(l, 0), cpu.F32(l, 1)
			for i := range x {
				y[i] = min(max(x[i], low), high)
			}
		}}
	})
	cpu.Register(ClampGrad, func(c op.Call, _ int) cpu.Program {
		low, high := float32(c.Attr.Extra["low"]), float32(c.Attr.Extra["high"])
		return cpu.Program{Run: func(_ *kernel.Pool, l *device.Launch) {
			x, dy, dx := cpu.F32(l, 0), cpu.F32(l, 1), cpu.F32(l, 2)
			for i := range x {
				dx[i] = 0
				if x[i] > low && x[i] < high {
					dx[i] = dy[i]
				}
			}
		}}
	})
}

// clampSource has both kernels for NVIDIA GPUs. Element is the type of the operands.
const clampSource = `
extern "C" __global__ void clamp(const Element *x, Element *y, i64 n, float low, float high) {
    i64 i = position();
    if (i < n) narrow(fminf(fmaxf(wide(x[i]), low), high), &y[i]);
}
extern "C" __global__ void clamp_grad(const Element *x, const Element *dy, Element *dx, i64 n, float low, float high) {
    i64 i = position();
    if (i < n) narrow(wide(x[i]) > low && wide(x[i]) < high ? wide(dy[i]) : 0.0f, &dx[i]);
}
`

// clampLaunch runs the kernel named like the op, a thread for each element.
func clampLaunch(c op.Call) cuda.Launch {
	n, l := c.Out[0].Shape.Elements(), cuda.Launch{Kernel: string(c.Kind), Threads: 256}
	l.Blocks = (n + l.Threads - 1) / l.Threads
	for i := range len(c.In) + len(c.Out) {
		l.Args = append(l.Args, cuda.Buffer(i))
	}
	l.Args = append(l.Args, cuda.Int(n), cuda.Float(c.Attr.Extra["low"]), cuda.Float(c.Attr.Extra["high"]))
	return l
}
