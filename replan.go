package spillway

import (
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"

	"spillway/device"
	"spillway/executor"
	"spillway/optim"
	"spillway/plan"
	"spillway/units"
)

// hostName is the device of an out-of-memory error that is about the host.
const hostName = "host"

// checkHost refuses a plan that takes more host memory than is left now. Memory is
// given by the system when it is touched, so that without this a plan that is too
// large would start and be killed. Where the system does not tell there is no check.
func (j *Job) checkHost(on []device.Device) error {
	usable, err := j.Options.System.Usable()
	if err != nil {
		return nil
	}
	if need := j.hostBytes(on); need > int64(usable) {
		return &device.OutOfMemoryError{Device: hostName, Asked: need, Limit: int64(usable)}
	}
	return nil
}

// hostBytes is what the plan takes of host memory: its host tiers, and the arenas of
// devices that have no memory of their own.
func (j *Job) hostBytes(on []device.Device) (n int64) {
	for _, a := range j.Plan.Arenas {
		if a.Tier == plan.OnHost || a.Tier == plan.Pinned || a.Tier == plan.OnDevice && on[a.Device].Info().OnHost {
			n += a.Bytes
		}
	}
	return n
}

// startWithin starts the job within the memory there is: see claim.
func (j *Job) startWithin(notice func(string)) (*executor.Executor, *durable, error) {
	from, err := j.Weights()
	if err != nil {
		return nil, nil, err
	}
	e, kept, err := j.claim(notice, true)
	if err != nil {
		return nil, nil, err
	}
	return e, kept, j.load(e, from, kept.recovered())
}

// claim allocates what the plan needs. Where a device or the host refuses, since they
// have less than the plan assumed, the job is planned again for what there is, and
// notice, if not nil, is told. A choice that was insisted on has no second plan. With
// keep, what is on disk outlives the process.
func (j *Job) claim(notice func(string), keep bool) (*executor.Executor, *durable, error) {
	debug.FreeOSMemory() // what planning took is free for arenas
	for {
		e, kept, err := j.allocate(keep)
		var refused *device.OutOfMemoryError
		if err == nil || !errors.As(err, &refused) || j.Options.Choose != nil {
			return e, kept, err
		}
		o, smaller := j.Options.within(refused)
		if !smaller {
			return nil, nil, err
		}
		again, planning := j.Model.Plan(o)
		if planning != nil {
			return nil, nil, errors.Join(err, planning)
		}
		if notice != nil {
			notice(fmt.Sprintf("%s has %v left, the plan took %v: planned again, now %s instead of %s",
				refused.Device, units.Bytes(refused.Limit-refused.Allocated), units.Bytes(refused.Asked), again.Plan.Strategy, j.Plan.Strategy))
		}
		j.become(again)
	}
}

// within is the options for what is left after a refusal. It says whether that is
// less than what was planned for, so that trying again comes to an end.
func (o Options) within(r *device.OutOfMemoryError) (Options, bool) {
	left := r.Limit - r.Allocated
	if left <= 0 || left >= r.Asked || r.Device == plan.DiskName {
		return o, false
	}
	if r.Device == hostName {
		return o.withinHost(units.Bytes(left)), true
	}
	smaller := o.Budget == 0 || left < o.Budget
	o.Budget = left
	return o, smaller
}

// withinHost is the options for a computer with less host memory. Devices without
// memory of their own take from the same.
func (o Options) withinHost(usable units.Bytes) Options {
	m := &o.Machine
	m.Host.Usable = min(m.Host.Usable, usable)
	m.Devices = append(m.Devices[:0:0], m.Devices...)
	for i := range m.Devices {
		if len(o.On) > 0 && o.On[0].Info().OnHost {
			m.Devices[i].Shared, m.Devices[i].Usable = true, min(m.Devices[i].Usable, usable)
		}
	}
	return o
}

// Replan makes a new plan, between two iterations, with other settings than Config
// gives: less memory, another strategy, other thresholds. The weights and what the
// optimizer keeps are carried over bit for bit, and the training goes on as if nothing
// had happened, to the bit where the new plan has the same micro-batches and ways to
// sum over devices. Settings of the training itself cannot change. If no plan can be
// made or started, everything stays as it was.
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
	if w.state == nil {
		return w.replanView()
	}
	job, err := w.plan(Train, w.state.sizes, nil)
	if err != nil {
		return err
	}
	w.notice(fmt.Sprintf("planned again: %s instead of %s", job.Plan.Strategy, w.state.job.Plan.Strategy))
	if err := w.move(job, w.state.sizes); err != nil {
		return err
	}
	w.latest = w.state
	return nil
}

// replanView replaces a view; weights that were never trained come from where they
// came from before.
func (w *Wrapped) replanView() error {
	task, s := w.view.job.Options.Task, w.view.sizes
	if _, err := w.plan(task, s, nil); err != nil {
		return err
	}
	if err := w.release(w.view); err != nil {
		return err
	}
	_, err := w.ready(task, s)
	return err
}

// sameRun refuses settings that would change what a training computes, or where.
func (c Config) sameRun(d Config) error {
	for _, f := range []struct {
		name string
		a, b any
	}{
		{"Precision", c.Precision, d.Precision}, {"Pure", c.Pure, d.Pure}, {"Kept", c.Exceptions, d.Exceptions}, {"Optimizer", c.Optimizer, d.Optimizer}, {"Policy", c.StatePolicy, d.StatePolicy}, {"Schedule", c.Schedule, d.Schedule}, {"NoDecay", c.NoDecay, d.NoDecay},
		{"Adapters", c.Adapters, d.Adapters}, {"Clip", c.Clip, d.Clip}, {"Seed", c.Seed, d.Seed}, {"Packed", c.Packed, d.Packed},
		{"Devices", c.Devices, d.Devices}, {"On", c.On, d.On}, {"Machine", c.Machine, d.Machine}, {"Folder", c.Disk, d.Disk},
	} {
		if !reflect.DeepEqual(f.a, f.b) {
			return fmt.Errorf("%s was %v and would be %v; start from what Config gives, or wrap the model anew", f.name, f.a, f.b)
		}
	}
	return nil
}

// compress goes on with a plan that keeps what the policy leaves of the states.
func (w *Wrapped) compress(optim.Config) (*executor.Executor, error) {
	w.compressed = true
	job, err := w.plan(Train, w.state.sizes, nil)
	if err == nil {
		err = w.move(job, w.state.sizes)
	}
	if err != nil {
		w.compressed = false
		return nil, err
	}
	return w.state.e, nil
}
