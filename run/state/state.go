// Package state holds the weights and the optimizer states of a run as Go values: a Dict
// is PyTorch's state_dict of a model, Optimizer that of an optimizer.
package state

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

// Dict is the weights of a model by its own names, as numbers.
type Dict map[string]batch.Tensor

// Read gives elements of a param: a Dict is weights.Values.
func (d Dict) Read(param string, first int64, dst []float32) error {
	t, ok := d[param]
	if !ok || first+int64(len(dst)) > int64(len(t.Floats)) {
		return fmt.Errorf("param %s has %d elements, %d from %d on are asked for", param, len(t.Floats), len(dst), first)
	}
	copy(dst, t.Floats[first:])
	return nil
}

// Clone copies all weights.
func (d Dict) Clone() Dict {
	c := make(Dict, len(d))
	for name, t := range d {
		c[name] = batch.Floats(slices.Clone(t.Floats), t.Shape...)
	}
	return c
}

// Collect reads all params.
func Collect(params []spec.Param, from weights.Values) (Dict, error) {
	d := Dict{}
	for _, p := range params {
		t := batch.Floats(make([]float32, p.Type.Shape.Elements()), p.Type.Shape...)
		if err := from.Read(p.Name, 0, t.Floats); err != nil {
			return nil, fmt.Errorf("reading weights: %w", err)
		}
		d[p.Name] = t
	}
	return d, nil
}

// Tied is the dict without further names of params: PyTorch's state_dict has a weight that layers share under the name of each.
func (d Dict) Tied(otherNames map[string][]string) (Dict, error) {
	tied := maps.Clone(d)
	for param, others := range otherNames {
		for _, name := range others {
			t, ok := tied[name]
			if !ok {
				continue
			}
			own, both := tied[param]
			if both && !slices.Equal(own.Floats, t.Floats) {
				return nil, fmt.Errorf("%s and %s have other numbers, and are one param of the model; give the layers params of their own", param, name)
			}
			delete(tied, name)
			tied[param] = t
		}
	}
	return tied, nil
}

// Fits refuses a dict in which params are missing, unknown or of another shape.
func (d Dict) Fits(params []spec.Param) error {
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

// Weights copies all weights of an executor, from master weights where there are some:
// loaded again they are the same bits.
func Weights(e *executor.Executor) (Dict, error) {
	d := Dict{}
	for _, t := range append(e.Weights(), e.States()...) {
		if t.State != "" && t.State != executor.Master {
			continue
		}
		values, err := weights.ReadF32(e, t)
		if err != nil {
			return nil, fmt.Errorf("reading weights: %w", err)
		}
		d[t.Param.Name] = batch.Floats(values, t.Param.Type.Shape...)
	}
	return d, nil
}

// Optimizer is what a training run needs in addition to weights to go on to the bit: how
// far it is, and the optimizer's states.
type Optimizer struct {
	Iterations int64 // done
	Sequences  int64 // trained on
	// States by name and param, "exp_avg.model.norm.weight", as they are stored: those in
	// 8 bits are codes and scales, see op.State.
	States map[string]Packed
}

// Packed is a tensor as it is stored.
type Packed struct {
	Type  op.Type
	Bytes []byte
}

// States copies the optimizer states of an executor, master weights left out.
func States(e *executor.Executor) (map[string]Packed, error) {
	all := map[string]Packed{}
	for name, t := range tensors(e) {
		packed := Packed{t.Type, make([]byte, t.Bytes())}
		if err := e.Read(t, func(offset int64, chunk []byte) error { copy(packed.Bytes[offset:], chunk); return nil }); err != nil {
			return nil, fmt.Errorf("reading optimizer states: %w", err)
		}
		all[name] = packed
	}
	return all, nil
}

// Fits refuses states that are missing, unknown or of another type than an executor's.
func (s Optimizer) Fits(e *executor.Executor) error {
	if s.Iterations < 0 || s.Sequences < 0 {
		return fmt.Errorf("%d iterations over %d sequences; neither can be negative", s.Iterations, s.Sequences)
	}
	var wrong []string
	states := tensors(e)
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

// Load writes states that fit to an executor. After an error its states are undefined.
func (s Optimizer) Load(e *executor.Executor) error {
	for name, t := range tensors(e) {
		from := s.States[name].Bytes
		if err := e.Write(t, func(offset int64, chunk []byte) error { copy(chunk, from[offset:]); return nil }); err != nil {
			return err
		}
	}
	return nil
}

// tensors are the optimizer states of an executor, by the names they have outside.
func tensors(e *executor.Executor) map[string]executor.Tensor {
	of := map[string]executor.Tensor{}
	for _, t := range e.States() {
		if t.State != executor.Master {
			of[t.State+"."+t.Param.Name] = t
		}
	}
	return of
}
