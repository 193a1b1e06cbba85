package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"spillway"
	"spillway/checkpoint"
	"spillway/deepspeed"
	"spillway/lora"
	"spillway/optim"
	"spillway/rig"
	"spillway/train"
)

// trainOptions are the flags of train.
type trainOptions struct {
	*goal
	data         *dataOptions
	eval         *evalOptions
	out          string
	steps        int64
	epochs       int64
	lr, decay    float64
	decays       func() bool // --weight-decay was given
	schedule     string
	warmup       int
	lossScale    optim.LossScale // of fp16; zero: as usual
	seed         uint64
	saveEvery    int64
	keep         int
	constraints  *constraintFlags
	disk         string
	maxHost      string
	journalEvery int64
	resume       bool
	planFile     string
	device       string
	logFile      string
	timeline     string
	adapter      string // folder to begin from
}

func newTrain(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "train MODEL --data FILE...",
		Short: "train a model on this computer, within a memory limit if you like",
		Long: `Trains a model on text. The plan is shown first: it says, before anything is
allocated, where every byte will live. Then a line shows the loss, the speed as a
share of what the resource that binds allows, the memory beside what was predicted,
and the time left; on a pipe it is a plain line every ten seconds.

` + modelHelp + ` A shape starts from fresh weights.

Files that end in .jsonl hold a JSON object per line: a text; a prompt and its
completion; an instruction, an input and an output; or the messages of a chat, which
are written with the model's own template. Of all but the first only answers are
learned. Files that end in .bin hold tokens, others plain text. Documents are packed
into samples of --seq tokens, do not see each other there, and are shuffled by the seed.

Of --eval-data, or of a part of the data that --eval-split holds out, the loss and the
perplexity are told every --eval-every iterations; --patience stops a run that no longer
becomes better.

All flags may stand in a recipe, a YAML file (--recipe); the command line wins over it.
--print-recipe writes one from the flags given.

Checkpoints are model folders that other programs can load. Ctrl-C finishes the iteration
at hand, saves and exits; --resume goes on from there, bit for bit. A second
Ctrl-C quits at once. Sent USR1 (kill -USR1), it plans again between two iterations for
the memory that is free then.

With --disk a model may be larger than all memory: what fits nowhere else rests in
files there. Every completed iteration is then durable: after a crash or a kill
--resume goes on from the last one. It takes twice the space of what is trained, and
the files are gone when the run has ended and saved.`,
		Example: `  spillway train small-llama --data book.txt --steps 500 --out run
  spillway train ./model --method lora --data chats.jsonl --lr 2e-4 --epochs 3 --eval-split 0.05 --eval-every 100 --patience 3
  spillway train ./model --method qlora --data problems.jsonl --format chat --fields question:answer --print-recipe
  spillway train --recipe run.yaml --lr 1e-4
  spillway train ./model --data book.txt --max-memory 2GiB --batch 4 --accumulate 8 --schedule cosine --warmup 50 --steps 2000
  spillway train ./model --data book.txt --disk /mnt/nvme/run --max-memory 1GiB --max-host-memory 4GiB --steps 100
  spillway train ./model --data book.txt --optim paged_adamw_8bit --log run.csv --steps 2000
  spillway train small-llama --data book.txt --steps 500 --out run --resume`,
	}
	asJSON := jsonFlag(cmd)
	file := cmd.Flags().String("recipe", "", "take what the command line leaves out from the YAML `FILE`")
	print := cmd.Flags().Bool("print-recipe", false, "write the flags given as a recipe, and do nothing else")
	cmd.Args = modelOrRecipe(file)
	o := trainFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		model, err := applyRecipe(cmd, *file, args)
		if err != nil {
			return err
		}
		if *print {
			return printRecipe(sh.out, cmd, model)
		}
		if model == "" {
			return usageErrorf("neither the command line nor %s names a model", *file)
		}
		return o.command(cmd.Context(), sh, *asJSON, model)
	}
	return cmd
}

