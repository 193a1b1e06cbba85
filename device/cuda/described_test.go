package cuda

import (
	"testing"

	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
)

// A GPU that is only described is planned with the fused ops that one of its kind has kernels for: for all cases of ops, and for
// shapes of real models, machine answers as the device does.
func TestDescribedGPUsFuseAsThisOne(t *testing.T) {
	m, err := machine.Parse("h200")
	if err != nil {
		t.Fatal(err)
	}
	d := openFake(t, newFake(), Options{})
	seen, differ := map[op.Kind]int{}, 0
	check := func(name string, c op.Call) {
		if !c.Kind.Fused() || c.Kind == op.Sample {
			return
		}
		seen[c.Kind]++
		_, err := d.Kernel(c)
		if got := m.Devices[0].Fuses(c); got != (err == nil) {
			if differ++; differ < 20 {
				t.Errorf("%s: %v is described as fused: %v; the device says %v", name, c, got, err)
			}
		}
	}
	for _, of := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
		for _, c := range op.Cases(of) {
			check(c.Name, c.Call)
		}
	}
	for kind, least := range map[op.Kind]int{op.NormHeads: 20, op.NormGated: 20, op.AttendCache: 20, op.QuantizedPlus: 100, op.JoinedAttention: 9, op.JoinedAttentionGrad: 9, op.LinearPlus: 9, op.LayerNormGradPlus: 20, op.UnaryGradSums: 20} {
		if seen[kind] < least {
			t.Errorf("%d calls of %s, want %d at least", seen[kind], kind, least)
		}
	}
}
