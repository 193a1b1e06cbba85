package spillway

import (
	"spillway/run"
	"spillway/trace"
)

// Profile is one pass, instruction by instruction, as the devices timed it.
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
func (w *Wrapped) pass(r *run.Run, do func() error) error {
	w.passes++
	if n := w.c.ProfileInterval; n == 0 || w.passes%n != 0 {
		return do()
	}
	ring, e, blocks := trace.NewRing(len(r.Plan.Instructions)), r.Executor(), r.Spec.Blocks
	if err := e.Trace(ring); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	w.profile = Profile{Pass: w.passes, Taken: w.profile.Taken + 1, Events: ring.Events(), Seconds: map[string]float64{}}
	for _, event := range w.profile.Events {
		if event.Verb == trace.Run && event.Block >= 0 {
			w.profile.Seconds[blocks[event.Block].Name] += float64(event.End-event.Start) / 1e9
		}
	}
	if r.Executor() != e {
		return nil // a policy has changed the plan
	}
	return e.Trace(nil)
}

// MemoryStats say where the model's bytes are now and what has moved.
func (w *Wrapped) MemoryStats() MemoryStats {
	var runs []*run.Run
	for _, r := range []*run.Run{w.training, w.view} {
		if r != nil {
			runs = append(runs, r)
		}
	}
	return run.Memory(w.rig.Devices, w.latest, w.past, runs...)
}