// command trains and writes what came of it.
func (o *trainOptions) command(ctx context.Context, sh shell, asJSON bool, model string) error {
	text := sh.out
	if asJSON {
		text = io.Discard
	}
	r, err := o.train(ctx, sh, text, model)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(sh.out, r)
	}
	var p page
	p.WriteString("\n")
	r.write(&p)
	_, err = io.WriteString(text, p.String())
	return err
}

func trainFlags(cmd *cobra.Command) *trainOptions {
	o := &trainOptions{goal: methodFlags(cmd), data: dataFlags(cmd), eval: evalFlags(cmd)}
	f := cmd.Flags()
	f.StringVar(&o.out, "out", "", "save checkpoints in `DIR` (default: trained-MODEL)")
	f.Int64Var(&o.steps, "steps", 0, "train `N` iterations in all (default: as many as --epochs come to)")
	f.Int64Var(&o.epochs, "epochs", 1, "pass over the data `N` times; --steps says otherwise")
	f.Float64Var(&o.lr, "lr", 1e-4, "learning rate `X` at its highest")
	f.StringVar(&o.schedule, "schedule", "constant", "of the rate: `constant|linear|cosine|step`, with options if wanted: cosine:floor=0.1")
	f.IntVar(&o.warmup, "warmup", 0, "let the rate rise to its highest for `N` iterations")
	f.Float64Var(&o.decay, "weight-decay", 0, "decay weights, but not biases and norms, by a factor of `X` (default: the optimizer's, 0.01 of adamw)")
	f.Uint64Var(&o.seed, "seed", 0, "derive fresh weights, the order of the data and dropout from `N`")
	f.Int64Var(&o.saveEvery, "save-every", 0, "save every `N` iterations (default: at the end only)")
	f.IntVar(&o.keep, "keep", 2, "keep the newest `N` checkpoints, 0 for all")
	f.StringVar(&o.maxHost, "max-host-memory", "", "take at most `SIZE` of host memory; a CPU's device memory is part of it (default: all that is free)")
	diskFlag(cmd, &o.disk)
	f.Int64Var(&o.journalEvery, "durable-every", 1, "make every `N`-th iteration durable on --disk: fewer writes, more to do again after a kill")
	f.BoolVar(&o.resume, "resume", false, "go on from the newest checkpoint in --out, or from the last iteration on --disk")
	f.StringVar(&o.planFile, "plan", "", "carry out the plan in `FILE`, from plan --save, instead of making one")
	o.constraints = addConstraintFlags(cmd)
	f.StringVar(&o.device, "device", "", deviceHelp)
	f.StringVar(&o.logFile, "log", "", "append a JSON object per iteration to `FILE`, or to FILE.csv a line of a table")
	timelineFlag(cmd, &o.timeline, "the third iteration ran")
	f.StringVar(&o.adapter, "adapter", "", "begin lora or qlora from the adapter in `DIR`, of PEFT or of another run; its options count instead of flags")
	o.decays = func() bool { return f.Changed("weight-decay") }
	return o
}

// check refuses flags that make no sense together.
func (o *trainOptions) check() error {
	if err := o.goal.check(); err != nil {
		return err
	}
	switch {
	case o.adapter != "" && !o.goal.adapters():
		return usageErrorf("--adapter is to begin from with --method lora or qlora, not %s", method{&o.task})
	case o.steps < 0 || o.epochs < 1 || o.warmup < 0 || o.saveEvery < 0 || o.keep < 0 || o.journalEvery < 0:
		return usageErrorf("--steps, --warmup, --save-every, --keep and --durable-every cannot be negative, --epochs is at least 1")
	}
	if err := o.data.check(); err != nil {
		return err
	}
	return o.checkEval()
}

// optimizer is the one named, with the rate and decay of the flags.
func (o *trainOptions) optimizer() optim.Config {
	c := o.optim
	c.LR = o.lr
	if o.decays() {
		c.WeightDecay = o.decay
	}
	return c
}

