package finetune

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"spillway/checkpoint"
	"spillway/lora"
	"spillway/plan"
	"spillway/recipe"
	"spillway/run"
	"spillway/store"
	"spillway/train"
)

// setConfig says how the loop runs, up to what the data decides, and where checkpoints
// go. A run that is there already is continued only when the recipe says so.
func (r *Run) setConfig() error {
	t, out := r.Recipe.Training, r.Recipe.Output
	schedule := t.Scheduler
	schedule.Warmup = max(schedule.Warmup, t.WarmupSteps)
	r.config = train.Config{Schedule: schedule, LossScale: t.LossScale, Seed: t.Seed, JournalEvery: out.JournalEvery}
	if r.o.NoSave {
		return nil
	}
	dir := out.Dir
	if dir == "" {
		dir = "trained-" + r.Model.Name
	}
	r.config.Save = &train.Save{Dir: checkpoint.Dir{Path: dir, Keep: out.Keep}, Every: out.SaveSteps}
	found, err := checkpoint.Dir{Path: dir}.List()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking for checkpoints: %w", err)
	}
	last, journal, err := lastCommit(r.Recipe.Disk)
	switch {
	case err != nil:
		return err
	case journal && !out.Resume:
		return fmt.Errorf("%s holds step %d of a run: give --resume to continue it, or another --disk", r.Recipe.Disk, last)
	case len(found) > 0 && !out.Resume:
		return fmt.Errorf("%s has a checkpoint of step %d: give --resume to continue from it, or another --out", dir, found[0].Iteration)
	case len(found) == 0 && !journal && out.Resume:
		return fmt.Errorf("there is no checkpoint in %s to resume from: give the --out of the run, or leave --resume out", dir)
	}
	return nil
}

// lastCommit is the last step that a journal on disk holds; held is false where there is none.
func lastCommit(dir string) (step int64, held bool, err error) {
	if dir == "" {
		return 0, false, nil
	}
	step, err = store.LastCommit(dir)
	if errors.Is(err, store.ErrNoCommit) {
		return 0, false, nil
	}
	return step, err == nil, err
}

// plan makes the plan of the recipe's settings on the devices that are open, or takes the
// one in the recipe's file, whose sizes then count.
func (r *Run) plan() (err error) {
	o := r.Recipe.Complete(r.Rig.Machine.Devices[0])
	o.Machine, o.On = r.Rig.Machine, r.Rig.Devices
	if limit := r.Recipe.MaxHostMemory; limit > 0 {
		o.Machine.Host.Usable = min(o.Machine.Host.Usable, limit)
	}
	o.Optimizer, o.Evaluates = r.Recipe.OptimizerConfig(), r.Recipe.Evaluates()
	if dir := r.Recipe.Training.Adapter; dir != "" {
		if r.adapter, err = lora.Open(checkpoint.Newest(dir)); err != nil {
			return fmt.Errorf("opening the adapter to start from: %w", err)
		}
		o.Adapter, o.Adapters = r.adapter, lora.Options{Base: o.Adapters.Base}
	}
	name := r.Recipe.Output.PlanFile
	switch {
	case name == "" && r.Recipe.AutoBatch:
		r.Job, _, err = r.Model.FastestBatch(o, recipe.MaxMicroBatchSize)
		return err
	case name == "":
		r.Job, err = r.Model.Plan(o)
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("opening the plan: %w", err)
	}
	defer f.Close() // opened for reading
	p, err := plan.Read(f)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for setting, planned := range map[string]int64{"batch-size": p.MicroBatchSize, "seq-len": p.Seq, "gradient-accumulation-steps": int64(p.MicroBatches)} {
		if said := r.Recipe.Flags().Lookup(setting).Value.String(); r.Recipe.Given(setting) && said != fmt.Sprint(planned) {
			return &run.SettingError{Err: fmt.Errorf("--%s %s is given, the plan in %s is for %d: leave it out, or make a plan for it with plan --save", setting, said, name, planned)}
		}
	}
	if r.Job, err = r.Model.UsePlan(p, o); err != nil {
		return fmt.Errorf("%s: %w; make a plan for it with plan --save", name, err)
	}
	return nil
}
