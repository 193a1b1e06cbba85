package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/checkpoint"
	"spillway/eventlog"
	"spillway/safetensors"
	"spillway/tensorfile"
)

// numbersOf reads a tensor of a checkpoint's file.
func numbersOf(t *testing.T, dir, file, name string) []float32 {
	t.Helper()
	s, err := safetensors.Open(filepath.Join(checkpoint.Newest(dir), file))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	x, ok := s.Tensor(name)
	if !ok {
		t.Fatalf("%s has no %s", file, name)
	}
	return read(t, x)
}

func read(t *testing.T, x tensorfile.Tensor) []float32 {
	t.Helper()
	list := make([]float32, x.Shape.Elements())
	if err := x.ReadF32(list, 0); err != nil {
		t.Fatal(err)
	}
	return list
}

// Groups, frozen params, an average of the weights and centralized gradients are flags of train: they do what they say, are in the
// run's recipe and settings, and a run goes on with them to the bit.
func TestTrainByNamesOfParams(t *testing.T) {
	dir, data := t.TempDir(), prose(t)
	text, err := os.ReadFile(data)
	if err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(dir, "short.jsonl")
	if err := os.WriteFile(short, []byte(strings.Join(strings.SplitAfter(string(text), "\n")[:6], "")), 0o644); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--data", data, "--eval-data", short, "--eval-batches", "0", "--max-steps", "8", "--ema", "0.5", "--freeze", "layers[.]0[.]", "--param-group", "embeddings:lr=0", "--param-group", "norms,lm_head:lr=1e-3,beta2=0.9,weight_decay=0", "--centralize-gradients", "--max-grad-norm", "1"}
	start := filepath.Join(dir, "start")
	if r := command(t, "init", "tiny-llama", "--out", start); r.code != exitOK {
		t.Fatal(r.err)
	}
	train := func(out string, more ...string) map[string]any {
		t.Helper()
		return command(t, slices.Concat([]string{"train", start, "--micro-batch-size", "2", "--seq-len", "64", "--learning-rate", "5e-3", "--json", "--out", out}, flags, more)...).object(t)
	}
	whole, parts := filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
	v := train(whole)
	train(parts, "--save-steps", "4", "--keep", "0")
	if err := os.RemoveAll(checkpoint.Newest(parts)); err != nil {
		t.Fatal(err)
	}
	if r := command(t, "train", "--resume", "--out", parts, "--json"); r.code != exitOK {
		t.Fatal(r.err)
	}
	const weights = "model.safetensors"
	for _, file := range []string{weights, checkpoint.StateName} {
		a, err := os.ReadFile(filepath.Join(checkpoint.Newest(whole), file))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(checkpoint.Newest(parts), file))
		if err != nil || string(a) != string(b) {
			t.Errorf("%s of a run that was continued differs: %v", file, err)
		}
	}
	for name, trained := range map[string]bool{"model.embed_tokens.weight": false, "model.layers.0.mlp.up_proj.weight": false, "model.layers.1.mlp.up_proj.weight": true, "model.norm.weight": true} {
		if same := slices.Equal(numbersOf(t, start, weights, name), numbersOf(t, whole, weights, name)); same == trained {
			t.Errorf("%s is as at the start: %v", name, same)
		}
	}
	// Adam steps by about its rate.
	was, is := numbersOf(t, start, weights, "model.norm.weight"), numbersOf(t, whole, weights, "model.norm.weight")
	most := 0.0
	for i := range was {
		most = max(most, math.Abs(float64(is[i]-was[i])))
	}
	if !(most > 1e-3 && most < 1.5*8*1e-3) {
		t.Errorf("a norm of a group with a rate of 1e-3 went %v in 8 steps", most)
	}
	// What is evaluated in training is the average, which export writes.
	out := filepath.Join(dir, "average")
	if r := command(t, "export", whole, out, "--average"); r.code != exitOK {
		t.Fatal(r.err)
	}
	average := numbersOf(t, out, weights, "model.layers.1.mlp.up_proj.weight")
	if !slices.Equal(average, numbersOf(t, whole, checkpoint.StateName, "ema.model.layers.1.mlp.up_proj.weight")) || slices.Equal(average, numbersOf(t, whole, weights, "model.layers.1.mlp.up_proj.weight")) {
		t.Error("the exported weights are not the average")
	}
	again := command(t, "eval", out, "--data", short, "--micro-batch-size", "2", "--seq-len", "64", "--json").object(t)
	if a, b := at(t, again, "loss").(float64), at(t, v, "eval_loss").(float64); math.Abs(a-b) > 1e-9*b {
		t.Errorf("the average evaluates to %v, in training to %v", a, b)
	}
	log, err := os.ReadFile(filepath.Join(whole, eventlog.FileName))
	if err != nil || !strings.Contains(string(log), "embeddings:lr=0") || !strings.Contains(string(log), "centralize-gradients") {
		t.Errorf("the settings are not in the run's log: %v", err)
	}
	// plan counts the average: four bytes of each trained number.
	bytes := func(more ...string) float64 {
		return at(t, command(t, append([]string{"plan", start, "--micro-batch-size", "2", "--seq-len", "64", "--json"}, more...)...).object(t), "standard_bytes").(float64)
	}
	params := at(t, command(t, "inspect", start, "--json").object(t), "model.params").(float64)
	if more := bytes("--ema", "0.9") - bytes(); math.Abs(more-4*params) > 8<<10 {
		t.Errorf("an average of %v params takes %v bytes", params, more)
	}
}