// train does it all, and tells people on the way what happens.
func (o *trainOptions) train(ctx context.Context, sh shell, text io.Writer, arg string) (r trainReport, err error) {
	if err := o.check(); err != nil {
		return r, err
	}
	m, err := spillway.Open(arg)
	if err != nil {
		return r, err
	}
	defer m.Close() // opened for reading
	m.Seed = o.seed
	here, err := o.openRig(sh)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, here.Close()) }()
	options := o.options(here.Machine, here.Machine.Devices[0])
	options.On, options.Disk = here.Devices, o.disk
	if options.Adapter, err = openInitialAdapter(o.adapter); err != nil {
		return r, err
	}
	if options.Adapter != nil {
		defer options.Adapter.Close() // opened for reading
		options.Adapters = lora.Options{Base: options.Adapters.Base}
	}
	wanted, notices, err := o.constraints.apply(o.goal, &options)
	if err != nil {
		return r, err
	}
	config, err := o.fill(wanted).config(m)
	if err != nil {
		return r, err
	}
	options.Optimizer = o.optimizer()
	run, job, err := o.start(sh, text, m, here, options)
	if err != nil {
		return r, err
	}
	from, err := o.prepare(run.line, m, arg, job.Plan)
	if err != nil {
		return r, err
	}
	defer from.files.close() // read only
	job.Notices = append(notices, job.Notices...)
	return o.carryOut(ctx, run, job, from, config)
}

// openRig opens the devices to train on, within the limit of the host.
func (o *trainOptions) openRig(sh shell) (here *rig.Rig, err error) {
	if o.disk, err = o.constraints.disk(o.disk); err != nil {
		return nil, err
	}
	if here, err = sh.open(o.device, diskOptions(o.disk)); err != nil {
		return nil, err
	}
	if err := limitHost(&here.Machine, o.maxHost); err != nil {
		return nil, errors.Join(err, here.Close())
	}
	return here, nil
}

// carryOut shows what will be done, and does it.
func (o *trainOptions) carryOut(ctx context.Context, run *training, job *spillway.Job, from material, c train.Config) (r trainReport, err error) {
	c.Iterations, c.Evaluate = from.iterations, o.evaluation(from.held)
	if err := showPlan(run.log, job, o.goal, run.rig.Reason); err != nil {
		return r, err
	}
	if err := showData(run.log, from.report); err != nil {
		return r, err
	}
	if err := run.logTo(o.logFile); err != nil {
		return r, err
	}
	watched, err := openTimeline(o.timeline)
	if err != nil {
		return r, err
	}
	if watched != nil {
		c.Timeline = watched.write
	}
	result, err := run.run(ctx, job, from.feed, c)
	if err = errors.Join(err, run.closeLog(), watched.close(run.log)); err != nil {
		return r, err
	}
	r = run.summary(job, result)
	r.Data = &from.report
	return r, nil
}

// showData says what is trained on.
func showData(w io.Writer, r dataReport) error {
	var p page
	r.write(&p)
	_, err := io.WriteString(w, p.String())
	return err
}

// config is the run for the library.
func (o *trainOptions) config(m *spillway.Model) (train.Config, error) {
	schedule, err := optim.ParseSchedule(o.schedule)
	if err != nil {
		return train.Config{}, usageError{err}
	}
	schedule.Warmup = max(schedule.Warmup, o.warmup)
	dir, err := o.folder(m)
	return train.Config{
		Schedule: schedule, LossScale: o.lossScale, Seed: o.seed, JournalEvery: o.journalEvery,
		Save: &train.Save{Dir: checkpoint.Dir{Path: dir, Keep: o.keep}, Every: o.saveEvery},
	}, err
}

// fill takes the rate, the schedule and the loss scale from DeepSpeed's file, if there is one.
func (o *trainOptions) fill(c *deepspeed.Config) *trainOptions {
	if c != nil && c.LearningRate > 0 {
		o.lr = c.LearningRate
	}
	if c != nil && c.Schedule != nil {
		o.schedule = c.Schedule.String()
	}
	if c != nil {
		o.lossScale = c.LossScale
	}
	return o
}
