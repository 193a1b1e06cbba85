package spillway

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway/executor"
	"spillway/op"
)

// OptimizerState is what a training needs besides weights to go on to the bit: how far it
// is, and what the optimizer keeps.
type OptimizerState struct {
	Iterations int64 // done
	Samples    int64 // trained on
	// States by name and param, "exp_avg.model.norm.weight", as they are stored: those in
	// 8 bits are codes and scales, see op.State.
	States map[string]PackedTensor
}

// PackedTensor is a tensor as it is stored.
type PackedTensor struct {
	Type  op.Type
	Bytes []byte
}

// OptimizerState copies what the optimizer keeps besides masters, which are the weights
// of StateDict. Of large models checkpoints keep less in memory.
func (w *Wrapped) OptimizerState() (OptimizerState, error) {
	states, err := w.optimizerStates()
	if err != nil {
		return OptimizerState{}, err
	}
	s := OptimizerState{Iterations: w.trainer.Iterations(), Samples: w.feed.row, States: map[string]PackedTensor{}}
	for name, t := range states {
		packed := PackedTensor{t.Type, make([]byte, t.Bytes())}
		if err := w.state.e.Read(t, func(offset int64, chunk []byte) error { copy(packed.Bytes[offset:], chunk); return nil }); err != nil {
			return s, fmt.Errorf("reading the optimizer's state of %s: %w", w.model.Name, err)
		}
		s.States[name] = packed
	}
	return s, nil
}

// LoadOptimizerState goes on from a state that OptimizerState gave, of the same model and
// optimizer. It must have every state in the type that is kept here, and no others.
func (w *Wrapped) LoadOptimizerState(s OptimizerState) error {
	states, err := w.optimizerStates()
	if err != nil {
		return err
	}
	if err := s.fits(states); err != nil {
		return fmt.Errorf("loading the optimizer's state of %s: %w", w.model.Name, err)
	}
	for name, t := range states {
		from := s.States[name].Bytes
		if err := w.state.e.Write(t, func(offset int64, chunk []byte) error { copy(chunk, from[offset:]); return nil }); err != nil {
			w.broken = err
			return fmt.Errorf("loading the optimizer's state of %s: %w", w.model.Name, err)
		}
	}
	w.feed.row = s.Samples
	return w.trainer.SetIterations(s.Iterations)
}

// optimizerStates are where the optimizer's states are, by the names they have outside.
func (w *Wrapped) optimizerStates() (map[string]executor.Tensor, error) {
	if err := w.hold(); err != nil {
		return nil, err
	}
	if w.state == nil {
		return nil, fmt.Errorf("%s has no optimizer yet: train a step, or give Config.Samples and Config.Seq", w.model.Name)
	}
	of := map[string]executor.Tensor{}
	for _, t := range w.state.e.States() {
		if t.State != executor.Master {
			of[t.State+"."+t.Param.Name] = t
		}
	}
	return of, nil
}

// fits names the states that are missing, unknown or of another type.
func (s OptimizerState) fits(states map[string]executor.Tensor) error {
	if s.Iterations < 0 || s.Samples < 0 {
		return fmt.Errorf("%d iterations over %d samples; neither can be negative", s.Iterations, s.Samples)
	}
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(states)) {
		got, ok := s.States[name]
		if want := states[name].Type; !ok || !got.Type.Equal(want) || int64(len(got.Bytes)) != want.Bytes() {
			wrong = append(wrong, fmt.Sprintf("%s is %v in %d bytes, kept is %v in %d", name, got.Type, len(got.Bytes), want, want.Bytes()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.States)) {
		if _, ok := states[name]; !ok {
			wrong = append(wrong, name+" is not kept here")
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s; use the same model and optimizer", strings.Join(wrong, "; "))
	}
	return nil
}
