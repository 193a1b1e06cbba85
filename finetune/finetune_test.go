package finetune

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"spillway"
	"spillway/data"
	"spillway/recipe"
	"spillway/rig"
	"spillway/train"
)

// byteModelFile is the config of a tiny Llama that reads bytes.
func byteModelFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bytes.json")
	config := `{"model_type":"llama","vocab_size":256,"hidden_size":16,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":2,
"intermediate_size":32,"rms_norm_eps":1e-5,"tie_word_embeddings":false,"max_position_embeddings":64}`
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// settings is a recipe with settings by name.
func settings(t *testing.T, set map[string]string) *recipe.Recipe {
	t.Helper()
	r := recipe.New()
	for name, value := range set {
		if err := r.Flags().Set(name, value); err != nil {
			t.Fatal(name, err)
		}
	}
	return r
}

// texts are JSON lines of texts with so many characters each.
func texts(t *testing.T, lengths ...int) string {
	t.Helper()
	var b strings.Builder
	for i, n := range lengths {
		fmt.Fprintf(&b, "{\"text\": %q}\n", strings.Repeat(string(rune('a'+i%26)), n))
	}
	file := filepath.Join(t.TempDir(), "texts.jsonl")
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// losses are those of every step of a recipe.
func losses(t *testing.T, r *recipe.Recipe, o Options) (list []float64, result Result) {
	t.Helper()
	o.Report = func(r train.Report) { list = append(list, r.Loss) }
	result, err := Train(context.Background(), r, o)
	if err != nil {
		t.Fatal(err)
	}
	return list, result
}

// Of a single text the end is evaluated on, as if both parts were files.
func TestOneTextIsCut(t *testing.T) {
	dir, model := t.TempDir(), byteModelFile(t)
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := strings.Repeat("Call me Ishmael. Some years ago, never mind how long precisely. ", 10)
	at := len(text) + 1 - int(math.Round(0.2*float64(len(text)+1))) // with the token that ends it
	set := map[string]string{"model": model, "data": file("book.txt", text), "device": "cpu", "seq-len": "32", "max-steps": "3", "eval-split": "0.2"}
	_, got := losses(t, settings(t, set), Options{NoSave: true})
	set["data"], set["eval-data"] = file("begin.txt", text[:at]), file("end.txt", text[at:])
	delete(set, "eval-split")
	_, want := losses(t, settings(t, set), Options{NoSave: true})
	if got.EvalLoss == 0 || math.Abs(got.EvalLoss/want.EvalLoss-1) > 0.02 {
		t.Errorf("eval loss %v, of the parts as files %v", got.EvalLoss, want.EvalLoss)
	}
}

// A run that is interrupted while its weights are loaded ends at once, saves nothing, and leaves its folder to the next.
func TestLoadingIsInterrupted(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	set := map[string]string{"model": byteModelFile(t), "data": texts(t, 90, 90), "device": "cpu", "seq-len": "32", "max-steps": "2", "out": out}
	ctx, cancel := context.WithCancel(context.Background())
	loading := 0
	_, err := Train(ctx, settings(t, set), Options{Progress: func(what string, done, total int64) {
		if what == "loading weights" {
			loading++
			cancel()
			if done > total || total == 0 {
				t.Errorf("%d of %d bytes", done, total)
			}
		}
	}})
	if !errors.Is(err, context.Canceled) || loading != 1 {
		t.Fatal(err, loading)
	}
	if saved, _ := filepath.Glob(filepath.Join(out, "step-*")); len(saved) > 0 {
		t.Error(saved)
	}
	if got, result := losses(t, settings(t, set), Options{}); len(got) != 2 || result.Checkpoint == "" {
		t.Error(got, result.Checkpoint)
	}
}

// A checkpoint that had to be saved elsewhere is resumed from there, as the error says.
func TestRescuedRunsAreResumed(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	set := map[string]string{"model": byteModelFile(t), "data": texts(t, 90, 90, 90, 90), "device": "cpu", "seq-len": "32", "max-steps": "2", "out": out}
	_, result := losses(t, settings(t, set), Options{})
	other := filepath.Join(t.TempDir(), "out-rescued-1")
	saved := filepath.Join(other, filepath.Base(result.Checkpoint))
	if err := errors.Join(os.Mkdir(other, 0o755), os.Rename(result.Checkpoint, saved)); err != nil {
		t.Fatal(err)
	}
	if err := (&Run{Recipe: settings(t, set)}).rescued(&train.SavedElsewhereError{Path: saved, Err: errors.New("full")}); err == nil || !strings.Contains(err.Error(), "--resume") {
		t.Fatal(err)
	}
	again := settings(t, map[string]string{"out": other, "resume": "true", "max-steps": "3"})
	if err := again.ReadRun(); err != nil {
		t.Fatal(err)
	}
	if got, result := losses(t, again, Options{}); len(got) != 1 || result.Steps != 3 && result.Steps != 1 {
		t.Error(got, result.Steps)
	}
}

// A recipe is the loop that one would write by hand: the same losses, to the bit.
func TestTrainIsTheLoopByHand(t *testing.T) {
	model, file := byteModelFile(t), texts(t, 70, 30, 45, 12, 90, 33)
	got, result := losses(t, settings(t, map[string]string{"model": model, "data": file, "device": "cpu", "seq-len": "32", "batch-size": "2", "epochs": "2", "learning-rate": "0.01", "seed": "5"}), Options{NoSave: true})

	m, err := spillway.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	m.Seed = 5
	here, err := rig.Open("cpu", rig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	p := recipe.NewPlan()
	p.MicroBatchSize, p.Seq, p.Optimizer.LR = 2, 32, 0.01
	o := p.Complete(here.Machine.Devices[0])
	o.Machine, o.On = here.Machine, here.Devices
	job, err := m.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	var documents tokens
	for i, n := range []int{70, 30, 45, 12, 90, 33} {
		documents = append(documents, append(slices.Repeat([]int32{int32('a' + i)}, n), 2)) // Llama's </s>
	}
	loader, err := data.NewLoader(documents, data.Config{Length: 32, Seed: 5, Epochs: 2})
	if err != nil {
		t.Fatal(err)
	}
	var want []float64
	c := train.Config{Iterations: int64(len(got)), Seed: 5, Report: func(r train.Report) { want = append(want, r.Loss) }}
	if _, err := train.Run(context.Background(), job, train.NewTokens(loader), c); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the losses are %v, by hand %v", got, want)
	}
	// An epoch is 286 tokens in rows of 32, which do not cross epochs; two rows a step.
	if result.Steps != 9 || result.Data.Documents != 6 || result.Data.Tokens != 286 || result.Data.LossTokens != 280 || result.Data.Longest != 91 || result.Data.Split != 4 {
		t.Errorf("%d steps of %+v", result.Steps, result.Data)
	}
}

// tokens are documents in memory.
type tokens [][]int32

func (d tokens) Len() int64 { return int64(len(d)) }
func (d tokens) Document(i int64) (data.Document, error) {
	return data.Document{Tokens: d[i]}, nil
}

// The log is a table that any CSV reader reads, with a line per step, and a run that goes on
// adds to it, also where the last line is half written.
func TestLog(t *testing.T) {
	dir := t.TempDir()
	log, model, file := filepath.Join(dir, "run.csv"), byteModelFile(t), texts(t, 200, 200)
	set := map[string]string{"model": model, "data": file, "device": "cpu", "seq-len": "32", "max-steps": "2", "log": log, "out": filepath.Join(dir, "out")}
	first, _ := losses(t, settings(t, set), Options{})
	torn, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil { // as a run that was killed leaves it
		_, err = torn.WriteString("tiny,3,5.4")
	}
	if err := errors.Join(err, torn.Close()); err != nil {
		t.Fatal(err)
	}
	set["max-steps"], set["resume"] = "3", "true"
	second, _ := losses(t, settings(t, set), Options{})
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 4 || !slices.Equal(rows[0], Columns) || len(second) != 1 {
		t.Fatalf("%q", rows)
	}
	for i, want := range append(first, second...) {
		loss, err := strconv.ParseFloat(rows[i+1][2], 64)
		if rows[i+1][1] != fmt.Sprint(i+1) || err != nil || loss < want*(1-1e-5) || loss > want*(1+1e-5) {
			t.Errorf("line %d is %q, the loss was %v", i+1, rows[i+1], want)
		}
	}
}

// A run never goes on by accident, and never from nothing.
func TestOutputIsNotTakenByAccident(t *testing.T) {
	dir := t.TempDir()
	set := map[string]string{"model": byteModelFile(t), "data": texts(t, 200), "device": "cpu", "seq-len": "32", "max-steps": "1", "out": filepath.Join(dir, "out")}
	refused := func(says string) {
		t.Helper()
		if _, err := Prepare(settings(t, set), Options{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
	set["resume"] = "true"
	refused("to resume from: give the --out of the run")
	killed := filepath.Join(set["out"], recipe.RunName) // what a run leaves that is killed before it saves
	if err := errors.Join(os.MkdirAll(set["out"], 0o755), os.WriteFile(killed, []byte("max-steps: 1\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	refused("start it again with --recipe " + killed)
	if err := os.Remove(killed); err != nil {
		t.Fatal(err)
	}
	delete(set, "resume")
	losses(t, settings(t, set), Options{})
	refused("has a checkpoint of step 1: give --resume")
}
