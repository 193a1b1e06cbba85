package spillway

import "spillway/run"

// GradientHook is called with the gradient of a trained param when it is complete; what it
// returns takes the gradient's place, nil leaves it as it is.
type GradientHook = run.GradientHook

// OnGradient has f called in every Step for each trained param, before the update, also where
// weights stream and gradients are updated on the CPU; nil takes it off again. Steps are slower
// meanwhile. See run.Run.OnGradient for what cannot be changed.
func (w *Wrapped) OnGradient(f GradientHook) error {
	w.hook = f
	if w.training == nil {
		return nil
	}
	return w.training.OnGradient(f)
}
