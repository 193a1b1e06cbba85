package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spillway/internal/suggest"
	"spillway/internal/term"
	"spillway/recipe"
)

// flagGroups are the flags of train and plan under headings, what is used most first. Other
// commands have few enough to do without.
var flagGroups = []struct {
	title string
	flags []string
}{
	{"Prompt", []string{"prompt", "file", "prompts", "chat", "system", "load", "max-new-tokens", "temperature", "tokens", "context", "chat-template"}},
	{"Sampling", []string{"top-k", "top-p", "min-p", "repetition-penalty", "presence-penalty", "frequency-penalty", "logit-bias", "stop", "num-samples", "num-beams", "length-penalty", "early-stopping", "logprobs", "prompt-logprobs", "ignore-eos", "special"}},
	{"Used most", []string{"data", "task", "method", "machine", "device", "max-memory", "batch-size", "seq-len", "learning-rate", "max-steps", "epochs", "out", "resume"}},
	{"Steps", []string{"micro-batch-size", "gradient-accumulation-steps", "canonical-sums", "precision", "fp32-modules", "optimizer", "state-policy", "weight-decay", "param-group", "freeze", "ema", "centralize-gradients", "lr-scheduler", "warmup-steps", "warmup-ratio", "max-grad-norm", "seed"}},
	{"Generation", []string{"all-logits", "context", "streams", "chunk", "cache-type", "exact", "draft", "draft-tokens", "draft-branches"}},
	{"Data", []string{"format", "fields", "prompt-separator", "chat-template", "today", "tokenizer", "token-bytes", "packing", "document-len", "skip-bad-lines", "train-on-prompts", "show-sample"}},
	{"Evaluation", []string{"questions", "windows", "evaluate", "eval-data", "eval-split", "eval-steps", "eval-batches", "patience", "keep-best"}},
	{"Adapters", []string{"adapter", "lora-rank", "lora-alpha", "lora-dropout", "target-modules", "exclude-modules", "layers-to-transform", "rank-pattern", "alpha-pattern", "modules-to-save",
		"lora-bias", "init-lora-weights", "use-rslora", "use-dora", "quantization", "no-quantize", "llm-int8-threshold"}},
	{"Memory and devices", []string{"max-host-memory", "disk", "journal-every", "strategy", "device-map", "optimizer-device", "deepspeed", "plan", "dtype", "compress-weights", "layerwise-casting", "skip-casting", "cache-type", "no-cache", "exact"}},
	{"Advice", []string{"max-batch-size", "max-seq-len", "explain", "compare"}},
	{"Output", []string{"save", "save-steps", "keep", "allow-changes", "log", "timeline", "profile", "memory-snapshot", "dashboard", "alert-command", "alert-webhook", "instructions", "recipe", "print-recipe", "dry-run", "quiet", "verbose", "json", "help"}},
}

// exitCodes says what they mean; run gives them.
const exitCodes = "Exit codes: 0 done; 1 it failed; 2 a mistake in the command line or in a recipe;\n130, 143 and 129 after Ctrl-C, TERM and HUP. With --json a command that fails writes\nan object with error and exit_code, unless it has written one that says more.\n"

// newHelp is the command help, which says so where it knows no such command.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "what a command does, as COMMAND --help says it",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			for _, c := range root.Commands() {
				if len(args) == 0 && c.IsAvailableCommand() {
					names = append(names, c.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return knownVerb(root, args)
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// usage writes what stands below the text of a command's help: examples, commands and flags.
func usage(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	width := term.Width(w)
	if width == 0 {
		width = columns
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		b.Reset()
		fmt.Fprintf(&b, "Usage:\n  %s COMMAND\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				columnsOf(&b, "  "+sub.Name(), sub.Short, 14, width)
			}
		}
	}
	left := map[string]*pflag.Flag{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			left[f.Name] = f
		}
	})
	if len(left) <= 20 {
		writeFlags(&b, "Flags", slices.Sorted(maps.Keys(left)), left, width)
	} else {
		for _, g := range flagGroups {
			writeFlags(&b, g.title, g.flags, left, width)
		}
		writeFlags(&b, "Other flags", slices.Sorted(maps.Keys(left)), left, width)
	}
	b.WriteString("\n" + exitCodes)
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n%s COMMAND --help explains a command.\n", cmd.CommandPath())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeFlags writes those of the named flags that are left, and takes them out.
func writeFlags(b *strings.Builder, title string, names []string, left map[string]*pflag.Flag, width int) {
	for _, name := range names {
		f := left[name]
		if f == nil {
			continue
		}
		if title != "" {
			fmt.Fprintf(b, "\n%s:\n", title)
			title = ""
		}
		delete(left, name)
		value, help := pflag.UnquoteUsage(f)
		if f.NoOptDefVal != "" || value == "value" {
			value = ""
		}
		if !slices.Contains([]string{"", "0", "false", "[]"}, f.DefValue) && !strings.Contains(help, "(default") {
			help += " (default " + f.DefValue + ")"
		}
		columnsOf(b, strings.TrimRight("  --"+name+" "+value, " "), help, 28, width)
	}
}

// columnsOf writes a name, and next to it a text in as many lines as it takes.
func columnsOf(b *strings.Builder, name, text string, at, width int) {
	line := name
	if utf8.RuneCountInString(name)+2 > at {
		b.WriteString(name + "\n")
		line = ""
	}
	for _, word := range strings.Fields(text) {
		if n := utf8.RuneCountInString(line); n > at && n+1+utf8.RuneCountInString(word) > width {
			b.WriteString(line + "\n")
			line = ""
		}
		line += strings.Repeat(" ", max(at-utf8.RuneCountInString(line), 1)) + word
	}
	b.WriteString(line + "\n")
}

