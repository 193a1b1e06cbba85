package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"spillway/recipe"
)

// questions are a prompt and a completion per line, as JSON lines and as a table.
func questions(t *testing.T) (lines, table string) {
	t.Helper()
	var a, b strings.Builder
	b.WriteString("prompt,completion\n")
	for i := range 12 {
		fmt.Fprintf(&a, `{"prompt": "what is %d?", "completion": "it is \"%d\", surely"}`+"\n", i, i*i)
		fmt.Fprintf(&b, "what is %d?,\"it is \"\"%d\"\", surely\"\n", i, i*i)
	}
	return write(t, "questions.jsonl", a.String()), write(t, "questions.csv", b.String())
}

// A table and standard input are read as the JSON lines that say the same.
func TestDataFromTablesAndStdin(t *testing.T) {
	lines, table := questions(t)
	raw, err := os.ReadFile(lines)
	if err != nil {
		t.Fatal(err)
	}
	loss := func(stdin string, files ...string) (loss, documents any) {
		args := []string{"train", "tiny-llama", "--tokenizer", "bytes", "--device", "cpu", "--seq-len", "32", "--max-steps", "2", "--out", filepath.Join(t.TempDir(), "out"), "--json"}
		for _, f := range files {
			args = append(args, "--data", f)
		}
		var out, errs bytes.Buffer
		code := run(context.Background(), args, shell{in: strings.NewReader(stdin), out: &out, err: &errs, cache: cache})
		v := result{code, out.String(), errs.String()}.object(t)
		return at(t, v, "loss_last"), at(t, v, "data.documents")
	}
	want, _ := loss("", lines)
	for name, got := range map[string]any{"a table": first(loss("", table)), "standard input": first(loss(string(raw), "-"))} {
		if got != want {
			t.Errorf("from %s the loss is %v, from JSON lines %v", name, got, want)
		}
	}
	for weight, want := range map[string]float64{"2": 24, "0.5": 6, "1.25": 15} {
		if _, n := loss("", lines+"="+weight); n != want {
			t.Errorf("with a weight of %s there are %v documents of 12, want %v", weight, n, want)
		}
	}
	if _, n := loss("", lines+"=0.5", table); n != 18.0 {
		t.Errorf("%v documents of a half and a whole", n)
	}
	for says, args := range map[string][]string{
		"FILE=0.5": {"--data", lines + "=many"}, "Arrow is not read": {"--data", write(t, "x.arrow", "")}, "give --eval-data": {"--data", lines + "=2", "--eval-split", "0.5"},
	} {
		if r := command(t, append([]string{"train", "tiny-llama", "--tokenizer", "bytes"}, args...)...); r.code == exitOK || !strings.Contains(r.err, says) {
			t.Errorf("%v: %d %s", args, r.code, r.err)
		}
	}
}

func first(a, _ any) any { return a }

// A dry run shows the plan, the data and a sample of it, and writes nothing.
func TestDryRun(t *testing.T) {
	lines, _ := questions(t)
	out := filepath.Join(t.TempDir(), "out")
	args := []string{"train", "tiny-llama", "--data", lines, "--tokenizer", "bytes", "--seq-len", "32", "--epochs", "3", "--out", out, "--dry-run", "--show-sample"}
	r := command(t, args...)
	if _, err := os.Stat(out); err == nil || r.code != exitOK {
		t.Errorf("exit code %d, %s; %s is there: %v", r.code, r.err, out, err == nil)
	}
	for _, want := range []string{"strategy  ", "12 documents", "what is 0?⟦it is \"0\", surely⟧"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is not in\n%s", want, r.out)
		}
	}
	v := command(t, append(args, "--json")...).object(t)
	if at(t, v, "fits") != true || at(t, v, "data.documents") != 12.0 || !(at(t, v, "steps").(float64) >= 3) || len(at(t, v, "sample").([]any)) != 2 {
		t.Errorf("%v", v)
	}
}

