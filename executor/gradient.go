package executor

import (
	"fmt"

	"spillway/op"
	"spillway/plan"
)

// OnGradient has f called in every iteration for each trained param when its gradient is
// complete: the sum over all micro-batches, before clipping and before the update. Running statistics have none. The
// tensor may be read and written until f returns. While f is set, each update waits for the queues,
// so iterations are slower; nil takes it off again.
func (r *runner) OnGradient(f func(Tensor) error) { r.onGradient = f }

// showGradients shows the gradients that an update is about to use.
func (r *runner) showGradients(s *plan.Instruction) error {
	if r.onGradient == nil || s.Verb != plan.Update || s.Piece > 0 { // the first piece's update shows all of them
		return nil
	}
	if err := r.Sync(); err != nil {
		return err
	}
	bind, _ := s.Bound(plan.InGrad, 0)
	for _, p := range r.memory.plan.Slabs[s.Slab].Params {
		if p.Frozen() || p.Momentum > 0 {
			continue
		}
		t := op.Type{DType: r.memory.plan.Optimizer.GradTypeOf(p.Type.DType), Shape: p.Type.Shape}
		if err := r.onGradient(r.memory.tensor(p, Gradient, t, bind.Buffer, bind.Offset+t.DType.Bytes(p.Element))); err != nil {
			return fmt.Errorf("looking at the gradient of %s: %w", p.Name, err)
		}
	}
	return nil
}
