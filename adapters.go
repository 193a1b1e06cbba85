package spillway

import (
	"fmt"

	"spillway/dtype"
	"spillway/executor"
	"spillway/hf"
	"spillway/lora"
	"spillway/plan"
	"spillway/quant"
	"spillway/quant/stored"
	"spillway/shape"
	"spillway/weights"
)

// Weights is where the job's params come from: the model, and for what LoRA trains the
// adapter to begin from, or fresh ones.
func (j *Job) Weights() (weights.Values, error) {
	trained := j.trained()
	from, err := j.Model.weights(j.Spec.Params, func(param string) bool { _, ok := trained[param]; return ok })
	if err != nil || j.Options.Adapter == nil {
		return from, err
	}
	if err := j.fits(j.Options.Adapter); err != nil {
		return nil, err
	}
	return weights.Join(j.Options.Adapter.Has, j.Options.Adapter, from), nil
}

// quantized is the format the frozen weights of QLoRA rest in where none is given: the
// folder's own, or NF4.
func (m *Model) quantized() dtype.Type {
	if m.Folder != nil {
		list, _ := stored.Collect(m.Folder.Tensors()) // what is wrong with them is said when they are read
		for _, w := range list {
			if w.Type.Block() {
				return w.Type
			}
		}
	}
	return quant.NF4
}

// trained is what adapters train, by name; none where all weights are trained.
func (j *Job) trained() map[string]shape.Shape {
	all := map[string]shape.Shape{}
	for _, p := range j.Spec.Params {
		if j.Options.adapters() && !p.Frozen {
			all[p.Name] = p.Type.Shape
		}
	}
	return all
}

func (j *Job) fits(a *lora.Adapter) error {
	if !j.Options.adapters() {
		return fmt.Errorf("adapter %s is for a job with adapters; the task is %s", a.Name, j.Options.Task)
	}
	return a.Fits(j.trained())
}

// adapterConfig is the config of a folder with the job's adapters. The model is known by
// its folder, or by the name of its shape.
func (j *Job) adapterConfig() (*hf.AdapterConfig, error) {
	base := j.Model.Name
	if j.Model.Folder != nil {
		base = j.Model.Folder.Dir
	}
	return j.Options.Adapters.PEFT(base, j.Model.Info.Transposed)
}

// Switch gives the adapters of a started job other values, those of an adapter of the
// same options: one of many can be in use at a time, and the base stays where it is.
func (j *Job) SwitchAdapter(e *executor.Executor, to *lora.Adapter) error {
	if err := j.fits(to); err != nil {
		return err
	}
	return weights.LoadSome(e, to, func(p plan.SlabParam) bool { return to.Has(p.Name) })
}
