// Package recipe names the settings of a run. Each setting is declared once, with its
// name, its help and the field it sets: as a flag of the command line and as a key of a
// YAML file that people write, read and share.
//
//	model: ./llama
//	data: [chats.jsonl]
//	method: lora
//	learning-rate: 2e-4
//
// A Recipe is a whole fine-tuning run, a Plan the part of it that decides where bytes
// are stored and when they move. Read makes a Recipe from a file; package finetune
// carries it out.
package recipe

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"spillway/data"
	"spillway/internal/vfs"
	"spillway/optim"
)

// Recipe is a fine-tuning run: a model, what to train it on, and how. New gives one with
// the defaults.
type Recipe struct {
	Model string // a folder, or the name of a preset
	Plan
	// Device to run on: "cpu", "cuda:0"; "" is the first GPU that opens, else the CPU.
	Device string

	Data     Data
	Eval     Eval
	Training Training
	Output   Output

	flags *flag.FlagSet
}

// Data says which files are trained on and how they become sequences of tokens.
type Data struct {
	// Files are paths, "-" for standard input, or path=weight: a pass over the data then has so
	// many times the documents of that file.
	Files []string
	Stdin io.Reader // what "-" reads; nil is the program's own
	// Format of JSON lines and the names of their Fields; "" finds out from the first line.
	Format data.Format
	Fields string // colons between them
	// PromptSeparator stands between a prompt and its completion; nil is nothing, and a newline
	// where Fields names the two, such as question:answer, since those are texts of their own.
	PromptSeparator *string
	// ChatTemplate is a file with a Jinja template, Tokenizer one with a tokenizer, or
	// "bytes"; "" takes the model's own.
	ChatTemplate, Tokenizer string
	// Today is the date that chat templates see, so that a run reads the same tokens
	// whenever it is started.
	Today time.Time
	// Packing is PackSplit, PackWhole, PackNone, or "" for what suits the data.
	Packing    Packing
	TokenBytes int // of a token in .bin files: 2, 4, or 0 for what the vocabulary needs
	// SkipBadLines leaves out lines that cannot be used, and counts them.
	SkipBadLines bool
	// TrainOnPrompts has prompts in the loss, not only answers.
	TrainOnPrompts bool
}

// FileWeight splits FILE=WEIGHT; the weight of a file alone is 1.
func FileWeight(name string) (path string, weight float64, err error) {
	at := strings.LastIndexByte(name, '=')
	if at < 0 {
		return name, 1, nil
	}
	weight, err = strconv.ParseFloat(name[at+1:], 64)
	if err != nil || !(weight > 0) || weight > maxWeight {
		return name, 0, settingErrorf("--data %q; write a weight as FILE=0.5, a number from 0 to %d", name, maxWeight)
	}
	return name[:at], weight, nil
}

// maxWeight is how often a pass over the data has a file at most.
const maxWeight = 1000

// Packing says what happens to a document that does not fit into the rest of a sequence.
type Packing string

// The ways to pack.
const (
	PackSplit Packing = "split" // it is split, and goes on in the next sequence
	PackWhole Packing = "whole" // it begins the next sequence, and the rest is padding
	PackNone  Packing = "none"  // every document begins a sequence
)

// Eval says what is evaluated and when.
type Eval struct {
	Files []string
	Split float64 // share of the documents to evaluate on, where there are no Files
	// Steps between evaluations; 0 evaluates after the last step only.
	Steps    int64
	Batches  int64 // at most; 0 for all of the data
	Patience int64 // stop after so many evaluations without a better loss; 0 never does
	KeepBest bool  // keep the checkpoint with the lowest loss
}

// Training says how long and how fast to learn.
type Training struct {
	MaxSteps int64 // 0: as many as Epochs take
	// Epochs are passes over the data, 0.5 for half of one.
	Epochs       float64
	LearningRate float64  // at its peak
	WeightDecay  *float64 // nil: the optimizer's default
	Scheduler    optim.Schedule
	WarmupSteps  int
	WarmupRatio  float64         // warm-up as a share of all steps, rounded up; 0: WarmupSteps counts
	warmupShare  float64         // the same, given as --warmup-steps below 1
	LossScale    optim.LossScale // of fp16; zero: the default
	Seed         uint64
	Adapter      string // folder of an adapter to start from
}

// Output says what is written and where a run continues.
type Output struct {
	Dir          string // "" is trained-MODEL
	SaveSteps    int64  // steps between checkpoints; 0 saves at the end
	Keep         int    // newest checkpoints to keep; 0 for all
	JournalEvery int64  // steps between commits of the journal on disk
	Resume       bool
	AllowChanges bool   // resume with other settings than the run had
	PlanFile     string // carry out this plan instead of making one
	Log          string // append a JSON object per step, or to FILE.csv a line
	Timeline     string // write when each instruction of the third step ran
}

