package strategy

import "testing"

// Of plans that take equally long the one that does fewer kinds of things is taken, then the one that does fewer things.
func TestFewerKindsAreSimpler(t *testing.T) {
	inOrder := []Mix{{}, {Recompute: 2}, {Recompute: 14}, {Recompute: 7, OffloadedActivations: 2}, {Parallelism: ZeRO2, Recompute: 14, OffloadedActivations: 2}}
	for i, m := range inOrder {
		for j, n := range inOrder {
			if got := m.Simpler(n); got != max(-1, min(1, i-j)) {
				t.Errorf("%+v next to %+v: %d", m, n, got)
			}
		}
	}
}
