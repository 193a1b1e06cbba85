package sim

import (
	"testing"
	"time"

	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/quant"
	"spillway/shape"
)

// Matmuls of few rows with packed weights are forecast as they were measured on an H200, in graphs: the one with
// gate and up of the Llama-3-8B shape, and lm_head.
func TestPackedMatmulsAreThoseMeasured(t *testing.T) {
	m, err := machine.Parse("h200,host:100GiB")
	if err != nil {
		t.Fatal(err)
	}
	x := NewTiming(m.ForPlans(true).Devices[0], dtype.BF16)
	half := func(dims ...int) op.Type { return op.Type{DType: dtype.BF16, Shape: shape.Of(dims...)} }
	for _, c := range []struct {
		format dtype.Type
		rows   int
		want   time.Duration // measured
	}{{quant.Q4_K, 1, 18480}, {quant.Q4_0, 1, 18200}, {quant.NF4, 1, 28450}, {quant.RowF8, 1, 33290}, {quant.RowI8, 1, 33100}, {quant.Q8_0, 1, 31020}} {
		w := op.Type{DType: c.format, Shape: shape.Of(14336, 4096)}
		call, err := op.Make(op.NormGated, op.Attr{Eps: 1e-5, Func: op.SiLU}, half(1, c.rows, 4096), half(4096), w, w)
		if err != nil {
			t.Fatal(err)
		}
		if got := x.Time(call); got < c.want*85/100 || got > c.want*115/100 {
			t.Errorf("gate and up in %v, %d rows: forecast %v, measured %v", c.format, c.rows, got, c.want)
		}
	}
	head, err := op.Make(op.QuantizedMatmul, op.Attr{}, half(1, 1, 4096), op.Type{DType: quant.Q6_K, Shape: shape.Of(128256, 4096)})
	if err != nil {
		t.Fatal(err)
	}
	if got := x.Time(head); got < 95*time.Microsecond || got > 120*time.Microsecond {
		t.Errorf("lm_head in q6_k: forecast %v, measured 108 µs", got)
	}
}