// defaultDay is the date that chat templates see. Llama's templates have it where no
// clock is at hand.
var defaultDay = time.Date(2024, 7, 26, 0, 0, 0, 0, time.UTC)

// New is a recipe with the defaults.
func New() *Recipe {
	r := &Recipe{
		Plan:     *NewPlan(),
		Data:     Data{Today: defaultDay},
		Eval:     Eval{Batches: 20},
		Training: Training{Epochs: 1, LearningRate: 1e-4},
		Output:   Output{Keep: 2, JournalEvery: 1},
	}
	r.flags = flag.NewFlagSet("recipe", flag.ContinueOnError)
	r.declare(r.flags)
	return r
}

// Flags are the settings with their names; Set of a flag changes the recipe.
func (r *Recipe) Flags() *flag.FlagSet { return r.flags }

// declare gives every setting its name, its help and its field.
func (r *Recipe) declare(f *flag.FlagSet) {
	f.StringVar(&r.Model, ModelKey, "", "a model folder, or the name of a preset")
	parsed(f, Version, VersionKey, "of the names below", func(text string) error {
		if text != Version {
			return fmt.Errorf("this program reads version %s; write it again with --print-recipe", Version)
		}
		return nil
	})
	r.methodFlag(f)
	r.Plan.Flags(f)
	f.StringVar(&r.Device, "device", "", DeviceHelp)
	r.Data.flags(f)
	r.Eval.flags(f)
	r.Training.flags(f)
	r.Output.flags(f)
	addAliases(f)
}

// ModelKey is the key of a recipe that names the model; on the command line it is the
// argument.
const ModelKey = "model"

func (d *Data) flags(f *flag.FlagSet) {
	files(f, &d.Files, "data", "train on `FILE` (.jsonl, .json, .parquet, .csv, .txt; also .gz, .zst), - for standard input, or FILE=0.5 for half of its documents in each pass; may be given several times")
	formats := map[string]data.Format{"auto": ""}
	for _, format := range data.Formats {
		formats[string(format)] = format
	}
	enumAs(f, &d.Format, "format", "JSON lines hold `auto|text|completion|instruct|chat`; auto looks at the names of their fields", formats)
	f.StringVar(&d.Fields, "fields", "", "`NAMES` of the fields of JSON lines, separated by colons: text, or prompt:completion, or instruction:input:output,\nor messages (default: these)")
	parsed(f, "", "prompt-separator", "put `TEXT` between a prompt and its completion; \\n is a newline (default: nothing, so that both are one text; a newline where --fields names them otherwise)", func(text string) error {
		text = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t").Replace(text)
		d.PromptSeparator = &text
		return nil
	})
	f.StringVar(&d.ChatTemplate, "chat-template", "", "write conversations with the Jinja template in `FILE` (default: the model's own)")
	parsed(f, d.Today.Format(time.DateOnly), "today", "the `DATE` that chat templates see when they ask for it", func(text string) error {
		day, err := time.Parse(time.DateOnly, text)
		if err != nil {
			return fmt.Errorf("it is a date such as %s", d.Today.Format(time.DateOnly))
		}
		d.Today = day
		return nil
	})
	f.StringVar(&d.Tokenizer, "tokenizer", "", "a tokenizer.json `FILE`, a .bin file as llama2.c has them, or bytes (default: the model's own; bytes for a model of 256 tokens)")
	enumAs(f, &d.TokenBytes, "token-bytes", "bytes per token in .bin files, `2|4` (default: 2 where the vocabulary allows it)", map[string]int{"2": 2, "4": 4})
	f.BoolVar(&d.SkipBadLines, "skip-bad-lines", false, "leave out lines that cannot be used, and count them, instead of refusing the file")
	f.BoolVar(&d.TrainOnPrompts, "train-on-prompts", false, "have prompts in the loss too, not only answers")
	enum(f, &d.Packing, "packing", "`split|whole|none`: split a document at the end of a sequence, or begin the next sequence with it and pad,\nor give each document a sequence of its own (default: whole where only answers are in the loss, else split)", PackSplit, PackWhole, PackNone)
}

