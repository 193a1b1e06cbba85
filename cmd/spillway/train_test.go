package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/checkpoint"
	"spillway/demo"
	"spillway/finetune"
)

// prose writes some text to train on, in documents.
func prose(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "prose.jsonl")
	var b strings.Builder
	for i := range 40 {
		from := 2000 * i
		b.WriteString(`{"text": "` + strings.NewReplacer("\n", " ", `"`, "'").Replace(demo.Text[from:from+600]) + `"}` + "\n")
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// trainTiny runs train on a tiny model with given flags.
func trainTiny(t *testing.T, flags ...string) result {
	t.Helper()
	return command(t, append([]string{"train", "tiny-llama", "--micro-batch-size", "2", "--seq-len", "64", "--learning-rate", "5e-3", "--json"}, flags...)...)
}

// tight is a limit below what normal training of the tiny model takes.
func tight(t *testing.T) (flag string, bytes float64) {
	t.Helper()
	v := command(t, "plan", "tiny-llama", "--micro-batch-size", "2", "--seq-len", "64", "--json").object(t)
	bytes = math.Floor(0.9 * at(t, v, "standard_bytes").(float64))
	return fmt.Sprintf("%.0fB", bytes), bytes
}

func TestTrain(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	limit, bytes := tight(t)
	v := trainTiny(t, "--data", prose(t), "--max-steps", "12", "--out", out, "--max-memory", limit).object(t)
	if first, last := at(t, v, "loss_first").(float64), at(t, v, "loss_last").(float64); !(last < first) {
		t.Errorf("the loss went from %v to %v", first, last)
	}
	if at(t, v, "steps") != 12.0 || at(t, v, "interrupted") != false {
		t.Errorf("%v", v)
	}
	predicted, measured := at(t, v, "predicted_peak_bytes").(float64), at(t, v, "measured_peak_bytes").(float64)
	if predicted != measured || predicted > bytes || at(t, v, "budget_bytes") != bytes {
		t.Errorf("%v bytes predicted, %v measured, the budget is %v", predicted, measured, at(t, v, "budget_bytes"))
	}
	inspected := command(t, "inspect", out, "--verify", "--json").object(t)
	if at(t, inspected, "path") != at(t, v, "checkpoint") || len(at(t, inspected, "problems").([]any)) != 0 {
		t.Errorf("the checkpoint is no sound model folder: %v", inspected)
	}
	// two moments of four bytes per param
	if params := at(t, inspected, "model.params").(float64); at(t, inspected, "checkpoint.state_bytes") != 8*params || at(t, inspected, "checkpoint.iteration") != 12.0 {
		t.Errorf("state %v of %v params", at(t, inspected, "checkpoint"), params)
	}
	damage(t, filepath.Join(at(t, v, "checkpoint").(string), checkpoint.StateName))
	if r := command(t, "inspect", out); r.code != exitOK {
		t.Errorf("headers are whole, yet: %s", r.out)
	}
	if r := command(t, "inspect", out, "--verify"); r.code != exitFailed || !strings.Contains(r.out, checkpoint.StateName) {
		t.Errorf("a damaged checkpoint gives %d: %s", r.code, r.out)
	}
}

// damage changes the last byte of a file.
func damage(t *testing.T, path string) {
	t.Helper()
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all[len(all)-1] ^= 1
	if err := os.WriteFile(path, all, 0o644); err != nil {
		t.Fatal(err)
	}
}

// A run that stops and goes on gives the bits of one that does not, also in less
// memory.
func TestTrainResumes(t *testing.T) {
	text := prose(t)
	whole, parts := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
	trainTiny(t, "--data", text, "--max-steps", "6", "--out", whole).object(t)
	trainTiny(t, "--data", text, "--max-steps", "3", "--out", parts).object(t)
	if r := trainTiny(t, "--data", text, "--max-steps", "6", "--out", parts); r.code != exitFailed || !strings.Contains(r.err, "--resume") {
		t.Errorf("a folder with a checkpoint is trained into: %d %s", r.code, r.err)
	}
	limit, _ := tight(t)
	v := trainTiny(t, "--data", text, "--max-steps", "6", "--out", parts, "--resume", "--max-memory", limit).object(t)
	if at(t, v, "steps") != 6.0 {
		t.Errorf("%v iterations", at(t, v, "steps"))
	}
	if r := command(t, "train", "--resume", parts); r.code != exitUsage || !strings.Contains(r.err, "train --resume --out "+parts+" continues it") {
		t.Errorf("the run as the model: exit code %d, %s", r.code, r.err)
	}
	a, _ := sums(t, filepath.Join(whole, "step-00000006"))
	b, _ := sums(t, filepath.Join(parts, "step-00000006"))
	for name := range a {
		if a[name] != b[name] {
			t.Errorf("%s differs", name)
		}
	}
	if r := trainTiny(t, "--data", text, "--out", filepath.Join(parts, "none"), "--resume"); r.code != exitFailed || !strings.Contains(r.err, "no checkpoint") {
		t.Errorf("resuming nothing gives %d %s", r.code, r.err)
	}
}

// writerFunc calls a function for every write.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Ctrl-C ends the run after the iteration at hand, with a checkpoint and with the exit code
// of Ctrl-C, and says how to go on.
func TestTrainInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	out := filepath.Join(t.TempDir(), "run")
	var said bytes.Buffer
	screen := writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "step 2 ") {
			interrupt()
		}
		return said.Write(p)
	})
	args := []string{"train", "tiny-llama", "--data", prose(t), "--batch-size", "2", "--seq-len", "64", "--max-steps", "1000000", "--eval-steps", "1", "--out", out}
	code := run(ctx, args, shell{in: strings.NewReader(""), out: screen, err: &said, cache: cache})
	if code != 130 || !strings.Contains(said.String(), "interrupted     2 steps") || !strings.Contains(said.String(), "spillway train --resume --out "+out) {
		t.Errorf("exit code %d:\n%s", code, said.String())
	}
	c, err := checkpoint.Dir{Path: out}.Latest()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Iteration != 2 {
		t.Errorf("the checkpoint is of iteration %d", c.Iteration)
	}
}

