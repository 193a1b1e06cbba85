package spillway

import (
	"context"
	"errors"
	"fmt"

	"spillway/device"
	"spillway/executor"
	"spillway/generate"
	"spillway/plan"
	"spillway/planner"
	"spillway/train"
	"spillway/units"
)

// Train starts the job on the device and trains it. Where c.Save has no model
// config, checkpoints get the files of the job's model; where c.Evaluate has no
// executor, one is planned in the memory that the training leaves, and if nothing
// fits there c.Notice is told and nothing is evaluated.
func (j *Job) Train(ctx context.Context, dev device.Device, feed train.Feed, c train.Config) (r train.Result, err error) {
	e, err := j.Start(dev)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if c, err = j.completeSave(c); err != nil {
		return r, err
	}
	if c.Notice == nil {
		c.Notice = func(string) {}
	}
	if v := c.Evaluate; v != nil && v.Executor == nil {
		evaluator, err := j.evaluator(dev, c.Notice)
		if err != nil {
			return r, err
		}
		c.Evaluate = nil
		if evaluator != nil {
			defer func() { err = errors.Join(err, evaluator.Close()) }()
			c.Evaluate = &train.Evaluation{Every: v.Every, Executor: evaluator, Feed: v.Feed, Batches: v.Batches}
		}
	}
	t, err := train.New(e, feed, c)
	if err != nil {
		return r, err
	}
	return t.Run(ctx)
}

// completeSave gives checkpoints the model's own files.
func (j *Job) completeSave(c train.Config) (train.Config, error) {
	if c.Save == nil || c.Save.Model.Config != nil {
		return c, nil
	}
	save := *c.Save
	var err error
	save.Model, err = j.Model.files(j.Options.Precision)
	c.Save = &save
	return c, err
}

// evaluator is an executor for the task eval in the memory that is left; nil, and a
// notice, when it does not fit.
func (j *Job) evaluator(dev device.Device, notice func(string)) (*executor.Executor, error) {
	o := j.Options
	o.Task, o.Micros, o.Choose = Eval, 1, nil
	site, err := o.site()
	if err != nil {
		return nil, err
	}
	o, left := o.beside(j.Plan, site)
	if !left {
		notice("nothing will be evaluated: the training takes all of the memory")
		return nil, nil
	}
	eval, err := j.Model.Plan(o)
	var fit *planner.FitError
	if errors.As(err, &fit) {
		notice(fmt.Sprintf("nothing will be evaluated beside the training: %v", err))
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e, err := executor.New(eval.Plan, []device.Device{dev})
	if err != nil {
		return nil, err
	}
	return e, e.Prepare()
}

// beside is what a plan leaves of a site's memory.
func (o PlanOptions) beside(p *plan.Plan, site planner.Site) (PlanOptions, bool) {
	peak := p.Peak()
	o.Budget = site.Budget - peak[plan.OnDevice]
	host := peak[plan.Pinned] + peak[plan.OnHost]
	if site.SharedPools {
		host += peak[plan.OnDevice]
	}
	o.Machine.Host.Usable -= units.Bytes(host)
	return o, o.Budget > 0 && o.Machine.Host.Usable > 0
}

// Generate starts the job, which must be for the task infer, and prepares to
// continue a prompt. The caller closes what is returned.
func (j *Job) Generate(dev device.Device, prompt []int32, o generate.Options) (*Generation, error) {
	e, err := j.Start(dev)
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
