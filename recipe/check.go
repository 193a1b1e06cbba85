package recipe

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"spillway"
	"spillway/run"
)

// settingErrorf is an error of settings that contradict each other, or have no effect.
func settingErrorf(format string, args ...any) error {
	return &run.SettingError{Err: fmt.Errorf(format, args...)}
}

// Given says whether a setting was set, under its name or another program's.
func Given(fs *flag.FlagSet, name string) (given bool) {
	of := fs.Lookup(name)
	fs.Visit(func(f *flag.Flag) { given = given || of != nil && f.Value == of.Value })
	return given
}

// idle is settings that have no effect unless something holds.
type idle struct {
	settings []string
	unless   bool
	because  string
}

// refuse is an error if a setting is given that has no effect.
func refuse(given func(string) bool, list ...idle) error {
	for _, c := range list {
		for _, name := range c.settings {
			if !c.unless && given(name) {
				return settingErrorf("--%s has no effect: %s, or leave it out", name, c.because)
			}
		}
	}
	return nil
}

// Settings that only some tasks read.
var (
	adapterSettings = []string{"lora-rank", "lora-alpha", "lora-dropout", "target-modules", "exclude-modules", "layers-to-transform", "rank-pattern", "alpha-pattern",
		"modules-to-save", "use-rslora", "use-dora", "lora-bias", "init-lora-weights"}
	qloraSettings = []string{"quantization", "llm-int8-threshold", "no-quantize"}
	trainSettings = []string{"gradient-accumulation-steps", "optimizer", "state-policy", "max-grad-norm", "optimizer-device", "evaluate", "document-len", "canonical-sums", "param-group", "freeze", "ema", "centralize-gradients"}
)

// CheckEffects refuses settings of a plan that are given and have no effect. Task is the name
// of the setting that says what is trained.
func (p *Plan) CheckEffects(given func(string) bool, task string) error {
	if p.CanonicalSums && p.AutoBatch {
		return settingErrorf("--canonical-sums with --batch-size auto: the size would depend on the machine, and the bits on the size; give a number")
	}
	if p.Mixture != "" && p.Task != spillway.Infer && p.Task != spillway.Generate {
		return settingErrorf("--quantization %s is of GGUF files: to train on one, name the file; a preset with such weights is only planned to be run, with --%s infer or generate", p.Mixture, task)
	}
	if err := refuse(given, idle{[]string{"llm-int8-threshold", "no-quantize"}, p.Mixture == "", "the types of a GGUF file are fixed by " + p.Mixture + "; name another --quantization"}); err != nil {
		return err
	}
	frozen := "infer, generate or lora"
	if task == "method" {
		frozen = "lora"
	}
	return refuse(given,
		idle{trainSettings, p.Task.Trains(), "nothing is trained; give --" + task + " train, lora or qlora"},
		idle{adapterSettings, p.Task == spillway.LoRA || p.Task == spillway.QLoRA, "it is for adapters; give --" + task + " lora or qlora"},
		idle{qloraSettings, p.Task == spillway.QLoRA || given("quantization") && (p.Task == spillway.Infer || p.Task == spillway.Generate), "it is for quantized frozen weights; give --" + task + " qlora"},
		idle{[]string{"all-logits"}, p.Task == spillway.Infer, "logits are what an inference gives; give --" + task + " infer"},
		idle{[]string{"compress-weights"}, p.Task == spillway.Infer || p.Task == spillway.Generate || p.Task == spillway.LoRA, "frozen weights are compressed; give --" + task + " " + frozen},
		idle{generationSettings, p.Task == spillway.Generate, "nothing is generated; give --" + task + " generate"},
		idle{batchSettings, p.Task != spillway.Generate, "--context and --streams say how long and how many sequences are"},
	)
}

// endings are how the names of the data's files end, to train or to evaluate on.
func (r *Recipe) endings() (list []string) {
	for _, name := range slices.Concat(r.Data.Files, r.Eval.Files) {
		if path, _, err := FileWeight(name); err == nil {
			name = path
		}
		list = append(list, filepath.Ext(Uncompressed(name)))
	}
	return list
}

// Uncompressed is the name of a file without the ending that says how it is compressed.
func Uncompressed(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
}

// isPipe reports whether a file of data can be read only once, such as standard input.
func isPipe(name string) bool {
	path, _, err := FileWeight(name)
	if err != nil || path == "-" {
		return err == nil
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice|fs.ModeSocket) != 0
}