// The norm of the gradients is reported without clipping, and changes nothing.
func TestGradNormWithoutClipping(t *testing.T) {
	dir := t.TempDir()
	train := func(name string, flags ...string) (loss any, log []map[string]any) {
		file := filepath.Join(dir, name+".jsonl")
		v := trainTiny(t, append([]string{"--data", prose(t), "--max-steps", "3", "--log", file, "--out", filepath.Join(dir, name)}, flags...)...).object(t)
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatal(err)
			}
			log = append(log, m)
		}
		return at(t, v, "loss_last"), log
	}
	plain, _ := train("plain")
	reported, log := train("norm", "--max-grad-norm", "inf")
	if plain != reported {
		t.Errorf("the loss is %v with the norm reported, %v without", reported, plain)
	}
	for _, line := range log {
		if norm, ok := line["grad_norm"].(float64); !ok || !(norm > 0) || math.IsInf(norm, 0) || !(line["lr"].(float64) > 0) {
			t.Errorf("%v", line)
		}
	}
}

// Every default that a recipe shows is one: set, it changes nothing.
func TestPrintedDefaultsAreDefaults(t *testing.T) {
	out := command(t, "train", "tiny-llama", "--print-recipe").out
	_, defaults, found := strings.Cut(out, "# Defaults:\n")
	if !found {
		t.Fatal(out)
	}
	usual, set, n := recipe.New(), recipe.New(), 0
	for line := range strings.Lines(defaults) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "# "), ": ")
		value, _, _ := strings.Cut(rest, "  # ")
		if value = strings.TrimSpace(value); value == "" || value == "[]" {
			continue // none, and what that means is in the help
		}
		value = strings.Trim(value, "[]")
		if n++; set.Flags().Set(name, value) != nil {
			t.Errorf("the default of %s cannot be set: %q", name, value)
		}
	}
	if err := usual.Flags().Set("lr-scheduler", "constant"); err != nil { // what no schedule is
		t.Fatal(err)
	}
	a, b := usual, set
	if n < 20 || fmt.Sprintf("%+v", a.Plan) != fmt.Sprintf("%+v", b.Plan) || !reflect.DeepEqual(a.Data, b.Data) || !reflect.DeepEqual(a.Eval, b.Eval) || !reflect.DeepEqual(a.Training, b.Training) || !reflect.DeepEqual(a.Output, b.Output) {
		t.Errorf("%d defaults give\n%+v\n%+v\nnot\n%+v\n%+v", n, b.Plan, b.Training, a.Plan, a.Training)
	}
	if strings.Contains(out, "weight-decay: 0 ") {
		t.Error("the default of weight-decay is the optimizer's")
	}
}

// What is resumed from is said.
func TestResumedFromIsSaid(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	args := []string{"train", "tiny-llama", "--data", prose(t), "--tokenizer", "bytes", "--seq-len", "32", "--out", out, "--max-steps"}
	if r := command(t, append(args, "1")...); r.code != exitOK || strings.Contains(r.out, "resumed from") {
		t.Fatal(r.code, r.err)
	}
	r := command(t, append(args, "2", "--resume")...)
	if want := "step 1 in " + filepath.Join(out, "step-00000001"); r.code != exitOK || !strings.Contains(strings.Join(strings.Fields(r.out), " "), want) {
		t.Errorf("%q is not in %s%s", want, r.out, r.err)
	}
	if r := command(t, append(args, "2", "--resume")...); r.code != exitOK || !strings.Contains(r.out, "nothing was left to do") || strings.Contains(r.out, "0.0000") {
		t.Errorf("a run that is done: %s%s", r.out, r.err)
	}
}

// Numbers that are none are refused in our words.
func TestNoGoErrors(t *testing.T) {
	for _, args := range [][]string{{"train", "x", "--seed", "x"}, {"train", "x", "--weight-decay", "x"}, {"estimate", "--batch-size", "x"}, {"init", "gpt2", "--out", "x", "--seed", "-1"},
		{"plan", "gpt2", "--seq-len", "x"}, {"train", "x", "--learning-rate", "x"}, {"bench", "cpu", "--rounds", "x"}} {
		r := command(t, args...)
		if r.code != exitUsage || strings.Contains(r.err, "strconv") || strings.Contains(r.err, "parse error") || strings.Contains(r.err, "invalid syntax") {
			t.Errorf("%v: %d %s", args, r.code, r.err)
		}
	}
}

// A demonstration does not go on with another's model.
func TestDemoTwice(t *testing.T) {
	out := filepath.Join(t.TempDir(), "keep")
	if err := os.MkdirAll(filepath.Join(out, "step-00000240"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := command(t, "demo", "--out", out)
	if r.code != exitFailed || !strings.Contains(r.err, "name another folder") {
		t.Errorf("%d %s", r.code, r.err)
	}
}
