package optim

import "fmt"

// LossScale is what the loss is multiplied by so that small gradients are not lost in
// fp16, and taken off again before the update. It finds its size by trying, as
// PyTorch's GradScaler does: an iteration whose gradients overflow updates nothing and
// makes the scale smaller; many sound ones in a row make it larger.
type LossScale struct {
	Scale         float64 `json:"scale"`
	Growth        float64 `json:"growth"`         // factor after Interval sound iterations
	Backoff       float64 `json:"backoff"`        // factor after an overflow
	Interval      int64   `json:"interval"`       // sound iterations in a row
	GrowthTracker int64   `json:"growth_tracker"` // sound iterations in a row so far
	Skipped       int64   `json:"skipped"`        // iterations that updated nothing, in all
}

// DefaultLossScale is where GradScaler begins.
func DefaultLossScale() LossScale {
	return LossScale{Scale: 65536, Growth: 2, Backoff: 0.5, Interval: 2000}
}

// minScale is so small that gradients that still overflow do not because of it.
const minScale = 1.0 / (1 << 16)

// Check refuses what could not find a size.
func (s LossScale) Check() error {
	if !(s.Scale > 0) || !(s.Growth >= 1) || !(s.Backoff > 0) || s.Backoff > 1 || s.Interval < 1 {
		return fmt.Errorf("a loss scale of %v that grows by %v after %d iterations and falls by %v; want a positive scale, growth of 1 or more, an interval of 1 or more, and backoff above 0 and up to 1",
			s.Scale, s.Growth, s.Interval, s.Backoff)
	}
	return nil
}

// Next is the scale of the next iteration, after one that was sound or overflowed.
func (s LossScale) Next(sound bool) LossScale {
	if !sound {
		s.Scale, s.GrowthTracker, s.Skipped = s.Scale*s.Backoff, 0, s.Skipped+1
		return s
	}
	if s.GrowthTracker++; s.GrowthTracker == s.Interval {
		if grown := s.Scale * s.Growth; float32(grown) <= maxScale {
			s.Scale = grown
		}
		s.GrowthTracker = 0
	}
	return s
}

// maxScale is the largest power of two of a float32, as which it is multiplied.
const maxScale = 0x1p127

// Exhausted says whether the scale is so small that overflows have another cause.
func (s LossScale) Exhausted() bool { return s.Scale < minScale }
