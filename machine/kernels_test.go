package machine

import (
	"math"
	"testing"
	"time"

	"spillway/dtype"
	"spillway/op"
)

// What kernels of convolutions, norms and pools reach on an H200 that is described is what they took on one: medians of the calls of
// a training iteration of ResNet-50, 128 images in bf16.
func TestEfficienciesAreThoseMeasured(t *testing.T) {
	m, err := Parse("h200")
	if err != nil {
		t.Fatal(err)
	}
	d := m.ForPlans(true).Devices[0]
	of := func(shape ...int64) op.Type { return op.Type{DType: dtype.BF16, Shape: shape} }
	padded := op.Attr{Spatial: op.Spatial{Padding: []int64{1, 1}}}
	norm, sum := op.Attr{WholeBatch: true, Bias: true, Eps: 1e-5, Func: op.ReLU}, op.Attr{WholeBatch: true, Bias: true, Eps: 1e-5, Func: op.ReLU, Plus: true}
	for _, c := range []struct {
		kind op.Kind
		attr op.Attr
		in   []op.Type
		took time.Duration
	}{
		{op.Conv, padded, []op.Type{of(128, 56, 56, 64), of(64, 64, 3, 3)}, 72900},
		{op.Conv, padded, []op.Type{of(128, 14, 14, 256), of(256, 256, 3, 3)}, 50600},
		{op.Conv, op.Attr{}, []op.Type{of(128, 56, 56, 64), of(256, 64, 1, 1)}, 72400},
		{op.Conv, op.Attr{}, []op.Type{of(128, 14, 14, 1024), of(256, 1024, 1, 1)}, 24000},
		{op.GroupNorm, norm, []op.Type{of(128, 112, 112, 64), of(64), of(64)}, 168900},
		{op.GroupNorm, norm, []op.Type{of(128, 14, 14, 256), of(256), of(256)}, 20700},
		{op.GroupNorm, sum, []op.Type{of(128, 28, 28, 512), of(512), of(512), of(128, 28, 28, 512)}, 116100},
		{op.Unary, op.Attr{Func: op.ReLU}, []op.Type{of(128, 56, 56, 256)}, 100100},
		{op.Add, op.Attr{}, []op.Type{of(128, 28, 28, 512), of(128, 28, 28, 512)}, 73700},
	} {
		call, err := op.Make(c.kind, c.attr, c.in...)
		if err != nil {
			t.Fatal(err)
		}
		e, cost := d.Efficiency(call), call.Cost()
		rate := d.Compute.F32
		if cost.Matrix {
			rate = d.Compute.BF16
		}
		seconds := max(e.Work*cost.Flops/(e.Compute*float64(rate)), float64(cost.Bytes)/(e.Memory*float64(d.Bandwidth)))
		got := d.Kernel + e.Start + time.Duration(seconds*1e9)
		if off := math.Abs(float64(got)/float64(c.took) - 1); off > 0.25 {
			t.Errorf("%v: %v, and %v was measured", call, got, c.took)
		}
	}
}
