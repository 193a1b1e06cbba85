package finetune

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"spillway"
	"spillway/checkpoint"
	"spillway/device"
	"spillway/internal/vfs"
	"spillway/lora"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner"
	"spillway/recipe"
	"spillway/run"
	"spillway/store"
	"spillway/train"
)

// options are the recipe's settings on the devices that are open.
func (r *Run) options() (o spillway.Options, notices []string, err error) {
	return r.optionsOn(r.Rig.Machine, r.Rig.Devices)
}

// optionsOn are the recipe's settings on a machine, of which devices may be open.
func (r *Run) optionsOn(m machine.Machine, open []device.Device) (o spillway.Options, notices []string, err error) {
	if notices, err = r.Recipe.ApplyDeepSpeed(max(len(open), 1)); err != nil {
		return o, nil, err
	}
	o = r.Recipe.Complete(m.Devices[0])
	o.Machine, o.On = r.Recipe.Within(m), open
	o.Optimizer, o.Evaluates = r.Recipe.OptimizerConfig(), r.Recipe.Evaluates()
	if dir := r.Recipe.Training.Adapter; dir != "" {
		if r.adapter, err = lora.Open(checkpoint.Newest(dir)); err != nil {
			return o, nil, fmt.Errorf("opening the adapter to start from: %w", err)
		}
		o.Adapter, o.Adapters = r.adapter, lora.Options{Base: o.Adapters.Base}
	}
	return o, notices, nil
}

// findOutput finds the folder for checkpoints. A run that is there already, or in the journal
// on disk, is continued only when the recipe says so.
func (r *Run) findOutput() error {
	out, disk := r.Recipe.Output, r.Recipe.Disk
	r.out = cmp.Or(out.Dir, "trained-"+r.Model.Name)
	dir := checkpoint.Dir{Path: r.out}
	var err error
	if r.release, err = dir.Claim(); err != nil {
		return err
	}
	found, err := dir.List()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking for checkpoints: %w", err)
	}
	last, err := int64(0), store.ErrNoCommit
	if disk != "" {
		last, err = store.LastCommit(disk)
	}
	switch journal := err == nil; {
	case err != nil && !errors.Is(err, store.ErrNoCommit):
		return err
	case journal && !out.Resume:
		return fmt.Errorf("%s holds step %d of a run: give --resume to continue it, or another --disk", disk, last)
	case len(found) > 0 && !out.Resume:
		return fmt.Errorf("%s has a checkpoint of step %d: give --resume to continue from it, or another --out", r.out, found[0].Iteration)
	case journal:
		r.Resumed = fmt.Sprintf("step %d in the journal on %s", last, disk)
	case len(found) > 0:
		r.Resumed = fmt.Sprintf("step %d in %s", found[0].Iteration, found[0].Path)
		r.microBatchSize, _ = train.MicroBatchSize(found[0].Path) // a damaged checkpoint is met when it is opened
	case out.Resume:
		if file := filepath.Join(r.out, recipe.RunName); fileThere(file) {
			return fmt.Errorf("there is no checkpoint in %[1]s to resume from: the run ended before it saved one; start it again with --recipe %[2]s --out %[1]s, and with --save-steps to save on the way", r.out, file)
		}
		return fmt.Errorf("there is no checkpoint in %s to resume from: give the --out of the run, or leave --resume out", r.out)
	}
	return nil
}

// fileThere says whether there is a file of that name.
func fileThere(name string) bool {
	there, err := vfs.Exists(vfs.OS, name)
	return err == nil && there
}

// plan makes the plan, or takes the one in the recipe's file, whose sizes then count.
func (r *Run) plan(o spillway.Options) (*spillway.Run, error) {
	name := r.Recipe.Output.PlanFile
	switch {
	case name == "" && r.Recipe.AutoBatch:
		job, _, err := r.Model.FastestBatch(o, recipe.MaxMicroBatchSize)
		return job, err
	case name == "":
		// A run that goes on keeps the micro-batches it had, where the recipe does not name
		// others and they still fit: its bits depend on them.
		same, n := o, r.microBatchSize
		if n > 0 && o.MicroBatchSize == 0 && o.MicroBatches == 0 && o.BatchSize%n == 0 {
			same.MicroBatchSize = n
		}
		job, err := r.Model.PlanOrRefuse(same)
		var misfit *planner.FitError
		if errors.As(err, &misfit) && same.MicroBatchSize != o.MicroBatchSize {
			if job, err = r.Model.PlanOrRefuse(o); err == nil {
				job.Notices = append(job.Notices, fmt.Sprintf("micro-batches of %d, as the run had so far, do not fit any more; with %d gradients are summed in another order, so its bits are others than without the interruption", n, job.Plan.MicroBatchSize))
			}
		}
		if errors.As(err, &misfit) {
			if ways := r.Recipe.WaysOut(r.Model, o, misfit, "method", ""); len(ways) > 0 {
				misfit.Options = ways
			} else {
				job, err = r.Model.Plan(o)
			}
		}
		return job, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("opening the plan: %w", err)
	}
	defer f.Close() // opened for reading
	p, err := plan.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	sizes := map[string]int64{"batch-size": p.MicroBatchSize * int64(p.MicroBatches), "micro-batch-size": p.MicroBatchSize, "seq-len": p.Seq,
		"gradient-accumulation-steps": int64(p.MicroBatches / max(len(o.On), 1))}
	for setting, planned := range sizes {
		if said := r.Recipe.Flags().Lookup(setting).Value.String(); r.Recipe.Given(setting) && said != fmt.Sprint(planned) {
			return nil, &run.SettingError{Err: fmt.Errorf("--%s %s is given, the plan in %s is for %d: leave it out, or make a plan for it with plan --save", setting, said, name, planned)}
		}
	}
	job, err := r.Model.UsePlan(p, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; make a plan for it with plan --save", name, err)
	}
	return job, nil
}
