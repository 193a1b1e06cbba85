package run

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway/executor"
	"spillway/op"
	"spillway/run/batch"
	"spillway/spec"
	"spillway/weights"
)

// StateDict is the weights of a model by its own names, as numbers.
type StateDict map[string]batch.Tensor

// Read gives elements of a param: a StateDict is weights.Values.
func (d StateDict) Read(param string, first int64, dst []float32) error {
	t, ok := d[param]
	if !ok || first+int64(len(dst)) > int64(len(t.Floats)) {
		return fmt.Errorf("param %s has %d elements, %d from %d on are asked for", param, len(t.Floats), len(dst), first)
	}
	copy(dst, t.Floats[first:])
	return nil
}

// Clone copies all weights.
func (d StateDict) Clone() StateDict {
	c := make(StateDict, len(d))
	for name, t := range d {
		c[name] = batch.Floats(slices.Clone(t.Floats), t.Shape...)
	}
	return c
}

// Collect reads all params.
func Collect(params []spec.Param, from weights.Values) (StateDict, error) {
	d := StateDict{}
	for _, p := range params {
		t := batch.Floats(make([]float32, p.Type.Shape.Elements()), p.Type.Shape...)
		if err := from.Read(p.Name, 0, t.Floats); err != nil {
			return nil, fmt.Errorf("reading weights: %w", err)
		}
		d[p.Name] = t
	}
	return d, nil
}

// Fits refuses a dict in which params are missing, unknown or of another shape.
func (d StateDict) Fits(params []spec.Param) error {
	var missing, other []string
	left := maps.Clone(d)
	for _, p := range params {
		t, ok := left[p.Name]
		delete(left, p.Name)
		switch {
		case !ok:
			missing = append(missing, p.Name)
		case !t.Shape.Equal(p.Type.Shape) || int64(len(t.Floats)) != p.Type.Shape.Elements():
			other = append(other, fmt.Sprintf("%s is %v with %d numbers, the model has %v", p.Name, t.Shape, len(t.Floats), p.Type.Shape))
		}
	}
	var errs []string
	if len(missing) > 0 {
		errs = append(errs, "missing are "+strings.Join(missing, ", "))
	}
	if len(left) > 0 {
		errs = append(errs, "unknown are "+strings.Join(slices.Sorted(maps.Keys(left)), ", "))
	}
	if errs = append(errs, other...); len(errs) > 0 {
		return errors.New(strings.Join(errs, "; "))
	}
	return nil
}

// StateDict copies all weights of a running run, from master weights where there are
// some: loaded again they are the same bits.
func (r *Run) StateDict() (StateDict, error) {
	d := StateDict{}
	for _, t := range append(r.executor.Weights(), r.executor.States()...) {
		if t.State != "" && t.State != executor.Master {
			continue
		}
		values, err := weights.ReadF32(r.executor, t)
		if err != nil {
			return nil, fmt.Errorf("reading the weights of %s: %w", r.Model.Name, err)
		}
		d[t.Param.Name] = batch.Floats(values, t.Param.Type.Shape...)
	}
	return d, nil
}

// CopyWeights gives a running run the weights of another run of the same model, which is
// running or parked.
func (r *Run) CopyWeights(from *Run) error {
	if from.parked != nil {
		return from.parked.Weights(r.executor)
	}
	return weights.Copy(r.executor, from.executor)
}

// OptimizerState is what a training run needs in addition to weights to go on to the bit:
// how far it is, and the optimizer's states.
type OptimizerState struct {
	Iterations int64 // done
	Sequences  int64 // trained on
	// States by name and param, "exp_avg.model.norm.weight", as they are stored: those in
	// 8 bits are codes and scales, see op.State.
	States map[string]PackedTensor
}

// PackedTensor is a tensor as it is stored.
type PackedTensor struct {
	Type  op.Type
	Bytes []byte
}

// OptimizerStates copies the optimizer's states, master weights left out, by name and
// param.
func (r *Run) OptimizerStates() (map[string]PackedTensor, error) {
	all := map[string]PackedTensor{}
	for name, t := range r.states() {
		packed := PackedTensor{t.Type, make([]byte, t.Bytes())}
		if err := r.executor.Read(t, func(offset int64, chunk []byte) error { copy(packed.Bytes[offset:], chunk); return nil }); err != nil {
			return nil, fmt.Errorf("reading the optimizer states of %s: %w", r.Model.Name, err)
		}
		all[name] = packed
	}
	return all, nil
}

// Fits refuses states that are missing, unknown or of another type than those of a run.
func (s OptimizerState) Fits(r *Run) error {
	if s.Iterations < 0 || s.Sequences < 0 {
		return fmt.Errorf("%d iterations over %d sequences; neither can be negative", s.Iterations, s.Sequences)
	}
	var wrong []string
	states := r.states()
	for _, name := range slices.Sorted(maps.Keys(states)) {
		got, ok := s.States[name]
		if want := states[name].Type; !ok || !got.Type.Equal(want) || int64(len(got.Bytes)) != want.Bytes() {
			wrong = append(wrong, fmt.Sprintf("%s is %v in %d bytes, the run has %v in %d", name, got.Type, len(got.Bytes), want, want.Bytes()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.States)) {
		if _, ok := states[name]; !ok {
			wrong = append(wrong, "the run has no "+name)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s; use the same model and optimizer", strings.Join(wrong, "; "))
	}
	return nil
}

// LoadOptimizerStates replaces the optimizer's states. After an error they are undefined.
func (r *Run) LoadOptimizerStates(s map[string]PackedTensor) error {
	for name, t := range r.states() {
		from := s[name].Bytes
		if err := r.executor.Write(t, func(offset int64, chunk []byte) error { copy(chunk, from[offset:]); return nil }); err != nil {
			return err
		}
	}
	return nil
}

// states are the optimizer's, by the names they have outside.
func (r *Run) states() map[string]executor.Tensor {
	of := map[string]executor.Tensor{}
	for _, t := range r.executor.States() {
		if t.State != executor.Master {
			of[t.State+"."+t.Param.Name] = t
		}
	}
	return of
}
