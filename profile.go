package spillway

import (
	"spillway/executor"
	"spillway/planner"
	"spillway/trace"
)

// Profile is one pass, step by step, as the devices timed it.
type Profile struct {
	Pass   int // which, counted from 1 over all Steps, Forwards and Evaluates; 0 for none
	Taken  int // how many profiles were taken so far
	Events []trace.Event
	// Seconds is how long the programs of each module ran.
	Seconds map[string]float64
}

// Profile is the latest one. Config.ProfileInterval says when they are taken.
func (w *Wrapped) Profile() Profile { return w.profile }

// pass runs something once, with a profile when it is time for one.
func (w *Wrapped) pass(r *running, run func() error) error {
	w.passes++
	if n := w.c.ProfileInterval; n == 0 || w.passes%n != 0 {
		return run()
	}
	ring := trace.NewRing(len(r.job.Plan.Instructions))
	if err := r.e.Trace(ring); err != nil {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	w.profile = Profile{Pass: w.passes, Taken: w.profile.Taken + 1, Events: ring.Events(), Seconds: map[string]float64{}}
	for _, e := range w.profile.Events {
		if e.Verb == trace.Run && e.Block >= 0 {
			w.profile.Seconds[r.job.Spec.Blocks[e.Block].Name] += float64(e.End-e.Start) / 1e9
		}
	}
	return r.e.Trace(nil)
}

// add adds traffic up.
func add(to, more map[executor.Route]executor.Transfers) {
	for r, t := range more {
		to[r] = executor.Transfers{Moves: to[r].Moves + t.Moves, Bytes: to[r].Bytes + t.Bytes}
	}
}

// Timeline is when each step of an iteration will run and how long it will take, by the
// forecast.
func (j *Job) Timeline() ([]trace.Event, error) {
	r, err := j.Model.request(j.Options)
	if err != nil {
		return nil, err
	}
	if _, err := j.Options.place(&r); err != nil {
		return nil, err
	}
	return planner.Timeline(j.Plan, r.Site)
}
