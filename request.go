package spillway

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	"spillway/executor"
	"spillway/rig"
	"spillway/train"
	"spillway/weights"
)

// requests holds what a running training was asked to change, until its iteration ends.
type requests struct {
	change atomic.Pointer[func(*Options)]
}

// Request asks a training that runs to plan again when its iteration ends: change gets
// the options of the job, when all memory is given back, and makes others of them; a
// later request takes the place of one that waits. Weights and states are carried over
// bit for bit. Where no plan can be made, Notice is told and the training goes on as it
// was. It may be called from anywhere.
func (j *Job) RequestReplan(change func(*Options)) { j.requested.change.Store(&change) }

// FreeNow is a request to use the memory of the computer that is free when it is done,
// more than before or less.
func FreeNow(o *Options) {
	usable, err := rig.UsableHost(o.Machine, o.System)
	if err != nil {
		return // the system does not say; claiming finds out
	}
	was := o.Machine.Host.Usable
	o.Machine.Host.Usable = usable
	o.Machine.Devices = slices.Clone(o.Machine.Devices)
	for i := range o.Machine.Devices {
		if d := &o.Machine.Devices[i]; d.Shared && d.Usable >= was {
			d.Usable = usable
		}
	}
}

// answer gives a training the means to do what was requested: nothing, or another
// executor.
func (j *Job) answer(held **executor.Executor, c train.Config, durable bool) func() (*executor.Executor, error) {
	return func() (*executor.Executor, error) {
		change := j.requested.change.Swap(nil)
		if change == nil {
			return nil, nil
		}
		if durable {
			c.Notice("another plan was asked for; what rests on disk is laid out for this one, so it goes on: stop it and resume with other options")
			return nil, nil
		}
		before := j.Plan
		e, err := j.replace(held, c, func() (*Job, error) {
			o := j.Options
			(*change)(&o)
			return j.Model.Plan(o)
		})
		if err == nil && j.Plan != before {
			c.Notice(fmt.Sprintf("planned again: now %s, before %s", j.Plan.Strategy, before.Strategy))
		}
		return e, err
	}
}

// become takes over another plan of the same model.
func (j *Job) become(other *Job) {
	j.Plan, j.Spec, j.Options = other.Plan, other.Spec, other.Options
}

// replace lets a run go on with another plan: weights and states wait in host memory, or
// in the folder of checkpoints where that is too small, while one executor takes the
// place of the other. Where there is no next job this one goes on.
func (j *Job) replace(held **executor.Executor, c train.Config, next func() (*Job, error)) (*executor.Executor, error) {
	folder, err := j.parkingFolder(*held, c)
	if err != nil {
		return nil, err
	}
	parked, err := weights.Park(*held, folder)
	if err != nil {
		return nil, err
	}
	defer parked.Close() // memory, or a file without a name
	if err := (*held).Close(); err != nil {
		return nil, err
	}
	e, err := j.claimNext(c, next)
	if err != nil {
		return nil, err
	}
	*held = e
	return e, parked.Restore(e)
}

// replaceOnDisk is replace for a training that the disk keeps: the state of the next job is
// kept in a folder of its own. Frozen weights come from where they came from. After an error
// the old state is still on disk.
func (j *Job) replaceOnDisk(held **executor.Executor, c train.Config, next *Job, on *keeper) (*executor.Executor, error) {
	folder, err := j.parkingFolder(*held, c)
	if err != nil {
		return nil, err
	}
	parked, err := weights.ParkTrained(*held, folder)
	if err != nil {
		return nil, err
	}
	defer parked.Close() // memory, or a file without a name
	before := j.Options.Disk
	if err := (*held).Close(); err != nil {
		return nil, err
	}
	j.become(next)
	from, err := j.Weights()
	if err != nil {
		return nil, err
	}
	e, kept, err := j.claim(c.Notice, true)
	if err != nil {
		return nil, err
	}
	*held = e
	on.moved(kept, before)
	if err := j.load(e, from, true); err != nil {
		return nil, err
	}
	return e, parked.Restore(e)
}

// claimNext claims what the next job needs; where none can be planned or started, what
// this one needs, which was there a moment ago.
func (j *Job) claimNext(c train.Config, next func() (*Job, error)) (*executor.Executor, error) {
	was := &Job{Plan: j.Plan, Spec: j.Spec, Options: j.Options}
	job, err := next()
	if err == nil {
		j.become(job)
		var e *executor.Executor
		if e, _, err = j.claim(c.Notice, false); err == nil {
			return e, nil
		}
		j.become(was)
	}
	c.Notice(fmt.Sprintf("there is no other plan that can be made and started, the training goes on as before: %v", err))
	e, _, err := j.claim(c.Notice, false)
	return e, err
}

// parkingFolder is where weights and states wait while the plan changes: memory, which is
// "", or where it is too small the folder of checkpoints or the disk's.
func (j *Job) parkingFolder(e *executor.Executor, c train.Config) (string, error) {
	usable, err := j.Options.System.Usable()
	folder := j.Options.Disk
	if c.Save != nil {
		folder = c.Save.Dir.Path
	}
	if folder == "" || err == nil && weights.ParkedBytes(e) < int64(usable) {
		return "", nil
	}
	return folder, os.MkdirAll(folder, 0o755)
}