// Check refuses settings that contradict each other, and those that have no effect.
func (r *Recipe) Check() error {
	e, optimizer, schedule := r.Eval, r.flags.Lookup("optimizer").Value.String(), r.flags.Lookup("lr-scheduler").Value.String()
	switch {
	case r.Model == "" && r.Output.Resume && r.Output.Dir != "":
		return settingErrorf("there is no run in %s to resume, since it has no recipe.yaml: give the --out of a run, or MODEL and what it is trained on", r.Output.Dir)
	case r.Model == "":
		return settingErrorf("there is no model: name a folder or a preset")
	case len(r.Data.Files) == 0:
		return settingErrorf("--data is missing: name a file of text to train on")
	case len(slices.DeleteFunc(slices.Clone(r.Data.Files), func(name string) bool { path, _, _ := FileWeight(name); return path != "-" })) > 1:
		return settingErrorf("--data - is given twice: standard input can be read once")
	case slices.Contains(e.Files, "-"):
		return settingErrorf("--eval-data -: standard input is for --data; name a file to evaluate on")
	case len(e.Files) == 0 && r.Evaluates() && slices.ContainsFunc(r.Data.Files, func(name string) bool { _, w, _ := FileWeight(name); return w != 1 }):
		return settingErrorf("--data FILE=WEIGHT with an evaluation: documents that come twice would be trained and evaluated on; give --eval-data")
	case e.Split > 0 && len(e.Files) > 0:
		return settingErrorf("--eval-split and --eval-data: give one of them")
	case e.Split == 1:
		return settingErrorf("--eval-split 1 leaves nothing to train on; it is a share below 1")
	case e.Steps == 0 && (e.Patience > 0 || e.KeepBest):
		return settingErrorf("--patience and --keep-best compare evaluations: say with --eval-steps how often to evaluate")
	case r.Training.Adapter != "" && r.Task == spillway.Train:
		return settingErrorf("--adapter is to start from with --method lora or qlora, not full")
	case r.Given("learning-rate") && hasOption(optimizer, "lr"):
		return settingErrorf("--learning-rate is given, and --optimizer %s sets lr too; keep one", optimizer)
	case r.Training.WeightDecay != nil && hasOption(optimizer, "weight_decay"):
		return settingErrorf("--weight-decay is given, and --optimizer %s sets weight_decay too; keep one", optimizer)
	case r.Average > 0 && r.Plan.Optimizer.Name == "schedule_free_adamw":
		return settingErrorf("--ema with --optimizer schedule_free_adamw, which has an average of its own that export --average writes; keep one")
	case (r.Given("warmup-steps") || r.Given("warmup-ratio")) && hasOption(schedule, "warmup"):
		return settingErrorf("--warmup-steps or --warmup-ratio is given, and --lr-scheduler %s sets warmup too; keep one", schedule)
	case r.Training.WarmupRatio > 0 && (r.Training.WarmupSteps > 0 || r.Training.warmupShare > 0):
		return settingErrorf("--warmup-steps %v and --warmup-ratio %v: keep one", r.flags.Lookup("warmup-steps").Value, r.Training.WarmupRatio)
	}
	if err := r.Plan.CheckEffects(r.Given, "method"); err != nil {
		return err
	}
	has := func(endings ...string) bool {
		return slices.ContainsFunc(r.endings(), func(e string) bool { return slices.Contains(endings, e) })
	}
	lines, tokens := has(".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet") || slices.ContainsFunc(r.Data.Files, isPipe), has(".bin")
	texts := slices.ContainsFunc(r.endings(), func(e string) bool { return e != ".bin" })
	return refuse(r.Given,
		idle{adapterSettings, r.Training.Adapter == "", "the options of the adapter in " + r.Training.Adapter + " count"},
		idle{[]string{"journal-every"}, r.Disk != "" || r.DeepSpeed != "", "the journal is on disk; give --disk"},
		idle{[]string{"allow-changes"}, r.Output.Resume, "it is about a run that is continued; give --resume"},
		idle{[]string{"epochs"}, r.Training.MaxSteps == 0, "--max-steps says how long to train; give one of them"},
		idle{[]string{"eval-batches"}, r.Evaluates(), "nothing is evaluated; give --eval-steps, --eval-split or --eval-data"},
		idle{[]string{"format", "fields", "prompt-separator"}, lines, "no file holds JSON lines; their names end in .jsonl"},
		idle{[]string{"token-bytes"}, tokens, "no file holds token ids; their names end in .bin"},
		idle{[]string{"tokenizer", "skip-bad-lines", "chat-template", "train-on-prompts", "today"}, texts, "all files hold token ids"},
		idle{[]string{"device-map", "optimizer-device", "strategy"}, r.Output.PlanFile == "", "the plan in " + r.Output.PlanFile + " decides that"},
	)
}

// hasOption says whether a text such as adamw:lr=1e-3,eps=1e-9 sets an option.
func hasOption(text, name string) bool {
	_, options, _ := strings.Cut(text, ":")
	return slices.ContainsFunc(strings.Split(options, ","), func(o string) bool {
		key, _, _ := strings.Cut(o, "=")
		return strings.TrimSpace(key) == name
	})
}
