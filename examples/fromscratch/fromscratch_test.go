package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The tests compare this program with what PyTorch recorded for the same model and batch.
const reference = "../../testdata/reference/llama"

// logitBound and gradBound are relative to the largest magnitude of a tensor.
const logitBound, gradBound, lossBound = 1e-5, 1e-5, 1e-4

// trained runs iterations in exactly the memory the plan needs.
func trained(t *testing.T, strategy func(int) plan, iterations int) (*device, []float64) {
	t.Helper()
	d, h, err := openModel(reference)
	if err != nil {
		t.Fatal(err)
	}
	p := strategy(d.L + 1)
	dev := newDevice(d, h, memoryNeeded(t, d, strategy))
	var losses []float64
	for range iterations {
		loss, err := dev.iterate(p)
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, loss)
	}
	return dev, losses
}

// expected reads a tensor that PyTorch recorded.
func expected(t *testing.T, name string) []float32 {
	t.Helper()
	file, err := openSafetensors(filepath.Join(reference, "expect.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := values[float32](file, name, "F32")
	if err != nil {
		t.Fatal(err)
	}
	return want
}

func TestLogits(t *testing.T) {
	d, h, err := openModel(reference)
	if err != nil {
		t.Fatal(err)
	}
	x, n := make([]float32, d.B*d.T*d.C), d.B*d.T
	embed(x, h.weights[0], h.ids, d.C)
	for b := 1; b <= d.L; b++ {
		out := make([]float32, len(x))
		d.layerForward(h.weights[b], x, make([]float32, d.size(buffer{saved, b})), out)
		x = out
	}
	normed, logits := make([]float32, len(x)), make([]float32, n*d.V)
	rmsnorm(normed, x, h.weights[d.L+1][:d.C], d.Eps)
	linear(logits, normed, h.weights[d.L+1][d.C:], d.C, d.V)
	if off := difference(logits, expected(t, "logits")); off > logitBound {
		t.Errorf("logits differ by %.2g of the largest, want at most %g", off, logitBound)
	}
}

func TestGradients(t *testing.T) {
	dev, _ := trained(t, streamed, 1)
	for b := range dev.L + 2 {
		slab := dev.host.grads[b]
		for _, p := range dev.params(b) {
			if off := difference(slab[:p.size], expected(t, "grad."+p.name)); off > gradBound {
				t.Errorf("gradient of %s differs by %.2g of the largest, want at most %g", p.name, off, gradBound)
			}
			slab = slab[p.size:]
		}
	}
}

func TestLosses(t *testing.T) {
	var want struct {
		AdamW struct {
			Losses     []float64
			WeightNorm float64 `json:"final_weight_norm"`
		}
	}
	text, err := os.ReadFile(filepath.Join(reference, "expect.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	dev, losses := trained(t, streamed, len(want.AdamW.Losses))
	if len(losses) != 10 {
		t.Fatalf("the fixture records %d losses, want 10", len(losses))
	}
	for i, loss := range losses {
		if off := math.Abs(loss/want.AdamW.Losses[i] - 1); !(off <= lossBound) {
			t.Errorf("loss of iteration %d is %.7f, PyTorch's is %.7f", i, loss, want.AdamW.Losses[i])
		}
	}
	sum := 0.0
	for _, v := range slices.Concat(dev.host.weights...) {
		sum += float64(v) * float64(v)
	}
	if norm := math.Sqrt(sum); math.Abs(norm/want.AdamW.WeightNorm-1) > 1e-6 {
		t.Errorf("the weights end with norm %.7f, PyTorch's with %.7f", norm, want.AdamW.WeightNorm)
	}
}

// TestPlansAgree shows that placement changes memory and not one bit of the numbers.
func TestPlansAgree(t *testing.T) {
	a, lossesA := trained(t, standard, 3)
	b, lossesB := trained(t, streamed, 3)
	if !slices.Equal(lossesA, lossesB) {
		t.Errorf("losses differ between plans: %v and %v", lossesA, lossesB)
	}
	if !slices.Equal(slices.Concat(a.host.weights...), slices.Concat(b.host.weights...)) {
		t.Error("weights differ between plans")
	}
	if a.peak != a.limit || b.peak != b.limit {
		t.Errorf("peaks %d and %d, forecast %d and %d", a.peak, b.peak, a.limit, b.limit)
	}
	if b.peak >= a.peak {
		t.Errorf("streamed needs %d elements, standard only %d", b.peak, a.peak)
	}
}

// TestMemoryOfOneMoreLayer shows the point of the program: under the streamed plan a
// further layer takes the memory of its input, under the standard plan that of everything.
func TestMemoryOfOneMoreLayer(t *testing.T) {
	d, _, err := openModel(reference)
	if err != nil {
		t.Fatal(err)
	}
	everything := 0
	for _, k := range []kind{weight, grad, saved, input, inputGrad} {
		everything += d.size(buffer{k, 1})
	}
	for name, c := range map[string]struct {
		strategy func(int) plan
		want     int
	}{"standard": {standard, everything}, "streamed": {streamed, d.size(buffer{input, 1})}} {
		deeper := d
		deeper.L++
		if got := memoryNeeded(t, deeper, c.strategy) - memoryNeeded(t, d, c.strategy); got != c.want {
			t.Errorf("%s: a further layer costs %d elements, want %d", name, got, c.want)
		}
	}
}

// memoryNeeded returns the memory that a strategy's plan needs.
func memoryNeeded(t *testing.T, d dims, strategy func(int) plan) int {
	t.Helper()
	dev := newDevice(d, nil, 0)
	if _, err := dev.iterate(strategy(d.L + 1)); err != nil {
		t.Fatal(err)
	}
	return dev.peak
}

func TestWrongPlansFail(t *testing.T) {
	d, h, err := openModel(reference)
	if err != nil {
		t.Fatal(err)
	}
	good := streamed(d.L + 1)
	for name, c := range map[string]struct {
		plan  plan
		limit int
	}{
		"one element too little":  {good, memoryNeeded(t, d, streamed) - 1},
		"weights that never come": {good[1:], 0},
		"weights that come twice": {append(plan{good[0]}, good...), 0},
		"a buffer left behind":    {good[:len(good)-1], 0},
	} {
		if _, err := newDevice(d, h, c.limit).iterate(c.plan); err == nil {
			t.Errorf("%s: the device carried out the plan without an error", name)
		}
	}
}

// difference is the largest difference as a share of the largest magnitude of want,
// and infinite if lengths differ or there is a NaN.
func difference(got, want []float32) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	off, top := 0.0, 0.0
	for i, w := range want {
		gap := math.Abs(float64(got[i]) - float64(w))
		if gap != gap {
			return math.Inf(1)
		}
		off, top = max(off, gap), max(top, math.Abs(float64(w)))
	}
	return off / top
}