// A saved plan is carried out as it was saved.
func TestTrainWithASavedPlan(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "plan.json")
	if r := command(t, "plan", "tiny-llama", "--micro-batch-size", "2", "--seq-len", "64", "--save", file); r.code != exitOK {
		t.Fatal(r.err)
	}
	text := prose(t)
	v := trainTiny(t, "--data", text, "--max-steps", "2", "--plan", file, "--out", filepath.Join(dir, "run")).object(t)
	if at(t, v, "strategy") != "standard" || at(t, v, "measured_peak_bytes") != at(t, v, "predicted_peak_bytes") {
		t.Errorf("%v", v)
	}
	r := command(t, "train", "small-llama", "--data", text, "--plan", file, "--out", filepath.Join(dir, "other"))
	if r.code != exitFailed || !strings.Contains(r.err, "is a plan for tiny-llama") {
		t.Errorf("another model's plan gives %d %s", r.code, r.err)
	}
	for says, args := range map[string][]string{
		"--batch-size 3 is given, the plan in": {"--batch-size", "3"}, "--seq-len 32 is given": {"--seq-len", "32"},
		"--gradient-accumulation-steps 2 is given": {"--gradient-accumulation-steps", "2"},
		"in another type":                          {"--precision", "bf16"}, "the plan has": {"--method", "lora"}, "another optimizer": {"--max-grad-norm", "1"},
	} {
		args = append([]string{"train", "tiny-llama", "--data", text, "--plan", file, "--out", filepath.Join(dir, "other")}, args...)
		if r := command(t, args...); r.code == exitOK || !strings.Contains(r.err, says) {
			t.Errorf("%q gives %d %s, want %q", args, r.code, r.err, says)
		}
	}
}

