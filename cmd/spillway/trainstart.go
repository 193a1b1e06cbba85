package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"spillway"
	"spillway/checkpoint"
	"spillway/plan"
	"spillway/rig"
)

// folder for checkpoints. One that has some is continued only when asked to.
func (o *trainOptions) folder(m *spillway.Model) (string, error) {
	dir := o.out
	if dir == "" {
		dir = "trained-" + m.Name
	}
	found, err := checkpoint.Dir{Path: dir}.List()
	switch {
	case errors.Is(err, os.ErrNotExist):
		found = nil
	case err != nil:
		return dir, fmt.Errorf("looking for checkpoints: %w", err)
	}
	iteration, held, err := heldOnDisk(o.disk)
	if err != nil {
		return dir, err
	}
	if held && !o.resume {
		return dir, fmt.Errorf("%s holds iteration %d of a run: give --resume to go on from it, or another --disk", o.disk, iteration)
	}
	if len(found) > 0 && !o.resume {
		return dir, fmt.Errorf("%s has a checkpoint of iteration %d: give --resume to go on from it, or another --out", dir, found[0].Iteration)
	}
	if len(found) == 0 && !held && o.resume {
		return dir, fmt.Errorf("there is no checkpoint in %s to resume from: give the --out of the run, or leave --resume out", dir)
	}
	return dir, nil
}

// start makes the plan, or reads it, for this computer within the limit.
func (o *trainOptions) start(sh shell, text io.Writer, m *spillway.Model, here *rig.Rig, options spillway.Options) (*training, *spillway.Job, error) {
	job, err := o.plan(m, options)
	return newTraining(sh, text, here), job, err
}

// plan makes the plan, or takes the one of --plan, whose sizes then count.
func (o *trainOptions) plan(m *spillway.Model, options spillway.Options) (*spillway.Job, error) {
	if o.planFile == "" {
		return o.planned(m, options)
	}
	f, err := os.Open(o.planFile)
	if err != nil {
		return nil, fmt.Errorf("opening the plan: %w", err)
	}
	defer f.Close() // opened for reading
	p, err := plan.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.planFile, err)
	}
	job, err := m.UsePlan(p, options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; make a plan for it with plan --save", o.planFile, err)
	}
	return job, nil
}
