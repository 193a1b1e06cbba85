package optim

import "testing"

// The fixture is PyTorch's GradScaler, with the same overflows.
func TestLossScaleFollowsGradScaler(t *testing.T) {
	f := readReference(t).LossScale
	s := DefaultLossScale()
	s.Interval = f.Interval
	skipped := int64(0)
	for i, overflow := range f.Overflow {
		if s = s.Next(!overflow); s.Scale != f.Scale[i] {
			t.Fatalf("after iteration %d the scale is %v, GradScaler's %v", i, s.Scale, f.Scale[i])
		}
		if overflow {
			skipped++
		}
	}
	if s.Skipped != skipped || skipped == 0 {
		t.Errorf("%d skipped, want %d", s.Skipped, skipped)
	}
}

func TestLossScaleHasEnds(t *testing.T) {
	s := DefaultLossScale()
	s.Interval = 1
	for range 400 {
		s = s.Next(true)
	}
	if s.Scale != maxScale {
		t.Errorf("the scale grew to %v", s.Scale)
	}
	for range 400 {
		s = s.Next(false)
	}
	if !s.Exhausted() || DefaultLossScale().Exhausted() {
		t.Errorf("a scale of %v is not exhausted", s.Scale)
	}
	for _, bad := range []LossScale{{}, {Scale: 1, Growth: 0.5, Backoff: 0.5, Interval: 1}, {Scale: 1, Growth: 2, Backoff: 2, Interval: 1}, {Scale: 1, Growth: 2, Backoff: 0.5}} {
		if bad.Check() == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}