func (e *Eval) flags(f *flag.FlagSet) {
	files(f, &e.Files, "eval-data", "evaluate on `FILE`; may be given several times")
	within(f, &e.Split, 0, 1, "eval-split", "evaluate on a share `X` of the documents, or on the end of a single text, which are not trained on (default: 0.05 if an evaluation is asked for without --eval-data)")
	atLeast(f, &e.Steps, 0, "eval-steps", "evaluate every `N` steps (default: after the last, if there is data to evaluate on)")
	atLeast(f, &e.Batches, 0, "eval-batches", "evaluate on at most `N` batches, 0 for all of the data")
	atLeast(f, &e.Patience, 0, "patience", "stop after `N` evaluations in a row without a lower loss, and keep the best checkpoint (default: never)")
	f.BoolVar(&e.KeepBest, "keep-best", false, "keep the checkpoint with the lowest eval loss, in addition to the newest")
}

func (t *Training) flags(f *flag.FlagSet) {
	atLeast(f, &t.MaxSteps, 1, "max-steps", "take `N` optimizer steps in all (default: as many as --epochs need)")
	parsed(f, "1", "epochs", "pass over the data `X` times, where --max-steps is not given; 0.5 is the first half of its steps", t.setEpochs)
	within(f, &t.LearningRate, 0, math.MaxFloat64, "learning-rate", "peak learning rate `X`")
	parsed(f, "constant", "lr-scheduler", "learning rate schedule `NAME`: "+strings.Join(optim.ScheduleKinds(), ", ")+"; with options if wanted, such as transformers'\nlr_scheduler_kwargs: cosine:floor=0.1, warmup_stable_decay:num_decay_steps=100", func(text string) (err error) {
		t.Scheduler, err = optim.ParseSchedule(text)
		return err
	}, optim.ScheduleKinds()...)
	t.warmupFlags(f)
	parsed(f, "", "weight-decay", "weight decay `X`, not applied to biases and norms (default: the optimizer's, 0.01 of adamw)", func(text string) error {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !(x >= 0) || math.IsInf(x, 0) {
			return fmt.Errorf("%q is not a finite number from 0 on", text)
		}
		t.WeightDecay = &x
		return nil
	})
	parsed(f, "0", "seed", "derive random initial weights, the order of the data and dropout from `N`", func(text string) (err error) {
		if t.Seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			err = fmt.Errorf("it is an integer from 0 on")
		}
		return err
	})
	f.StringVar(&t.Adapter, "adapter", "", "start lora or qlora from the adapter in `DIR`, PEFT's or another run's; its options override the flags")
}

func (o *Output) flags(f *flag.FlagSet) {
	f.StringVar(&o.Dir, "out", "", "save checkpoints in `DIR` (default: trained-MODEL)")
	atLeast(f, &o.SaveSteps, 0, "save-steps", "save every `N` steps (default: at the end only)")
	atLeast(f, &o.Keep, 0, "keep", "keep the newest `N` checkpoints, 0 for all")
	atLeast(f, &o.JournalEvery, 0, "journal-every", "commit every `N`-th step to the journal on --disk: fewer writes, more to do again after a kill")
	f.BoolVar(&o.Resume, "resume", false, "continue from the newest checkpoint in --out, or from the last step in the journal on --disk")
	f.BoolVar(&o.AllowChanges, "allow-changes", false, "with --resume: go on with another learning rate, schedule, clipping, batch size or seed than the run had")
	f.StringVar(&o.PlanFile, "plan", "", "carry out the plan in `FILE`, from plan --save, instead of making one")
	f.StringVar(&o.Log, "log", "", "append a JSON object per step to `FILE`, or a line of a table to FILE.csv")
	f.StringVar(&o.Timeline, "timeline", "", "write when each instruction of the third step ran to `FILE`, which Perfetto and chrome://tracing show")
}

// Evaluates says whether anything is evaluated.
func (r *Recipe) Evaluates() bool {
	return r.Eval.Steps > 0 || r.Eval.Split > 0 || len(r.Eval.Files) > 0
}

// OptimizerConfig is the optimizer with the learning rate and the weight decay of the recipe.
func (r *Recipe) OptimizerConfig() optim.Config {
	c := r.Plan.Optimizer
	if !hasOption(r.flags.Lookup("optimizer").Value.String(), "lr") {
		c.LR = r.Training.LearningRate
	}
	if r.Training.WeightDecay != nil {
		c.WeightDecay = *r.Training.WeightDecay
	}
	return c
}

// Given says whether a setting was set, under its name or another program's.
func (r *Recipe) Given(name string) bool { return Given(r.flags, name) }

// Read reads the recipe in a file. What the file leaves out has the defaults.
func Read(file string) (*Recipe, error) {
	r := New()
	return r, r.Read(file)
}

// Read takes from a file what is not set yet, so that what was set before wins.
func (r *Recipe) Read(file string) error {
	raw, err := vfs.ReadFile(vfs.OS, file, maxFile)
	if err != nil {
		return fmt.Errorf("reading the recipe: %w", err)
	}
	return r.read(file, raw)
}

