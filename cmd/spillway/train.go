package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/spf13/cobra"

	"spillway"
	"spillway/eventlog"
	"spillway/finetune"
	"spillway/internal/term"
	"spillway/internal/vfs"
	"spillway/monitor"
	"spillway/recipe"
)

func newTrain(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "train MODEL --data FILE...",
		Short: "train a model on this computer, within a memory limit if you like",
		Long: `Trains a model on text. The plan is printed first: it says where every byte will be
stored, before anything is allocated. Then a line shows the loss, the speed as a share of
what the limiting resource allows (the roofline), the measured and the predicted memory,
and the time left. On a pipe a plain line is printed every ten seconds.

` + modelHelp + ` A preset starts from random initial weights.

Files that end in .jsonl hold a JSON object per line, those in .json a list of them: a
text; a prompt and its
completion; an instruction, an input and an output; or the messages of a chat, which
are written with the model's own chat template. In all but the first only answers are
in the loss. Files that end in .bin hold token ids, others plain text. Documents are
shuffled by the seed and packed into sequences of --seq-len tokens, in which they do not
attend to each other.

The eval loss and the perplexity of --eval-data, or of the share of the data that
--eval-split takes, are reported every --eval-steps steps. --patience stops a run that no
longer improves.

Every flag can also be in a recipe, a YAML file (--recipe); flags override it.
--print-recipe writes one from the flags given.

Checkpoints are model folders that other programs can load; the recipe of the run is next
to them, so that train --resume --out DIR is all it takes to continue. Ctrl-C finishes the current
step, saves and exits with code 130; --resume continues from there, bit for bit. So do TERM
and HUP, with 143 and 129. A second Ctrl-C quits at once. On USR1 (kill -USR1) the run is planned again, between two steps, for the memory
that is available then.

With --disk a model may be larger than all memory: what fits nowhere else is stored in
files there. A journal then holds every completed step: after a crash or a kill --resume
continues from the last one. It takes twice the space of what is trained. The files are
removed when the run has ended and saved.`,
		Example: `  spillway train small-llama --data book.txt --max-steps 500 --out run
  spillway train ./model --method lora --data chats.jsonl --learning-rate 2e-4 --epochs 3 --eval-split 0.05 --eval-steps 100 --patience 3
  spillway train ./model --method qlora --data problems.jsonl --format chat --fields question:answer --print-recipe
  spillway train --recipe run.yaml --learning-rate 1e-4
  spillway train ./model --data book.txt --max-memory 2GiB --batch-size 32 --max-steps 2000
  spillway train ./model --data book.txt --disk /mnt/nvme/run --max-memory 1GiB --max-host-memory 4GiB --max-steps 100
  spillway train ./model --data book.txt --optimizer paged_adamw_8bit --log run.csv --max-steps 2000
  spillway train --resume --out run`,
	}
	asJSON := jsonFlag(cmd)
	file := cmd.Flags().String("recipe", "", "take what the flags leave out from the YAML `FILE`")
	var o trainOptions
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "open the model, read the data, make the plan and show all of it, but do not train")
	cmd.Flags().BoolVar(&o.sample, "show-sample", false, "show the first text as the model reads it, with what of it is in the loss")
	bindAlerts(cmd, &o.dashboard, &o.alerts, "serve a page that shows the run while it trains")
	bindProfile(cmd, &o.profile, "the fourth step")
	print := cmd.Flags().Bool("print-recipe", false, "write the given flags as a recipe, and do nothing else")
	r := recipe.New()
	bind(cmd, r.Flags(), recipe.ModelKey, recipe.VersionKey)
	completeModels(cmd)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 || len(args) == 0 && *file == "" && !(r.Output.Resume && r.Output.Dir != "") {
			if len(args) > 1 && o.dashboard != "" {
				return usageErrorf("%d arguments given, it takes 1: MODEL; an address of the dashboard is written with =, as --dashboard=%s", len(args), args[len(args)-1])
			}
			return usageErrorf("%d arguments given, it takes 1: MODEL", len(args))
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if err := r.Flags().Set(recipe.ModelKey, args[0]); err != nil {
				return err
			}
		}
		if *file != "" {
			if err := r.Read(*file); err != nil {
				return err
			}
		}
		if r.Output.Resume {
			if len(args) > 0 && r.Output.Dir == "" && isRun(args[0]) {
				return usageErrorf("%s is a run: train --resume --out %s continues it", args[0], args[0])
			}
			if err := r.ReadRun(); err != nil {
				return err
			}
		}
		if *print {
			return r.Write(sh.out)
		}
		if err := checkProfile(o.profile); err != nil {
			return err
		}
		r.Data.Stdin, o.asJSON = sh.in, *asJSON
		return trainCommand(cmd.Context(), sh, &o, r)
	}
	return cmd
}

// isRun says whether a folder is that of a run, with its settings.
func isRun(dir string) bool {
	there, err := vfs.Exists(vfs.OS, filepath.Join(dir, recipe.RunName))
	return err == nil && there
}

// trainOptions are what train does besides training.
type trainOptions struct {
	asJSON, dryRun, sample bool
	profile                string // what its tables are sorted by; "" for none
	dashboard              string // address to serve the page on; "" serves none
	alerts                 monitor.Forwarder
}

// dryReport is the object of train --dry-run --json.
type dryReport struct {
	*planReport
	Data    finetune.Summary      `json:"data"`
	Steps   int64                 `json:"steps"`
	Epochs  float64               `json:"epochs,omitempty"`       // 0 where --max-steps says how long
	Warmup  int                   `json:"warmup_steps,omitempty"` // of the steps
	Resumed string                `json:"resumed_from,omitempty"`
	Sample  []finetune.SamplePart `json:"sample,omitempty"`
}

