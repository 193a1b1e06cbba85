package main

import (
	"math"
	"testing"
)

// row finds a task and precision of an estimate.
func row(t *testing.T, model any, task, precision string) map[string]any {
	t.Helper()
	for _, r := range at(t, model, "rows").([]any) {
		if m := r.(map[string]any); m["task"] == task && m["precision"] == precision {
			return m
		}
	}
	t.Fatalf("no row %s in %s", task, precision)
	return nil
}

func estimated(t *testing.T, args ...string) any {
	t.Helper()
	v := command(t, append([]string{"estimate", "--json"}, args...)...).object(t)
	return at(t, v, "models").([]any)[0]
}

// The numbers are those of the planner's standard plan, to the byte.
func TestEstimateIsThePlan(t *testing.T) {
	m := estimated(t, "llama-3.2-1b", "--batch-size", "2", "--seq-len", "512")
	for _, task := range []string{"infer", "train", "lora", "qlora"} {
		for _, precision := range []string{"fp32", "bf16"} {
			v := command(t, "plan", "llama-3.2-1b", "--task", task, "--precision", precision, "--batch-size", "2", "--seq-len", "512", "--machine", "gpu:500GiB", "--json").object(t)
			r := row(t, m, task, precision)
			if got, want := r["total_bytes"], at(t, v, "standard_bytes"); got != want {
				t.Errorf("%s in %s: estimated %v, planned %v", task, precision, got, want)
			}
			sum := 0.0
			for _, part := range []string{"weights", "gradients", "master", "state", "activations", "workspace", "other"} {
				sum += r[part+"_bytes"].(float64)
			}
			if sum != r["total_bytes"] {
				t.Errorf("%s in %s: the parts add up to %v, the total is %v", task, precision, sum, r["total_bytes"])
			}
		}
	}
}

// Bytes per param, where the guides go wrong: masters are there, frozen weights
// count, adapters alone have optimizer state, SGD without momentum has none, scales
// of 4-bit weights count.
func TestEstimateFormulas(t *testing.T) {
	const (
		params   = 1_235_814_400
		linear   = 973_078_528 // in the layers, which QLoRA packs
		adapters = 11_272_192  // rank 16 on all of them
	)
	m := estimated(t, "llama-3.2-1b", "--seq-len", "512")
	near := func(what string, got any, want float64) {
		t.Helper()
		if g := got.(float64); math.Abs(g-want) > 0.001*want+1<<20 {
			t.Errorf("%s: %.0f bytes, the formula gives %.0f", what, g, want)
		}
	}
	if n := at(t, m, "params"); n != float64(params) {
		t.Fatalf("%v params", n)
	}
	near("bf16 weights", row(t, m, "infer", "bf16")["weights_bytes"], 2*params)
	near("fp32 weights", row(t, m, "train", "fp32")["weights_bytes"], 4*params)
	near("master weights with bf16", row(t, m, "train", "bf16")["master_bytes"], 4*params)
	near("master weights with fp32", row(t, m, "train", "fp32")["master_bytes"], 0)
	near("moments", row(t, m, "train", "bf16")["state_bytes"], 8*params)
	near("weights of LoRA", row(t, m, "lora", "bf16")["weights_bytes"], 2*(params+adapters))
	near("moments of LoRA", row(t, m, "lora", "bf16")["state_bytes"], 8*adapters)
	// 4 bits, a byte of scale for every 64 of them and an f32 for every 256 scales; all
	// else as it was
	near("weights of QLoRA", row(t, m, "qlora", "bf16")["weights_bytes"], (0.5+1.0/64+4.0/64/256)*linear+2*(params-linear+adapters))
	sgd := estimated(t, "llama-3.2-1b", "--seq-len", "512", "--optimizer", "sgd")
	near("moments of SGD", row(t, sgd, "train", "fp32")["state_bytes"], 0)
	if n := row(t, m, "lora", "bf16")["trainable"]; n != float64(adapters) {
		t.Errorf("%v trainable params of LoRA", n)
	}
}

// The rules of thumb are shown only where asked for.
func TestEstimateRulesOfThumb(t *testing.T) {
	if _, there := row(t, estimated(t, "tiny-llama"), "train", "fp32")["rule_of_thumb"]; there {
		t.Error("a rule of thumb nobody asked for")
	}
	r := row(t, estimated(t, "tiny-llama", "--rule-of-thumb"), "train", "fp32")
	if n := at(t, r, "rule_of_thumb.bytes"); n.(float64) != 16*at(t, estimated(t, "tiny-llama"), "params").(float64) {
		t.Errorf("16 bytes per param are %v", n)
	}
}

func TestEstimateMisuse(t *testing.T) {
	for _, args := range [][]string{{"--batch-size", "0"}, {"--seq-len", "-1"}, {"--optimizer", "best"}} {
		if r := command(t, append([]string{"estimate", "tiny-llama"}, args...)...); r.code != exitUsage {
			t.Errorf("%v: exit code %d", args, r.code)
		}
	}
	if r := command(t, "estimate", "no-such-model"); r.code != exitFailed {
		t.Errorf("exit code %d", r.code)
	}
}