// otherNames are what other programs call flags of ours next to recipe.TheirNames, or what to give instead.
var otherNames = map[string]string{
	"dtype": "precision", "torch-dtype": "precision|dtype", "precision": "dtype", "gpu": "device", "gpus": "device", "base-model": "", "model": "", "gradient-checkpointing": "explain|strategy checkpointing", "durable-every": "journal-every", "learn-prompts": "train-on-prompts",
	"p": "prompt", "n": "max-new-tokens", "f": "file", "m": "", "temp": "temperature", "max-tokens": "max-new-tokens", "n-predict": "max-new-tokens", "repeat-penalty": "repetition-penalty", "num-return-sequences": "num-samples",
	"ngl": "max-memory", "n-gpu-layers": "max-memory", "gpu-layers": "max-memory", "ctx-size": "context|seq-len", "n-ctx": "context|seq-len", "system-prompt": "system", "lora": "adapter|method lora", "outtype": "gguf-type", "max-samples": "eval-batches",
	"save": "out", "o": "out", "d": "data", "b": "batch-size", "optim": "optimizer", "r": "lora-rank",
	"do-sample": "temperature 1", "model-draft": "draft", "md": "draft", "assistant-model": "draft", "draft-model": "draft", "draft-max": "draft-tokens", "draft-n": "draft-tokens", "prompt-lookup-num-tokens": "draft ngram",
	"spec-draft-model": "draft", "num-assistant-tokens": "draft-tokens", "num-speculative-tokens": "draft-tokens", "cache-type-k": "cache-type", "cache-type-v": "cache-type", "ctk": "cache-type", "ctv": "cache-type", "kv-cache-dtype": "cache-type",
	"max-model-len": "context|seq-len", "c": "context|seq-len", "parallel": "streams", "np": "streams", "reverse-prompt": "stop", "stop-strings": "stop", "top-n-logprobs": "logprobs", "prompt-file": "file", "s": "seed",
}

// noFlags are flags of other programs for which there is none, and what to do instead.
var noFlags = map[string]string{
	"threads": threadsAlways, "t": threadsAlways, "threads-batch": threadsAlways, "num-threads": threadsAlways,
	"load-in-4bit": "quantize writes a folder of the model with its linear weights in nf4 (spillway quantize MODEL OUT), which is used as it is",
	"load-in-8bit": "quantize writes a folder of the model with its linear weights in int8 (spillway quantize MODEL OUT --format int8), which is used as it is",
}

const threadsAlways = "all cores are used; GOMAXPROCS=2 in the environment allows two, taskset chooses which"

// flagError says what an unknown flag may have been meant to be.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var number *strconv.NumError
	if errors.As(err, &number) {
		first, _, _ := strings.Cut(err.Error(), ": strconv.")
		return usageErrorf("%s: %q is not a number of the kind it takes", first, number.Num)
	}
	if !errors.As(err, &unknown) {
		return usageError{err}
	}
	name := strings.ReplaceAll(strings.TrimLeft(unknown.GetSpecifiedName(), "-"), "_", "-")
	given := "--" + unknown.GetSpecifiedName()
	if group := unknown.GetSpecifiedShortnames(); group != "" {
		given = "-" + unknown.GetSpecifiedName()
		if _, known := otherNames[group]; known { // such as -ngl, which other programs have
			name, given = group, "-"+group
		}
	}
	near, known := meantFlag(cmd, name)
	first, _, _ := strings.Cut(near, " ")
	if instead := cmp.Or(noFlags[name], recipe.Without[name]); instead != "" && cmd.Flags().Lookup(first) == nil {
		return usageErrorf("there is no flag %s: %s", given, instead)
	}
	switch {
	case cmd.Flags().Lookup(name) != nil:
		near = name
	case name == "draft" && cmd.Name() == "plan":
		return usageErrorf("there is no flag --draft: --task generate --quantization nf4 plans what the model of generate --draft self takes, and a plan of another model has what that one takes")
	case name == "quantization" && cmd.Name() == "quantize": // of commands that use a model
		near = "format"
	case known && near == "":
		return usageErrorf("there is no flag %s: the model is the first argument", given)
	case !known || cmd.Flags().Lookup(first) == nil:
		near = nearFlag(cmd, name)
	}
	if near != "" {
		near = "; did you mean --" + near + "?"
	}
	return usageErrorf("there is no flag %s%s", given, near)
}

// meantFlag is what a command has for another program's flag, with a value where that is part of
// it: the first of the names for it that the command knows.
func meantFlag(cmd *cobra.Command, name string) (near string, known bool) {
	meant, known := otherNames[name]
	if theirs := recipe.TheirNames[name]; !known && theirs != "" {
		meant, known = theirs, true
	}
	if meant == recipe.ModelKey {
		meant = ""
	}
	for near = range strings.SplitSeq(meant, "|") {
		first, _, _ := strings.Cut(near, " ")
		if cmd.Flags().Lookup(first) != nil {
			break
		}
	}
	return near, known
}

// nearFlag is the only flag that begins with a name, or the one that is spelt most like it.
func nearFlag(cmd *cobra.Command, name string) string {
	var names, longer []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if names = append(names, f.Name); len(name) > 2 && strings.HasPrefix(f.Name, name) {
			longer = append(longer, f.Name)
		}
	})
	if len(longer) == 1 {
		return longer[0]
	}
	return suggest.Nearest(name, names)
}
