package sim

import (
	"testing"
	"time"

	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/shape"
)

func matmul(t *testing.T, side int64) op.Call {
	t.Helper()
	square := op.Type{DType: dtype.BF16, Shape: shape.Shape{side, side}}
	c, err := op.Make(op.MatMul, op.Attr{}, square, square)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A measured table decides over the rate of large work, but no call takes less than
// its launch.
func TestTimeReadsTables(t *testing.T) {
	sides := []int64{100, 1000}
	table := machine.Table{Axes: [][]int64{sides, sides, sides}, Rates: make([]float64, 8)}
	for i := range table.Rates {
		table.Rates[i] = 1e12
	}
	r := machine.Device{Compute: machine.Compute{BF16: 8e12}, Launch: 5 * time.Microsecond, Tables: machine.Tables{"bf16": {{Kind: op.MatMul}: table}}}
	if got, want := NewTiming(r, dtype.BF16).Time(matmul(t, 1000)), 2*time.Millisecond; got != want {
		t.Errorf("a product of 2 GFLOP at 1 TFLOP/s takes %v, want %v", got, want)
	}
	if got := NewTiming(r, dtype.BF16).Time(matmul(t, 16)); got != r.Launch {
		t.Errorf("a tiny product takes %v, want its launch %v", got, r.Launch)
	}
	r.Bandwidth = 1e9 // 6 MB of operands
	if got, want := NewTiming(r, dtype.BF16).Time(matmul(t, 1000)), 6*time.Millisecond; got != want {
		t.Errorf("a product of 6 MB at 1 GB/s takes %v, want %v", got, want)
	}
	r.Bandwidth = 0
	r.Tables = nil
	if got, want := NewTiming(r, dtype.BF16).Time(matmul(t, 1000)), 250*time.Microsecond+r.Launch; got != want {
		t.Errorf("without a table it takes %v, want %v", got, want)
	}
}

// Matmuls of f32 in a model of a narrower type have a rate of their own.
func TestTimeOfFullPrecision(t *testing.T) {
	call := matmul(t, 1000)
	for i := range call.In {
		call.In[i].DType = dtype.F32
	}
	r := machine.Device{Compute: machine.Compute{BF16: 8e12, F32: 2e12}, Tables: machine.Tables{"bf16": {{Kind: op.MatMul}: {Axes: [][]int64{{1}, {1}, {1}}, Rates: []float64{1e12}}}}}
	if got, want := NewTiming(r, dtype.BF16).Time(call), time.Millisecond; got != want {
		t.Errorf("2 GFLOP of f32 at 2 TFLOP/s take %v, want %v", got, want)
	}
	call.In[0].DType = dtype.BF16
	if got, want := NewTiming(r, dtype.BF16).Time(call), 2*time.Millisecond; got != want {
		t.Errorf("2 GFLOP of bf16 at 1 TFLOP/s take %v, want %v", got, want)
	}
}
