package spillway

import (
	"context"
	"errors"
	"fmt"

	"spillway/device"
	"spillway/executor"
	"spillway/generate"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/train"
)

// Train starts the job and trains. Checkpoints get the files of the job's model
// where c.Save has no config of its own. Where c.Evaluate has no executor, one is
// planned in the memory that the training leaves; if nothing fits there, c.Notice is
// told and nothing is evaluated.
//
// Where the devices or the host have less memory than the plan assumed, the job is
// planned again for what there is, and c.Notice is told; j.Plan is then the new plan.
//
// Request has it planned again while it runs.
//
// Where the plan has bytes rest on disk, every completed iteration is durable there:
// a training that was killed goes on from the last one. A run that ends with a
// checkpoint leaves nothing in the folder.
func (j *Job) Train(ctx context.Context, feed train.Feed, c train.Config) (r train.Result, err error) {
	e, kept, err := j.startWithin(c.Notice)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	var on *keeper
	if kept != nil && c.Journal == nil {
		on = newKeeper(kept, j.Options.Disk)
		c.Journal = on
	}
	if c, err = j.completeSave(c); err != nil {
		return r, err
	}
	c, evaluator, err := j.completeEvaluate(c)
	if err != nil {
		return r, err
	}
	if evaluator != nil {
		defer func() { err = errors.Join(err, evaluator.Close()) }()
	}
	if c.Memory == nil {
		c.Memory = func() int64 { return allocated(j.Options.On) }
	}
	if c.StatePolicy != (optim.Policy{}) && c.StatePolicy != j.Options.StatePolicy {
		return r, fmt.Errorf("states are to follow policy %s, the job was planned for %q; plan with it", c.StatePolicy, j.Options.StatePolicy)
	}
	if c.Notice == nil {
		c.Notice = func(string) {}
	}
	c.StatePolicy, c.Compress, c.Again = j.Options.StatePolicy, j.compress(&e, c, on), j.answer(&e, c, kept != nil)
	t, err := train.New(e, feed, c)
	if err != nil {
		return r, err
	}
	if r, err = t.Run(ctx); err == nil && on != nil && c.Save != nil {
		err = on.discard() // the checkpoint has it
	}
	return r, err
}

// allocated is the most that was in use of devices that count it.
func allocated(devices []device.Device) (sum int64) {
	for _, d := range devices {
		if m, ok := d.(device.Meter); ok {
			_, most := m.Allocated()
			sum += most
		}
	}
	return sum
}

// completeSave gives checkpoints the model's own files, or the config of the adapters.
func (j *Job) completeSave(c train.Config) (train.Config, error) {
	if c.Save == nil || c.Save.Model.Config != nil || c.Save.Adapter != nil {
		return c, nil
	}
	save := *c.Save
	var err error
	if j.Options.adapters() {
		save.Adapter, err = j.adapterConfig()
	} else {
		save.Model, err = j.Model.files(j.Options.Precision)
	}
	c.Save = &save
	return c, err
}

// completeEvaluate gives an evaluation an executor, which the caller closes.
func (j *Job) completeEvaluate(c train.Config) (train.Config, *executor.Executor, error) {
	if c.Evaluate == nil || c.Evaluate.Executor != nil {
		return c, nil, nil
	}
	job, err := j.evaluation()
	var fit *planner.FitError
	if errors.As(err, &fit) {
		if c.Notice != nil {
			c.Notice(fmt.Sprintf("nothing will be evaluated: beside the training, %v", err))
		}
		c.Evaluate = nil
		return c, nil, nil
	}
	if err != nil {
		return c, nil, err
	}
	v := *c.Evaluate
	v.Executor, _, err = job.allocate(false)
	c.Evaluate = &v
	return c, v.Executor, err
}

// evaluation plans the task eval in the memory that the job leaves.
func (j *Job) evaluation() (*Job, error) {
	o := j.Options
	o.Task, o.MicroBatches, o.Choose, o.Constraints, o.DeviceMap = Eval, 1, nil, planner.Constraints{}, nil
	o, err := j.beside(o)
	if err != nil {
		return nil, err
	}
	return j.Model.Plan(o)
}

// beside limits options to the memory that the job leaves. Its folder of the
// disk is another.
func (j *Job) beside(o Options) (Options, error) {
	site, err := o.site()
	if err != nil {
		return o, err
	}
	left := found(site)
	for _, a := range j.Plan.Arenas {
		switch {
		case a.Tier == plan.OnDevice:
			left.Devices[a.Device] -= a.Bytes
			if site.SharedMemory {
				left.Host -= a.Bytes
			}
		case a.Tier != plan.OnDisk:
			left.Host -= a.Bytes
		}
	}
	// A byte is too little for any plan, so that none left is an error too.
	for d := range left.Devices {
		left.Devices[d] = max(left.Devices[d], 1)
	}
	left.Host = max(left.Host, 1)
	o.MaxMemory = &left
	if o.Disk != "" {
		o.Disk, o.scratch = evaluationDir(o.Disk), true
	}
	return o, nil
}

// Generate starts the job, which must be for the task infer, and prepares to
// continue a prompt. The caller closes the generation.
func (j *Job) Generate(prompt []int32, o generate.Options) (*Generation, error) {
	e, err := j.Start()
	if err != nil {
		return nil, err
	}
	g, err := generate.New(e, prompt, o)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return &Generation{g, e}, nil
}

// Generation is a generator and the executor it runs on.
type Generation struct {
	*generate.Generator
	e *executor.Executor
}

// Close frees the executor's memory.
func (g *Generation) Close() error { return g.e.Close() }
