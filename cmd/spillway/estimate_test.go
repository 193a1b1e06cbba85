package main

import (
	"strings"
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

// A model that is known by its size, on a machine that is described.
func TestEstimateForAMachine(t *testing.T) {
	args := []string{"estimate", "--size", "200MB", "--seq-len", "64", "--machine", "gpu:1GiB@12GB/s,host:8GiB"}
	v := command(t, append(args, "--json")...).object(t)
	rows := v["models"].(map[string]any)["model of 200MB"].([]any)
	text := command(t, args...).out
	for i, task := range []string{"generate", "qlora", "lora", "train"} {
		row := rows[i].(map[string]any)
		if row["task"] != task || !(row["tokens_per_second"].(float64) > 0) || !strings.Contains(text, "  "+task+" ") {
			t.Errorf("%v\n%s", row, text)
		}
	}
	if !strings.Contains(text, "100 M params") && !strings.Contains(text, "99.") && !strings.Contains(text, "101 M") {
		t.Errorf("the params of 200 MB in 16 bits: %s", text)
	}
	for _, bad := range [][]string{{"--size", "7"}, {"--size", "large"}, {"--machine", "abacus"}, {"--machine", "rtx4060", "--rule-of-thumb"}} {
		if r := command(t, append([]string{"estimate"}, bad...)...); r.code != exitUsage {
			t.Errorf("%v: exit %d: %s", bad, r.code, r.err)
		}
	}
}
