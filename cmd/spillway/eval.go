package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spillway/inference"
	"spillway/internal/term"
	"spillway/recipe"
	"spillway/units"
)

// evalSettings are the settings of train that evaluating has too.
var evalSettings = []string{"data", "format", "fields", "today", "token-bytes", "packing", "skip-bad-lines", "train-on-prompts", "seq-len", "batch-size", "micro-batch-size"}

func newEval(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "eval MODEL --data FILE...",
		Short: "perplexity of a model on data, or how many questions it answers right",
		Long: `Measures a model. With --data it reports the mean loss over all tokens and the perplexity,
its exponential. Files are read as train reads them: text, JSON lines with texts, prompts
and completions, instructions or chats, and only answers are in the loss where there are
any. The loss is that of train's --eval-data: the same code computes it, and with the same
--seq-len and --micro-batch-size it is the same to the last bit.

--windows N measures as llama.cpp's llama-perplexity -c N does, so that the two can be
compared: all text is cut into windows of N tokens, each begun with the token that begins
a text, and only the second half of each is in the loss.

With --questions it answers questions with several choices by log-likelihood. A line of the
file is a JSON object with question, choices and answer: an index from 0, a letter or the
text of the right choice; the names of MMLU, ARC and HellaSwag are understood too. The answer
is the choice that is most likely after the question; normalized, the one that is most likely
for each of its bytes. What the choices of a question share is computed once, and several
questions at once; --exact gives a choice the same bits whatever is computed with it, also on
GPUs.

` + usableModelHelp,
		Example: `  spillway eval ./model --data book.txt --seq-len 32
  spillway eval ./run --data chats.jsonl --seq-len 64 --batch-size 4 --json
  spillway eval ./model --data book.txt --windows 64
  spillway eval ./model --adapter ./adapter --questions questions.jsonl`,
		Args: exactly(1, "MODEL"),
	}
	asJSON := jsonFlag(cmd)
	var o modelFlags
	var questions string
	var windows int
	f := cmd.Flags()
	f.StringVar(&questions, "questions", "", "answer the questions in `FILE`, JSON lines with question, choices and answer; - for standard input")
	f.IntVar(&windows, "windows", 0, "cut the text into windows of `N` tokens, and measure the second half of each")
	bindModel(cmd, &o)
	bindCache(cmd, &o)
	r := recipe.New()
	var others []string
	r.Flags().VisitAll(func(s *flag.Flag) {
		if !slices.Contains(evalSettings, s.Name) {
			others = append(others, s.Name)
		}
	})
	bind(cmd, r.Flags(), others...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if (questions != "") == (len(r.Data.Files) > 0) {
			return usageErrorf("give --data FILE for the perplexity, or --questions FILE for questions")
		}
		for _, name := range evalSettings {
			if questions != "" && f.Changed(name) {
				return usageErrorf("--%s has no effect on --questions; leave it out", name)
			}
		}
		if questions != "" && o.template != "" {
			return usageErrorf("--chat-template has no effect on --questions; leave it out")
		}
		for _, name := range []string{"cache-type", "no-cache", "exact"} {
			if questions == "" && f.Changed(name) {
				return usageErrorf("--%s has no effect on --data, which is computed without a cache, each sequence by itself; leave it out", name)
			}
		}
		if questions == "" && f.Changed("compress-weights") {
			return usageErrorf("--compress-weights has no effect on --data: the loss is computed as train computes it; leave it out")
		}
		if err := checkWindows(f, windows); err != nil {
			return err
		}
		r.Data.Stdin, r.Data.Tokenizer, r.Data.ChatTemplate = sh.in, o.tokenizer, o.template
		line := term.NewLine(sh.err)
		defer line.Done()
		m, err := o.open(sh, args[0], line)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Close()) }()
		if questions != "" {
			return evalQuestions(cmd.Context(), sh, m, questions, *asJSON, line)
		}
		var v inference.Evaluation
		if windows > 0 {
			v, err = m.Windows(cmd.Context(), r, windows)
		} else {
			v, err = m.Perplexity(cmd.Context(), r)
		}
		line.Done()
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(sh.out, v)
		}
		var p page
		p.line("model", "%s", strings.Join(append([]string{m.Path}, v.Adapters...), " with "))
		what := "document"
		if windows > 0 {
			what = "window"
		}
		p.line("data", "%s, %s tokens in the loss", plural(int(v.Data.Documents), what), grouped(v.Tokens))
		p.line("loss", "%.6f, perplexity %.4g", v.Loss, v.Perplexity)
		p.line("speed", "%s, %s tokens/s", units.Seconds(v.Seconds), rate(v.TokensPerSecond))
		p.line("memory", "predicted %v, measured %v", units.Bytes(v.Predicted), units.Bytes(v.Measured))
		_, err = io.WriteString(sh.out, p.String())
		return err
	}
	return cmd
}

// checkWindows refuses what has no effect together with windows.
func checkWindows(f *pflag.FlagSet, windows int) error {
	if !f.Changed("windows") {
		return nil
	}
	if windows < 4 {
		return usageErrorf("--windows %d; a window has at least 4 tokens", windows)
	}
	for _, name := range append([]string{"questions", "chat-template"}, evalSettings...) {
		if f.Changed(name) && !slices.Contains([]string{"data", "batch-size", "micro-batch-size"}, name) {
			return usageErrorf("--%s has no effect on --windows; leave one of them out", name)
		}
	}
	return nil
}

// evalQuestions answers questions and writes how many answers are right.
func evalQuestions(ctx context.Context, sh shell, m *inference.Model, name string, asJSON bool, line *term.Line) error {
	in := sh.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("opening the questions: %w", err)
		}
		defer file.Close() // opened for reading
		in = file
	}
	list, err := inference.ReadQuestions(in)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	v, err := m.Choose(ctx, list)
	line.Done()
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(sh.out, v)
	}
	var p page
	p.line("model", "%s", strings.Join(append([]string{m.Path}, v.Adapters...), " with "))
	p.line("questions", "%s", grouped(int64(v.Questions)))
	p.line("accuracy", "%.4f ± %.4f, normalized by bytes %.4f ± %.4f", v.Accuracy, v.Error, v.AccuracyNormalized, v.ErrorNormalized)
	p.line("memory", "predicted %v, measured %v", units.Bytes(v.Predicted), units.Bytes(v.Measured))
	_, err = io.WriteString(sh.out, p.String())
	return err
}
