package spillway

import (
	"encoding/json"
	"errors"
	"fmt"

	"spillway/train"
	"spillway/units"
	"spillway/weights"
)

// ready gives an executor for a task and sizes, with the weights in place: the one
// there is, or one of a new plan.
func (w *Wrapped) ready(task Task, s sizes) (r *running, err error) {
	if task == Train {
		r, err = w.readyToTrain(s)
	} else {
		r, err = w.readyToView(task, s)
	}
	if err != nil {
		return nil, err
	}
	w.latest = r
	return r, nil
}

func (w *Wrapped) readyToTrain(s sizes) (*running, error) {
	switch {
	case w.state == nil:
		return w.startTraining(s)
	case w.state.sizes != s:
		job, err := w.plan(Train, s, nil)
		if err != nil {
			return nil, err
		}
		w.notice(fmt.Sprintf("batches are %v instead of %v: planned again, %s", s, w.state.sizes, job.Plan.Strategy))
		return w.state, w.move(job, s)
	case w.state.e == nil:
		return w.state, w.wake()
	}
	return w.state, nil
}

// startTraining makes the first plan that trains, and the optimizer's state.
func (w *Wrapped) startTraining(s sizes) (*running, error) {
	job, err := w.plan(Train, s, nil)
	if err != nil {
		return nil, err
	}
	if err := w.release(w.view); err != nil {
		return nil, err
	}
	r := &running{job: job, sizes: s}
	if r.e, _, err = job.claim(w.notice, false); err != nil {
		return nil, err
	}
	w.feed = &handed{}
	if err = weights.Load(r.e, w.source); err == nil {
		w.trainer, err = train.New(r.e, w.feed, train.Config{Optimizer: job.Options.Optimizer, Schedule: w.c.Schedule, Clip: w.c.Clip, Seed: w.c.Seed, Notice: w.notice,
			StatePolicy: w.c.StatePolicy, Compress: w.compress})
	}
	if err != nil {
		return nil, errors.Join(err, r.e.Close())
	}
	w.state, w.source = r, nil // the state is what counts from now on
	return r, nil
}

// readyToView gets ready for a task that only reads the weights: beside the training
// where both fit, else in its place while the state is parked.
func (w *Wrapped) readyToView(task Task, s sizes) (*running, error) {
	v := w.view
	if v == nil || v.e == nil || v.sizes != s || v.job.Options.Task != task {
		if err := w.release(v); err != nil {
			return nil, err
		}
		var err error
		if v, err = w.newView(task, s); err != nil {
			return nil, err
		}
		w.view = v
	}
	if !v.stale {
		return v, nil
	}
	if err := w.refresh(v); err != nil {
		return nil, errors.Join(err, w.release(v))
	}
	v.stale = false
	return v, nil
}

func (w *Wrapped) newView(task Task, s sizes) (*running, error) {
	var beside func(Options) (Options, error)
	if w.state != nil && w.state.e != nil {
		beside = w.state.job.beside
	}
	job, err := w.plan(task, s, beside)
	if err != nil && beside != nil {
		if err := w.park(); err != nil {
			return nil, err
		}
		job, err = w.plan(task, s, nil)
	}
	if err != nil {
		return nil, err
	}
	e, _, err := job.claim(w.notice, false)
	return &running{job: job, e: e, sizes: s, stale: true}, err
}

// refresh gives a view the weights of the state.
func (w *Wrapped) refresh(v *running) error {
	switch {
	case w.state == nil:
		return v.job.load(v.e, w.source, false)
	case w.parked != nil:
		return w.parked.Weights(v.e)
	}
	return weights.Copy(v.e, w.state.e)
}

// park takes the state from its executor and gives that one's memory back.
func (w *Wrapped) park() error {
	if w.parked != nil {
		return nil
	}
	need := weights.ParkedBytes(w.state.e)
	usable, err := w.c.System.Usable()
	if err != nil {
		return err
	}
	if w.c.Disk == "" && need > int64(usable) {
		return fmt.Errorf("the weights and the optimizer's state take %v while another plan is made room for, and the host has %v left; name a folder for them in Config.Folder", units.Bytes(need), usable)
	}
	p, err := weights.Park(w.state.e, w.c.Disk)
	if err != nil {
		return err
	}
	w.parked = p
	return w.release(w.state)
}

// wake gives the state an executor again. The view goes: it was there instead.
func (w *Wrapped) wake() error {
	if w.state.e != nil {
		return nil
	}
	if err := w.release(w.view); err != nil {
		return err
	}
	e, _, err := w.state.job.claim(w.notice, false)
	if err != nil {
		return err
	}
	if err := errors.Join(w.parked.Restore(e), w.trainer.Move(e)); err != nil {
		return errors.Join(err, e.Close())
	}
	w.state.e = e
	return w.unpark()
}

func (w *Wrapped) unpark() error {
	p := w.parked
	w.parked = nil
	return p.Close()
}

// move carries the state over to another plan. If that does not start, the state goes
// back to the plan it had.
func (w *Wrapped) move(job *Job, s sizes) error {
	if err := w.park(); err != nil {
		return err
	}
	was := *w.state
	w.state.job, w.state.sizes = job, s
	err := w.wake()
	if err == nil {
		return nil
	}
	*w.state = was
	w.state.e = nil
	return errors.Join(err, w.wake())
}

// release closes an executor and remembers what it moved.
func (w *Wrapped) release(r *running) error {
	if r == nil || r.e == nil {
		return nil
	}
	add(w.past, r.e.Transfers())
	err := r.e.Close()
	r.e = nil
	return err
}

// handed is a feed of batches that are handed in one at a time.
type handed struct {
	next matched
	row  int64 // samples so far
}

// Next fills in the batch at hand.
func (h *handed) Next(to train.Parts) (train.Filled, error) {
	f := train.Filled{FirstSequence: h.row, Counted: h.next.counted(), Tokens: h.next.samples * h.next.seq}
	h.row += h.next.samples
	return f, h.next.fill(to)
}

// Position is how many samples there were.
func (h *handed) Position() (json.RawMessage, error) { return json.Marshal(h.row) }

// Seek goes on counting samples from there.
func (h *handed) Seek(at json.RawMessage) error { return json.Unmarshal(at, &h.row) }
