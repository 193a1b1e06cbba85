package spillway

import (
	"errors"
	"fmt"
	"slices"

	"spillway/run"
	"spillway/run/batch"
	"spillway/train"
)

// ready gives a run for a task and a size of batches, with the weights in place: the one
// there is, or one of a new plan.
func (w *Wrapped) ready(task Task, s batch.Size) (r *run.Run, err error) {
	if task == Train {
		err = w.readyToTrain(s)
		r = w.training
	} else {
		err = w.readyToView(task, s)
		r = w.view
	}
	if err != nil {
		return nil, err
	}
	w.latest = r
	return r, nil
}

// plan makes a run for a task and a size of batches. Weights that are only read may stay
// in the model's own files; those that came from elsewhere, or are trained, may not.
func (w *Wrapped) plan(task Task, s batch.Size) (*run.Run, error) {
	inPlace := task != Train && w.training == nil && !w.loaded
	return w.withNotices(w.model.WithValues(w.values, inPlace).Plan(w.options(task, s)))
}

// withNotices passes on the notices of a plan, each once however often it is planned again, and
// those to come.
func (w *Wrapped) withNotices(r *run.Run, err error) (*run.Run, error) {
	if err != nil {
		return nil, err
	}
	for _, text := range r.Notices {
		if !slices.Contains(w.notices, text) {
			w.note(text)
		}
	}
	r.Notice = w.note
	return r, nil
}

// sizeOf is the size of the batches that a run is planned for.
func sizeOf(r *run.Run) batch.Size {
	return batch.Size{Sequences: r.Options.BatchSize, Positions: r.Options.Seq}
}

func (w *Wrapped) readyToTrain(s batch.Size) error {
	switch {
	case w.training == nil:
		return w.startTraining(s)
	case sizeOf(w.training) == s:
		return w.training.Wake()
	}
	next, err := w.plan(Train, s)
	if err != nil {
		return err
	}
	w.note(fmt.Sprintf("batches are %v instead of %v: planned again, %s", s, sizeOf(w.training), next.Plan.Strategy))
	return w.training.Replan(func() (*run.Run, error) { return next, nil })
}

// startTraining makes the first plan that trains, and the optimizer's states.
func (w *Wrapped) startTraining(s batch.Size) error {
	r, err := w.plan(Train, s)
	if err != nil {
		return err
	}
	r.BeforeClaim = w.closeView
	if err := errors.Join(r.OnGradient(w.hook), r.Start()); err != nil {
		return err
	}
	w.feed = &givenBatches{}
	if w.trainer, err = train.New(r, w.feed, train.Config{Schedule: w.c.Schedule, Seed: w.c.Seed, Notice: w.note}); err != nil {
		return errors.Join(err, r.Close())
	}
	w.training, w.values = r, nil // the run's weights are what counts from now on
	return nil
}

// readyToView gets ready for a task that only reads the weights: next to the training
// run where both fit, else in its place while the state is parked.
func (w *Wrapped) readyToView(task Task, s batch.Size) error {
	if v := w.view; v == nil || sizeOf(v) != s || v.Options.Task != task {
		if err := w.closeView(); err != nil {
			return err
		}
		v, err := w.newView(task, s)
		if err != nil {
			return err
		}
		w.view, w.stale = v, w.training != nil
	}
	if !w.stale {
		return nil
	}
	if err := w.view.CopyWeights(w.training); err != nil {
		return errors.Join(err, w.closeView())
	}
	w.stale = false
	return nil
}

// newView starts a run that only reads the weights, which it has where there is no
// training run to copy them from.
func (w *Wrapped) newView(task Task, s batch.Size) (v *run.Run, err error) {
	if w.training == nil {
		if v, err = w.plan(task, s); err == nil {
			err = v.Start()
		}
		return v, err
	}
	if w.training.Executor() != nil {
		v, _ = w.withNotices(w.training.NextTo(w.options(task, s)))
	}
	if v == nil { // both do not fit at once
		if err := w.training.Park(); err != nil {
			return nil, err
		}
		if v, err = w.plan(task, s); err != nil {
			return nil, err
		}
	}
	return v, v.StartEmpty()
}

// closeView closes the view, for whoever needs its memory, and remembers what it moved.
func (w *Wrapped) closeView() error {
	if w.view == nil {
		return nil
	}
	err := w.view.Close()
	w.past = w.past.Plus(w.view.Moved())
	w.view = nil
	return err
}

// Replan makes a new plan, between two iterations, with other settings than Config
// gives: less memory, another strategy, other bounds. Weights and optimizer states are
// carried over bit for bit, and training goes on as if nothing had happened, to the bit
// where the new plan has the same micro-batches and order of sums over devices. Settings
// of the training itself cannot change. If no plan can be made or started, everything
// stays as it was.
func (w *Wrapped) Replan(c Config) error {
	was := w.c
	if err := w.replan(c); err != nil {
		w.c = was
		return fmt.Errorf("planning %s again: %w", w.model.Name, err)
	}
	return nil
}

func (w *Wrapped) replan(c Config) error {
	if err := errors.Join(w.sound(), c.check(), w.c.sameRun(c)); err != nil {
		return err
	}
	w.c = c
	if w.latest == nil {
		return nil
	}
	if w.training == nil {
		return w.replanView()
	}
	return w.replanTraining()
}

// replanTraining carries a training run over to a plan for the configuration of now.
func (w *Wrapped) replanTraining() error {
	next, err := w.plan(Train, sizeOf(w.training))
	if err != nil {
		return err
	}
	w.note(fmt.Sprintf("planned again: %s instead of %s", next.Plan.Strategy, w.training.Plan.Strategy))
	if err := w.training.Replan(func() (*run.Run, error) { return next, nil }); err != nil {
		return err
	}
	w.latest = w.training
	return nil
}

// replanView replaces a view; weights that were never trained come from where they came
// from before.
func (w *Wrapped) replanView() error {
	task, s := w.view.Options.Task, sizeOf(w.view)
	if _, err := w.plan(task, s); err != nil {
		return err
	}
	if err := w.closeView(); err != nil {
		return err
	}
	_, err := w.ready(task, s)
	return err
}
