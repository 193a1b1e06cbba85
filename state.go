package spillway

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway/executor"
	"spillway/hf"
	"spillway/spec"
	"spillway/weights"
)

// StateDict is the weights of a model by its own names, as numbers.
type StateDict map[string]Tensor

// Read gives elements of a param: a StateDict is a weights.Source.
func (d StateDict) Read(param string, first int64, dst []float32) error {
	t, ok := d[param]
	if !ok || first+int64(len(dst)) > int64(len(t.Floats)) {
		return fmt.Errorf("param %s has %d elements, %d from %d on are asked for", param, len(t.Floats), len(dst), first)
	}
	copy(dst, t.Floats[first:])
	return nil
}

// StateDict copies all weights, at full precision where the plan keeps masters: loaded
// again they are the same bits. Of large models Save keeps less in memory.
func (w *Wrapped) StateDict() (StateDict, error) {
	if err := w.hold(); err != nil {
		return nil, err
	}
	if w.state == nil {
		return collect(w.params, w.source)
	}
	d := StateDict{}
	for _, t := range append(w.state.e.Weights(), w.state.e.States()...) {
		if t.State != "" && t.State != executor.Master {
			continue
		}
		values, err := weights.ReadF32(w.state.e, t)
		if err != nil {
			return nil, fmt.Errorf("reading the weights of %s: %w", w.model.Name, err)
		}
		d[t.Param.Name] = Floats(values, t.Param.Type.Shape...)
	}
	return d, nil
}

// hold sees to it that the state, if there is any, is sound and where it can be read
// and written.
func (w *Wrapped) hold() error {
	if err := w.sound(); err != nil || w.state == nil {
		return err
	}
	return w.wake()
}

// collect reads all params of a source.
func collect(params []spec.Param, from weights.Values) (StateDict, error) {
	d := StateDict{}
	for _, p := range params {
		t := Floats(make([]float32, p.Type.Shape.Elements()), p.Type.Shape...)
		if err := from.Read(p.Name, 0, t.Floats); err != nil {
			return nil, fmt.Errorf("reading weights: %w", err)
		}
		d[p.Name] = t
	}
	return d, nil
}

// LoadStateDict replaces all weights. What the optimizer keeps stays. The dict must
// have every param of the model in its shape, and no others.
func (w *Wrapped) LoadStateDict(d StateDict) error {
	if err := fits(w.params, d); err != nil {
		return fmt.Errorf("loading weights into %s: %w", w.model.Name, err)
	}
	return w.load(d.clone())
}

// Load replaces all weights by those of a folder that Save has written, or any other
// with the model's params.
func (w *Wrapped) Load(dir string) (err error) {
	folder, err := hf.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	from, err := weights.FromSource(folder, w.model.Info, w.params)
	if err != nil {
		return fmt.Errorf("loading %s: %w", dir, err)
	}
	if w.state == nil { // the folder is closed before the weights are asked for again
		if from, err = collect(w.params, from); err != nil {
			return err
		}
	}
	return w.load(from)
}

// load takes weights over: to the state, or as what training starts from.
func (w *Wrapped) load(from weights.Values) error {
	if err := w.hold(); err != nil {
		return err
	}
	if w.state == nil {
		w.source, w.loaded = from, true
		return w.release(w.view) // it may read the model's own files
	}
	if w.view != nil {
		w.view.stale = true
	}
	return weights.Replace(w.state.e, from)
}

func (d StateDict) clone() StateDict {
	c := make(StateDict, len(d))
	for name, t := range d {
		c[name] = Floats(slices.Clone(t.Floats), t.Shape...)
	}
	return c
}

// fits names the params that are missing, unknown or of another shape.
func fits(params []spec.Param, d StateDict) error {
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

// Save writes the weights as a model folder, under the model's own names: what Load
// reads, and Open where the model's architecture is a known one.
func (w *Wrapped) Save(dir string) error {
	files, err := w.model.files(w.c.Precision)
	if err == nil {
		err = w.hold()
	}
	if err != nil {
		return err
	}
	if files.Tensors = weights.Outputs(w.params, w.source); w.state != nil {
		files.Tensors = weights.ExecutorOutputs(w.state.e)
	}
	if err := files.Write(dir); err != nil {
		return fmt.Errorf("saving %s: %w", w.model.Name, err)
	}
	return nil
}