func TestTrainRefuses(t *testing.T) {
	text := prose(t)
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"", exitUsage, "--data is missing"},
		{"--data " + text + " --method infer", exitUsage, "full, lora, qlora"},
		{"--data " + text + " --lr-scheduler sine", exitUsage, "sine"},
		{"--data " + text + " --format song", exitUsage, "auto, chat, completion, instruct, text"},
		{"--data " + text + " --packing loose", exitUsage, "split, whole"},
		{"--data " + text + " --patience 3", exitUsage, "--eval-steps"},
		{"--data " + text + " --today yesterday", exitUsage, "2024-07-26"},
		{"--data " + text + " --eval-split 1.5", exitUsage, "a number from 0 to 1"},
		{"--data " + text + " --eval-split 0.1 --eval-data x", exitUsage, "one of them"},
		{"--data " + text + " --dry-run --max-steps 4 --lr-scheduler warmup_stable_decay", exitUsage, "num_decay_steps=N"},
		{"--data " + text + " --dry-run --max-steps 4 --lr-scheduler warmup_stable_decay:num_decay_steps=5", exitUsage, "make one shorter"},
		{"--data " + text + " --dry-run --lr-scheduler polynomial:lr_end=1", exitUsage, "not below the peak"},
		{"--data " + text + " --dry-run --lr-scheduler step", exitUsage, "above 0"},
		{"--data " + text + " --dry-run --weight-decay inf", exitUsage, "finite"},
		{"--data " + text + " --dry-run --method lora --lora-alpha 0", exitUsage, "above 0"},
		{"--data " + text + " --dry-run --max-host-memory 0", exitUsage, "above 0"},
		{"--data " + text + " --dry-run --neftune-noise-alpha 5", exitUsage, "no noise"},
		{"--data " + text + " --format chat", exitFailed, "--chat-template"},
		{"--data " + text + " --max-memory lots", exitUsage, "10GiB"},
		{"--data " + text + " --max-memory 20KiB", exitFailed, "the smallest plan needs"},
		{"--data " + text + " --fields question", exitFailed, "question"},
		{"--data /nowhere/list.json", exitFailed, "/nowhere/list.json"},
		{"--data /nowhere/text.txt", exitFailed, "/nowhere/text.txt"},
		{"--data " + text + " --tokenizer /nowhere/tokenizer.json", exitFailed, "/nowhere/tokenizer.json"},
	} {
		r := trainTiny(t, append(strings.Fields(c.args), "--out", filepath.Join(t.TempDir(), "run"))...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%q: exit code %d: %s", c.args, r.code, r.err)
		}
	}
	r := command(t, "train", "gpt2", "--data", text, "--out", t.TempDir())
	if r.code != exitFailed || !strings.Contains(r.err, "--tokenizer") {
		t.Errorf("a model without a tokenizer gives %d: %s", r.code, r.err)
	}
}