func writeDryRun(w io.Writer, run *finetune.Run, sample bool) error {
	shown, err := planOf(run.Job, run.Rig.Reason)
	if err != nil {
		return err
	}
	d := dryReport{shown, run.Corpus.Summary, run.Corpus.Steps, run.Corpus.Epochs(), run.Recipe.Training.Warmup(run.Corpus.Steps), run.Resumed, nil}
	if sample {
		d.Sample = run.Corpus.Sample
	}
	return writeJSON(w, d)
}

// trainCommand shows what will be done, does it, and writes what came of it.
func trainCommand(ctx context.Context, sh shell, o *trainOptions, r *recipe.Recipe) (err error) {
	text, line := sh.out, term.NewLine(sh.err)
	shown := &progress{line: line, log: text}
	if o.asJSON {
		text, shown.log = io.Discard, sh.err
	}
	measured := sh.rigOptions(line)
	measured.Stop = ctx.Err
	run, err := finetune.Prepare(r, finetune.Options{
		Rig: measured, Report: shown.report, Notice: line.Print, Program: version, Alert: o.alerts.Alert, Profile: o.profile != "",
		Progress: shown.part,
	})
	line.Done()
	if err == nil && ctx.Err() != nil {
		err = errors.Join(ctx.Err(), run.Close())
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	shown.Monitor = run.Monitor
	if err := showPlan(text, run.Job, run.Rig.Reason); err != nil {
		return err
	}
	if err := showCorpus(text, run, o.sample); err != nil || o.dryRun && !o.asJSON {
		return err
	}
	if o.dryRun {
		return writeDryRun(sh.out, run, o.sample)
	}
	if o.dashboard != "" {
		page, err := startDashboard(sh, o.dashboard, []string{run.Dir()})
		if err != nil {
			return err
		}
		defer page.close() // the run has ended, whatever comes of it
		line.Print("dashboard       " + page.url)
	}
	defer replanOnSignal(run.Job)()
	defer sh.signals.hold()()
	result, err := run.Train(ctx)
	line.Done()
	if failed := o.alerts.Close(); failed != nil {
		line.Print(failed.Error())
	}
	if err != nil {
		return err
	}
	defer func() {
		if err == nil && result.Interrupted {
			err = interruption(ctx)
		}
	}()
	if o.profile != "" && result.Profile != nil {
		eventlog.Sort(result.Profile.Rows, o.profile)
	}
	if o.asJSON {
		return writeJSON(sh.out, result)
	}
	return writeTrained(text, result, r.Output.Timeline, o.profile)
}

// writeTrained writes what came of a run, with the file that has its timeline, and its profile by an order.
func writeTrained(w io.Writer, result finetune.Result, timeline, order string) (err error) {
	var p page
	p.WriteString("\n")
	writeResult(&p, result)
	if timeline != "" {
		p.line("timeline", "%s", timeline)
	}
	if result.Profile != nil {
		err = writeProfile(&p, *result.Profile, order)
	}
	_, failed := io.WriteString(w, p.String())
	return errors.Join(err, failed)
}

// replanOnSignal has a run planned again, for the memory that is available then, when the
// process is sent USR1. The function it returns ends that.
func replanOnSignal(job *spillway.Run) (end func()) {
	if replanSignal == nil {
		return func() {}
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, replanSignal)
	go func() {
		for range asked {
			job.RequestReplan(spillway.FreeNow)
		}
	}()
	return func() {
		signal.Stop(asked)
		close(asked)
	}
}

// documentsAre begins a sentence about documents to train on.
func documentsAre(n int64) string {
	if n == 1 {
		return "1 document is"
	}
	return grouped(n) + " documents are"
}

// showCorpus says what is trained on, and where the run goes on from.
func showCorpus(w io.Writer, run *finetune.Run, sample bool) error {
	s := run.Corpus.Summary
	text := plural(int(s.Documents), "document")
	if s.Tokens > 0 {
		text += fmt.Sprintf(", %s tokens, %s of them in the loss", grouped(s.Tokens), percent(float64(s.LossTokens)/float64(s.Tokens)))
	}
	if s.EvalDocuments > 0 {
		text += fmt.Sprintf("; %s to evaluate on", plural(int(s.EvalDocuments), "document"))
	}
	var p page
	p.line("data", "%s", text)
	if s.Split > 0 {
		p.line("", "%s longer than a sequence and split", documentsAre(s.Split))
	}
	if s.Unused > 0 {
		p.line("", "%s left out, with no token in the loss", documentsAre(s.Unused))
	}
	if s.Skipped > 0 {
		p.line("", "%s left out; the first: %s", plural(int(s.Skipped), "bad line"), s.FirstSkipped)
	}
	steps := grouped(run.Corpus.Steps)
	if n := run.Corpus.Epochs(); n > 0 {
		steps += fmt.Sprintf(" in %v epochs", n)
	}
	if n := run.Recipe.Training.Warmup(run.Corpus.Steps); n > 0 {
		steps += fmt.Sprintf(", %s of them warm-up", grouped(int64(n)))
	}
	p.line("steps", "%s", steps)
	if run.Resumed != "" {
		p.line("resumed from", "%s", run.Resumed)
	}
	if sample && run.Corpus.Sample == nil {
		p.line("sample", "none: all files hold token ids")
	} else if sample {
		p.WriteString("\nthe first text; what is in the loss is between ⟦ and ⟧\n")
		for _, part := range run.Corpus.Sample {
			if part.InLoss {
				part.Text = "⟦" + part.Text + "⟧"
			}
			p.WriteString(part.Text)
		}
		p.WriteString("\n")
	}
	_, err := io.WriteString(w, p.String())
	return err
}
