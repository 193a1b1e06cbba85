// Package finetune trains a model on files of text, as the command spillway train does:
// recipe to plan, plan to corpus, corpus to run, run to result.
//
//	r, err := recipe.Read("run.yaml")
//	result, err := finetune.Train(ctx, r, finetune.Options{})
//	fmt.Println(result.EvalLoss)
//
// Prepare stops before the first step, for programs that look at the plan and the data
// before they go on.
package finetune

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"spillway"
	"spillway/eventlog"
	"spillway/internal/vfs"
	"spillway/lora"
	"spillway/recipe"
	"spillway/rig"
	"spillway/run"
	"spillway/trace"
	"spillway/train"
)

// Options say how devices are opened and who hears of a run. All may be left out.
type Options struct {
	Rig      rig.Options
	Progress Progress           // of reading the data, and of loading weights
	Report   func(train.Report) // of every step
	Notice   func(string)       // of what is done otherwise than asked
	NoSave   bool               // write no checkpoints and no event log, for runs that are only measured
	Program  string             // version of the program that trains, for the event log
	// Alert receives what a person should look at, after it was noticed; nil is fine.
	Alert func(eventlog.Alert)
	// Timeline receives when each instruction of an early step ran; nil is fine.
	Timeline func(step int64, instructions []trace.Event)
	// Profile asks for the times of the ops of an early step: Result.Profile.
	Profile bool
	// TraceLast has both be of the last two steps.
	TraceLast bool
}

// Run is a recipe with its plan and its data, before its first step.
type Run struct {
	Recipe *recipe.Recipe
	Model  *spillway.Model
	Rig    *rig.Rig // the devices, open
	Job    *spillway.Run
	Corpus *Corpus
	// Resumed says where the run goes on from; "" where it begins.
	Resumed string
	// Monitor has what the steps have reported so far.
	Monitor *Monitor

	o              Options
	out            string        // folder for checkpoints
	release        func() error  // ends the claim on it; nil without one
	adapter        *lora.Adapter // that training starts from; nil for none
	microBatchSize int64         // of the run that is resumed; 0 where none is
}

// Train carries out a recipe: it opens the model and the devices, makes a plan, reads the
// data, and trains.
// When ctx is done it finishes the step at hand, saves and returns.
func Train(ctx context.Context, r *recipe.Recipe, o Options) (result Result, err error) {
	run, err := Prepare(r, o)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	return run.Train(ctx)
}

// Prepare does all that comes before the first step. The caller closes the run.
func Prepare(settings *recipe.Recipe, o Options) (r *Run, err error) {
	if err := settings.Check(); err != nil {
		return nil, err
	}
	r = &Run{Recipe: settings, o: o}
	defer func() {
		if err != nil {
			r, err = nil, errors.Join(err, r.Close())
		}
	}()
	if r.Model, err = spillway.Open(settings.Model); err != nil {
		return r, err
	}
	r.Model.Seed = settings.Training.Seed
	if err := settings.DeepSpeedDisk(); err != nil {
		return r, err
	}
	o.Rig.Disk = vfs.ExistingParent(vfs.OS, settings.Disk)
	if r.Rig, err = rig.Open(settings.Device, o.Rig); err != nil {
		return r, err
	}
	options, notices, err := r.options()
	if err != nil {
		return r, err
	}
	if !o.NoSave {
		if err := r.findOutput(); err != nil {
			return r, err
		}
	}
	if r.Corpus, err = OpenCorpus(settings, r.Model, o.Progress); err != nil {
		return r, err
	}
	if o.Progress != nil {
		o.Progress("making a plan", 0, 0)
	}
	options.Document = r.Corpus.Document(cmp.Or(options.Seq, r.Model.UsualSeq()))
	if r.Job, err = r.plan(options); err != nil {
		return r, err
	}
	if task := r.Recipe.Task; r.Model.Folder == nil && !r.o.NoSave && (task == spillway.LoRA || task == spillway.QLoRA) {
		return r, fmt.Errorf("%s has random weights, which no adapter's folder has: write them first with spillway init %s --out FOLDER, or train all of them with --method full", r.Model.Name, r.Recipe.Model)
	}
	r.Job.Notices = append(notices, r.Job.Notices...)
	r.Monitor = NewMonitor(r.Job, r.Rig)
	if err := r.Corpus.Pack(r.Job.Plan); err != nil {
		return r, err
	}
	return r, r.checkSteps()
}

// checkSteps refuses settings of steps that the run does not have.
func (r *Run) checkSteps() error {
	t, steps := r.Recipe.Training, r.Corpus.Steps
	if warmup := t.Warmup(steps); int64(warmup) >= steps && warmup > 1 {
		return &run.SettingError{Err: fmt.Errorf("the peak learning rate after %d warm-up steps is never reached: the run has %d steps; give fewer --warmup-steps, or a smaller --warmup-ratio", warmup, steps)}
	}
	schedule := t.Scheduler
	schedule.Warmup = t.Warmup(steps)
	schedule, err := schedule.Over(int(steps), r.Job.Options.Optimizer.LR)
	if err == nil {
		err = schedule.Check()
	}
	if err != nil {
		return &run.SettingError{Err: fmt.Errorf("--lr-scheduler: %w", err)}
	}
	if p := r.Job.Options.StatePolicy; p.Preset != "" && int64(p.Warmup) >= steps {
		r.Job.Notices = append(r.Job.Notices, fmt.Sprintf("--state-policy %s has no effect: its warm-up is %d steps, the run has %d", p, p.Warmup, steps))
	}
	if r.Recipe.Evaluates() && r.Job.Options.Optimizer.Name == "schedule_free_adamw" {
		r.Job.Notices = append(r.Job.Notices, "evaluations are of the weights that gradients are taken at; export --average writes the average that schedule_free_adamw is evaluated with")
	}
	return nil
}

// Dir is the folder of the run, in which its checkpoints and its event log are; "" where
// nothing is saved.
func (r *Run) Dir() string { return r.out }

// Close closes the devices and all files.
func (r *Run) Close() error {
	var errs []error
	if r.Corpus != nil {
		errs = append(errs, r.Corpus.Close())
	}
	if r.adapter != nil {
		errs = append(errs, r.adapter.Close())
	}
	if r.Model != nil {
		errs = append(errs, r.Model.Close())
	}
	if r.Rig != nil {
		errs = append(errs, r.Rig.Close())
	}
	if r.release != nil {
		errs = append(errs, r.release())
	}
	return errors.Join(errs...)
}
