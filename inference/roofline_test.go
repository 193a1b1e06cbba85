package inference

import "testing"

// A share is never above all: weights may lie in caches, and memory may have been measured in a busy minute.
func TestSharesOfARoofline(t *testing.T) {
	r := Roofline{TokensPerSecond: 100, Bound: "memory"}
	for rate, want := range map[float64]string{0: "", 63: ", 63% of roofline (memory-bound)", 142: ", faster than the measured rate of memory"} {
		if got := r.Share(rate); got != want {
			t.Errorf("a rate of %v: %q, want %q", rate, got, want)
		}
	}
	if got := (Roofline{TokensPerSecond: 100, Bound: "compute", Assumed: true}).Share(50); got != ", 50% of roofline (compute-bound, assumed rate)" {
		t.Errorf("of an assumed rate: %q", got)
	}
	if r.Under(142) != (Roofline{}) || r.Under(63) != r {
		t.Error("a rate above the roofline has one")
	}
}