// A schedule-free run is exported as the weights that it is evaluated with.
func TestExportOfScheduleFreeRuns(t *testing.T) {
	dir := t.TempDir()
	run, out := filepath.Join(dir, "run"), filepath.Join(dir, "out")
	v := trainTiny(t, "--data", prose(t), "--max-steps", "5", "--optimizer", "schedule_free_adamw", "--eval-split", "0.05", "--out", run).object(t)
	if text := fmt.Sprint(at(t, v, "notices")); !strings.Contains(text, "export --average") {
		t.Errorf("nothing says what was evaluated: %s", text)
	}
	if r := command(t, "export", run, out, "--average"); r.code != exitOK {
		t.Fatal(r.err)
	}
	const file, name = "model.safetensors", "model.layers.1.mlp.up_proj.weight"
	y, z, x := numbersOf(t, run, file, name), numbersOf(t, run, checkpoint.StateName, "z."+name), numbersOf(t, out, file, name)
	for i := range x { // y is nine tenths of x and one of z
		if math.Abs(0.9*float64(x[i])+0.1*float64(z[i])-float64(y[i])) > 1e-6 {
			t.Fatalf("number %d: x %v, z %v, y %v", i, x[i], z[i], y[i])
		}
	}
}

// What has no effect, or names nothing, is refused.
func TestParamFlagsRefuse(t *testing.T) {
	data := prose(t)
	for want, flags := range map[string][]string{
		"none of the 20 params that would be trained matches": {"--freeze", "bias"},
		"nothing is left to train":                            {"--freeze", "."},
		"none of the 20 params that are trained is in it":     {"--param-group", "encoder:lr=1"},
		"or an earlier group has them":                        {"--param-group", "norms:lr=1", "--param-group", "model.norm.weight:lr=2"},
		"such as embeddings,norms:lr=1e-5":                    {"--param-group", "norms"},
		"momentum":                                            {"--param-group", "norms:momentum=0.9"},
		"is not a number between 0 and 1":                     {"--ema", "1"},
		"master weights":                                      {"--ema", "0.9", "--precision", "pure-bf16"},
		"which has an average of its own":                     {"--ema", "0.9", "--optimizer", "schedule_free_adamw"},
	} {
		r := trainTiny(t, slices.Concat([]string{"--data", data, "--max-steps", "2", "--out", filepath.Join(t.TempDir(), "run")}, flags)...)
		if r.code == exitOK || !strings.Contains(r.err, want) {
			t.Errorf("%v: %s", flags, r.err)
		}
	}
	for _, flag := range []string{"--ema=0.9", "--freeze=norms", "--param-group=norms:lr=1", "--centralize-gradients"} {
		if r := command(t, "plan", "tiny-llama", "--task", "infer", flag); r.code == exitOK || !strings.Contains(r.err, "has no effect: nothing is trained") {
			t.Errorf("%s: %s", flag, r.err)
		}
	}
}
