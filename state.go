package spillway

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"spillway/hf"
	"spillway/run/state"
	"spillway/weights"
)

// StateDict copies all weights, at full precision where there are master weights: loaded
// again they are the same bits. Of large models Save takes less memory.
func (w *Wrapped) StateDict() (StateDict, error) {
	if err := w.hold(); err != nil {
		return nil, err
	}
	if w.training == nil {
		return state.Collect(w.params, w.values)
	}
	return state.Weights(w.training.Executor())
}

// hold sees to it that the state is sound and, if there was training, where it can be
// read and written.
func (w *Wrapped) hold() error {
	if err := w.sound(); err != nil || w.training == nil {
		return err
	}
	return w.training.Wake()
}

// LoadStateDict replaces all weights. The optimizer states stay. The dict must have every
// param of the model in its shape, and no others; one that layers share may be there under the name of each, as in PyTorch's state_dict.
func (w *Wrapped) LoadStateDict(d StateDict) error {
	d, err := d.Tied(w.model.Info.OtherNames)
	if err == nil {
		maps.DeleteFunc(d, func(name string, _ Tensor) bool { return w.model.Info.IsBuffer(name) })
		err = d.Fits(w.params)
	}
	if err != nil {
		return fmt.Errorf("loading weights into %s: %w", w.model.Name, err)
	}
	return w.load(d.Clone())
}

// Load replaces all weights by those of a folder that Save has written, or any other folder or file
// with the model's params: a state_dict of PyTorch as .safetensors, .pt, .pth or .bin. Counters of batch norms are passed over.
func (w *Wrapped) Load(dir string) (err error) {
	folder, err := hf.OpenWeights(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	from, err := weights.FromSource(folder, w.model.Info, w.params)
	if err != nil {
		return fmt.Errorf("loading %s: %w", dir, err)
	}
	if w.training == nil { // the folder is closed before the weights are asked for again
		if from, err = state.Collect(w.params, from); err != nil {
			return err
		}
	}
	return w.load(from)
}

// load takes weights over: into the training run, or as what training starts from.
func (w *Wrapped) load(from weights.Values) error {
	if err := w.hold(); err != nil {
		return err
	}
	if w.training == nil {
		w.values, w.loaded = from, true
		return w.closeView() // it may read the model's own files
	}
	w.stale = true
	return weights.Replace(w.training.Executor(), from, nil)
}

// Save writes the weights as a model folder, under the model's own names: what Load
// reads, and Open where the model's architecture is a known one.
func (w *Wrapped) Save(dir string) error {
	files, err := w.model.Files(w.c.Precision)
	if err == nil {
		err = w.hold()
	}
	if err != nil {
		return err
	}
	if w.training != nil {
		files.Tensors = weights.ExecutorOutputs(w.training.Executor())
	} else {
		files.Tensors = weights.Outputs(w.params, w.values)
	}
	if err := files.Write(dir); err != nil {
		return fmt.Errorf("saving %s: %w", w.model.Name, err)
	}
	return nil
}

// OptimizerState copies what training needs to go on in addition to the weights of
// StateDict. Of large models checkpoints take less memory.
func (w *Wrapped) OptimizerState() (s OptimizerState, err error) {
	if err := w.holdTraining(); err != nil {
		return s, err
	}
	at, err := w.trainer.Position()
	if err == nil {
		err = json.Unmarshal(at, &s.Sequences)
	}
	if err != nil {
		return s, err
	}
	s.Iterations = w.trainer.Iterations()
	s.States, err = state.States(w.training.Executor())
	return s, err
}

// LoadOptimizerState goes on from a state that OptimizerState gave, of the same model and
// optimizer. It must have every state in the type that it has here, and no others.
func (w *Wrapped) LoadOptimizerState(s OptimizerState) error {
	if err := w.holdTraining(); err != nil {
		return err
	}
	if err := s.Fits(w.training.Executor()); err != nil {
		return fmt.Errorf("loading the optimizer states of %s: %w", w.model.Name, err)
	}
	if err := s.Load(w.training.Executor()); err != nil {
		w.broken = err
		return fmt.Errorf("loading the optimizer states of %s: %w", w.model.Name, err)
	}
	if err := w.trainer.DropPrefetched(); err != nil {
		return err
	}
	w.feed.sequences = s.Sequences
	return w.trainer.SetIterations(s.Iterations)
}

// holdTraining is hold for what needs an optimizer.
func (w *Wrapped) holdTraining() error {
	if err := w.hold(); err != nil {
		return err
	}
	if w.training == nil {
		return fmt.Errorf("%s has no optimizer yet: train a step, or give Config.BatchSize and Config.Seq", w.model.Name)
	}
	return nil
}
