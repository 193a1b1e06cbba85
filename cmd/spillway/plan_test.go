package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/plan"
)

const eightB = "gpu:24GiB@25GB/s,host:192GiB"

func TestPlanJSON(t *testing.T) {
	v := command(t, "plan", "llama-3-8b", "--task", "train", "--machine", eightB, "--json").object(t)
	for _, path := range []string{"strategy", "reason", "forecast.step_seconds", "forecast.bound", "forecast.peak_bytes.device",
		"forecast.peak_bytes.pinned", "homes.weight.device", "homes.state.pinned", "rejected", "model.params", "machine.description", "goal.seq_len"} {
		at(t, v, path)
	}
	if at(t, v, "fits") != true {
		t.Error("it should fit")
	}
	if n := at(t, v, "model.params"); n != 8030261248.0 {
		t.Errorf("%v params; Llama 3 8B has 8,030,261,248", n)
	}
	rejected := at(t, v, "rejected").([]any)
	if len(rejected) == 0 {
		t.Error("nothing was rejected")
	}
	for _, r := range rejected {
		if at(t, r, "reason") == "" {
			t.Errorf("no reason for %v", r)
		}
	}
}

// What each tier holds at its peak, class by class, adds up to the peak.
func TestUsageAddsUp(t *testing.T) {
	v := command(t, "plan", "gpt2", "--machine", "gpu:2GiB,host:32GiB", "--seq-len", "512", "--json").object(t)
	for tier, peak := range at(t, v, "forecast.peak_bytes").(map[string]any) {
		sum := 0.0
		for _, tiers := range at(t, v, "at_peak").(map[string]any) {
			if n, ok := tiers.(map[string]any)[tier]; ok {
				sum += n.(float64)
			}
		}
		if sum != peak {
			t.Errorf("%s: classes add up to %v, the peak is %v", tier, sum, peak)
		}
	}
}

// Every option of a plan that does not fit is tried as it is written, and fits.
func TestMisfitOptionsFit(t *testing.T) {
	ask := func(precision string, batch, seq, accumulate any, device, host float64) result {
		t.Helper()
		return command(t, "plan", "small-llama", "--json", "--precision", precision, "--micro-batch-size", fmt.Sprint(batch), "--seq-len", fmt.Sprint(seq), "--gradient-accumulation-steps", fmt.Sprint(accumulate),
			"--machine", fmt.Sprintf("cpu:%.0fB,host:%.0fB", device, host))
	}
	least := at(t, ask("fp32", 8, 256, 1, 1<<20, 8<<30).object(t), "needed_bytes").(float64)
	r := ask("fp32", 8, 256, 1, math.Floor(0.8*least), 8<<30)
	v := r.object(t)
	if r.code != exitFailed || at(t, v, "fits") != false {
		t.Fatalf("exit code %d, fits %v", r.code, at(t, v, "fits"))
	}
	if at(t, v, "needed_bytes").(float64) <= at(t, v, "budget_bytes").(float64) {
		t.Error("what is needed is not above what there is")
	}
	options := at(t, v, "options").([]any)
	if len(options) < 3 { // smaller micro-batches, shorter sequences, more memory
		t.Errorf("only %d options: %v", len(options), options)
	}
	for _, o := range options {
		precision := "fp32"
		if at(t, o, "change") == "--precision bf16" {
			precision = "bf16"
		}
		again := ask(precision, at(t, o, "micro_batch_size"), at(t, o, "seq_len"), at(t, o, "micro_batches"), at(t, o, "device_bytes").(float64), at(t, o, "host_bytes").(float64))
		if again.code != exitOK {
			t.Errorf("%v does not fit after all: %s%s", at(t, o, "change"), again.out, again.err)
		}
	}
}

// A saved plan is read back whole.
func TestSavedPlan(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	if r := command(t, "plan", "tiny-llama", "--machine", "cpu:64MiB", "--save", path); r.code != 0 {
		t.Fatal(r.err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := p.Write(&again); err != nil || again.String() != string(text) {
		t.Errorf("written again it differs: %v", err)
	}
}

func TestPlanOfAFolder(t *testing.T) {
	dir := t.TempDir()
	config := `{"model_type":"gpt2","n_embd":64,"n_layer":2,"n_head":4,"vocab_size":100,"n_positions":32}`
	path := filepath.Join(dir, "config.json")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, arg := range []string{dir, dir + "/"} {
		v := command(t, "plan", arg, "--machine", "cpu:64MiB", "--json").object(t)
		if at(t, v, "goal.seq_len") != 32.0 || at(t, v, "model.vocabulary") != 100.0 {
			t.Errorf("%s: %v", arg, v["model"])
		}
	}
	if r := command(t, "plan", filepath.Join(dir, "none"), "--machine", "cpu:64MiB"); r.code != exitFailed {
		t.Errorf("a missing folder gives %d", r.code)
	}
}

// Limits of host memory bind a plan as they bind a training run, and what is offered when nothing fits can be pasted; the type to compute in
// has the name that generate gives it too.
func TestPlanWithinHostMemory(t *testing.T) {
	args := []string{"plan", "llama-3.2-1b", "--task", "generate", "--dtype", "f16", "--machine", "rtx3060,host:16GiB", "--max-memory", "2GiB", "--json"}
	v := command(t, args...).object(t)
	if at(t, v, "goal.precision") != command(t, append(append([]string{}, args[:4]...), append([]string{"--precision", "fp16"}, args[6:]...)...)...).object(t)["goal"].(map[string]any)["precision"] {
		t.Error("--dtype f16 is not --precision fp16")
	}
	r := command(t, append(args, "--max-host-memory", "1GiB")...)
	refused := r.object(t)
	if r.code != exitFailed || at(t, refused, "fits") != false {
		t.Fatalf("exit %d: %s", r.code, r.out)
	}
	_, limit, found := strings.Cut(r.out, "--max-host-memory ")
	if !found {
		t.Fatalf("no larger limit is offered: %s", r.out)
	}
	limit = limit[:strings.Index(limit, "MiB")+3]
	fits := command(t, append(args, "--max-host-memory", limit)...).object(t)
	if host := at(t, fits, "forecast.peak_bytes.pinned").(float64); host > 16<<30 || at(t, fits, "fits") != true {
		t.Errorf("with %s it takes %v of host memory", limit, host)
	}
}