func TestProgressLine(t *testing.T) {
	run := &progress{Monitor: &finetune.Monitor{Pace: 2}}
	run.Last.Iteration, run.Last.Iterations, run.Last.Loss = 1200, 2000, 2.5
	run.Last.SecondsPerIteration, run.Last.TokensPerSecond, run.Last.ShareOfRoofline = 1, 5000, 0.8
	run.Last.MeasuredBytes, run.Last.PredictedBytes = 3<<20, 3<<20
	want := "step 1,200 of 2,000  loss 2.5000  2,500 tokens/s, 40% of roofline  memory 3.00 MiB, predicted 3.00 MiB  26 min 40 s left"
	if got := run.text(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	brief := "1,200/2,000  loss 2.5000  2,500 tok/s 40% roofline  3.00 MiB  26 min 40 s left"
	if got := run.brief(); got != brief || len(got) > 79 {
		t.Errorf("got  %s\nwant %s", got, brief)
	}
	run.Last.MeasuredBytes = 2 << 20
	if got, want := run.brief(), strings.Replace(brief, "3.00 MiB", "2.00 MiB of 3.00 MiB", 1); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A run is continued from its folder alone, from wherever the program is started, to the
// bits of a run at once; flags that are given win over those it had.
func TestResumeFromTheFolderAlone(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	raw, err := os.ReadFile(prose(t))
	if err == nil {
		err = os.WriteFile("text.jsonl", raw, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	whole, parts := filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
	flags := []string{"--data", "text.jsonl", "--seed", "7", "--max-grad-norm", "1", "--lr-scheduler", "cosine:total=6"}
	trainTiny(t, append(flags, "--max-steps", "6", "--out", whole)...).object(t)
	trainTiny(t, append(flags, "--max-steps", "3", "--out", parts)...).object(t)
	t.Chdir(t.TempDir())
	if v := command(t, "train", "--resume", "--out", parts, "--max-steps", "6", "--json").object(t); at(t, v, "steps") != 6.0 {
		t.Errorf("%v", v)
	}
	a, _ := sums(t, filepath.Join(whole, "step-00000006"))
	b, _ := sums(t, filepath.Join(parts, "step-00000006"))
	for name := range a {
		if a[name] != b[name] {
			t.Errorf("%s differs", name)
		}
	}
	if r := command(t, "train", "--resume", "--out", parts, "--max-steps", "8", "--learning-rate", "1e-3"); r.code != exitFailed || !strings.Contains(r.err, "\n  the learning rate (--learning-rate): 0.005 in that run, 0.001 now\n") {
		t.Errorf("with another learning rate: %d %s", r.code, r.err)
	}
	if r := command(t, "train", "--resume", "--out", filepath.Join(dir, "nothing")); r.code == exitOK || strings.Contains(r.err, "panic") {
		t.Errorf("without a run: %d %s", r.code, r.err)
	}
}

// Of many training runs into one folder one wins; the others say who holds it.
func TestRunsIntoOneFolder(t *testing.T) {
	text, out := prose(t), filepath.Join(t.TempDir(), "run")
	results := make(chan result)
	for range 5 {
		go func() {
			results <- trainTiny(t, "--data", text, "--max-steps", "20", "--save-steps", "1", "--out", out)
		}()
	}
	won := 0
	for range 5 {
		switch r := <-results; {
		case r.code == exitOK:
			won++
		case !strings.Contains(r.err, "is being written by") && !strings.Contains(r.err, "has a checkpoint of step"):
			t.Errorf("exit code %d: %s", r.code, r.err)
		}
	}
	if won != 1 {
		t.Errorf("%d of 5 won", won)
	}
	c, err := checkpoint.Dir{Path: out}.Latest()
	if err != nil || c.Iteration != 20 || len(c.Skipped) > 0 {
		t.Fatalf("%+v, %v", c, err)
	}
	c.Close() // opened for reading
}

// Everything that will run is in the plan that is shown: evaluations, and what a policy
// makes of the optimizer state later.
func TestTrainShowsWhatWillRun(t *testing.T) {
	r := command(t, "train", "tiny-llama", "--batch-size", "2", "--seq-len", "64", "--data", prose(t), "--max-steps", "4", "--eval-steps", "2",
		"--state-policy", "low-memory:warmup=2", "--out", filepath.Join(t.TempDir(), "run"))
	for _, line := range []string{"\nevaluation ", "\nafter warm-up ", "\nloss "} {
		if !strings.Contains(r.out, line) {
			t.Errorf("there is no line%s in\n%s%s", line, r.out, r.err)
		}
	}
}

// Of many that write one folder one wins, whatever they are; the others say so and leave
// nothing.
func TestManyWritersOfOneFolder(t *testing.T) {
	parent := t.TempDir()
	model, out := filepath.Join(parent, "model"), filepath.Join(parent, "out")
	if r := command(t, "init", "tiny-llama", "--out", model); r.code != exitOK {
		t.Fatal(r.err)
	}
	lines := [][]string{{"init", "tiny-llama", "--out", out}, {"quantize", model, out}, {"export", model, out}, {"export", model, out, "--dtype", "bf16"}}
	results := make(chan result)
	const each = 50
	for range each {
		for _, args := range lines {
			go func() { results <- command(t, args...) }()
		}
	}
	won := 0
	for range each * len(lines) {
		switch r := <-results; {
		case r.code == exitOK:
			won++
		case !strings.Contains(r.err, "is being written by") && !strings.Contains(r.err, "exists already") && !strings.Contains(r.err, "was made meanwhile"):
			t.Errorf("exit code %d: %s", r.code, r.err)
		}
	}
	if won != 1 {
		t.Errorf("%d won", won)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
	if r := command(t, "inspect", out); r.code != exitOK {
		t.Errorf("what was written is not whole: %s%s", r.out, r.err)
	}
}