// read is Read of the contents of a file.
func (r *Recipe) read(file string, raw []byte) error {
	d, err := parse(file, raw, r.keys())
	if err != nil {
		return err
	}
	given := map[string]bool{}
	for _, s := range d.settings {
		given[s.name] = r.Given(s.name) || instead[s.name] != "" && r.Given(instead[s.name])
	}
	for _, s := range d.settings {
		if given[s.name] {
			continue
		}
		for _, v := range s.values {
			if err := r.flags.Set(s.name, v); err != nil {
				return d.at(s, fmt.Errorf("%s %q: %w", s.name, v, err))
			}
		}
	}
	return nil
}

// Version of recipe files. One without a version is taken to be of this one.
const (
	Version    = "2"
	VersionKey = "version"
)

// instead are settings that say the same as others in another way: what was set before
// wins in either.
var instead = map[string]string{"epochs": "max-steps", "max-steps": "epochs", "eval-split": "eval-data", "eval-data": "eval-split", "warmup-steps": "warmup-ratio", "warmup-ratio": "warmup-steps"}

// Write writes what is set as a recipe, and everything else with its default as comments.
func (r *Recipe) Write(w io.Writer) error {
	return r.writeAs(w, func(_, value string) (string, bool) { return value, true })
}

// RunName is the name of the recipe in the folder of its run.
const RunName = "recipe.yaml"

// named are the settings that may name files and folders.
var named = []string{ModelKey, "data", "eval-data", "tokenizer", "chat-template", "deepspeed", "device-map", "disk", "adapter", "log", "timeline", "plan"}

// WriteRun writes the recipe to the folder of its run, so that it can be continued from
// there alone: files have absolute names.
func (r *Recipe) WriteRun(dir string) error {
	return vfs.Replace(vfs.OS, filepath.Join(dir, RunName), func(w io.Writer) error {
		return r.writeAs(w, func(name, value string) (string, bool) {
			there, err := vfs.Exists(vfs.OS, value)
			if name == ModelKey && sameFolder(value, dir) {
				there = false // the run's own folder came after: the model is a preset of the same name
			}
			if slices.Contains(named, name) && (there && err == nil || name == "disk" || name == "log" || name == "timeline") {
				if path, err := filepath.Abs(value); err == nil {
					value = path
				}
			}
			return value, !slices.Contains([]string{"out", "resume", "allow-changes"}, name)
		})
	})
}

// sameFolder says whether two names are of the same folder.
func sameFolder(a, b string) bool {
	x, err := filepath.Abs(a)
	if err != nil {
		return false
	}
	y, err := filepath.Abs(b)
	return err == nil && x == y
}

// ReadRun takes what is not set yet from the recipe in the folder of the run that is
// continued, if there is one.
func (r *Recipe) ReadRun() error {
	file := filepath.Join(cmp.Or(r.Output.Dir, "trained-"+filepath.Base(r.Model)), RunName)
	if there, err := vfs.Exists(vfs.OS, file); err != nil || !there {
		return err
	}
	return r.Read(file)
}

// writeAs writes what is set, with other values than it has, or not at all.
func (r *Recipe) writeAs(w io.Writer, as func(name, value string) (string, bool)) error {
	set := map[string][]string{}
	known := slices.DeleteFunc(r.keys(), func(k *flag.Flag) bool { return Aliases[k.Name] != "" })
	for _, k := range known {
		if k.Name != VersionKey && !r.Given(k.Name) {
			continue
		}
		values := []string{k.Value.String()}
		if list, ok := k.Value.(*List); ok {
			values = list.values
		}
		for _, v := range values {
			if v, ok := as(k.Name, v); ok {
				set[k.Name] = append(set[k.Name], v)
			}
		}
	}
	return write(w, known, set)
}

// keys are the settings in the order of recipes: the version and the model first.
func (r *Recipe) keys() (known []*flag.Flag) {
	r.flags.VisitAll(func(f *flag.Flag) { known = append(known, f) })
	first := []string{ModelKey, VersionKey}
	slices.SortStableFunc(known, func(a, b *flag.Flag) int {
		return cmp.Compare(slices.Index(first, b.Name), slices.Index(first, a.Name))
	})
	return known
}

// DeviceHelp explains --device where devices are opened.
const DeviceHelp = "run on `NAME`: cpu, cpu:avx2 (without AVX-512), cuda:0, part of a GPU such as cuda:0/2 (one half), or several equal devices, separated by commas;\ntf32 at the end lets GPUs compute f32 matmuls and attention in TF32 (default: the first GPU that opens, else the CPU)"
