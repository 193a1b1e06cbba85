package main

import (
	"strings"
	"testing"
)

// What a refusal names was planned, and fits when it is pasted.
func TestWaysOutCanBePasted(t *testing.T) {
	for _, args := range [][]string{
		{"plan", "tiny-llama", "--machine", "cpu:64MiB", "--max-memory", "3MiB", "--seq-len", "512"},
		{"plan", "small-llama", "--machine", "cpu:8MiB", "--evaluate"},
		{"plan", "qwen2.5-0.5b", "--machine", "gpu:2GiB,host:4GiB", "--batch-size", "2", "--micro-batch-size", "2"},
		{"plan", "qwen2.5-0.5b", "--machine", "gpu:2GiB,host:4GiB,disk:4GiB@3GB/s"},
		{"plan", "qwen2.5-0.5b", "--machine", "2xgpu:2GiB,host:3GiB@9GB/s", "--batch-size", "4"},
		{"plan", "gpt2", "--machine", "cpu:64MiB,host:256MiB", "--task", "infer", "--precision", "fp32"},
		{"plan", "qwen2.5-0.5b", "--machine", "gpu:1GiB,host:256MiB", "--task", "generate"},
		{"plan", "qwen2.5-0.5b", "--machine", "cpu:300MiB,host:300MiB", "--task", "generate", "--precision", "fp32"},
	} {
		r := command(t, append(args, "--json")...)
		if r.code != exitFailed {
			t.Errorf("%v fits", args)
			continue
		}
		options, _ := r.object(t)["options"].([]any)
		if len(options) == 0 {
			t.Errorf("%v: no way out", args)
		}
		for _, o := range options {
			flags := strings.Fields(o.(map[string]any)["change"].(string))
			if !strings.HasPrefix(flags[0], "--") {
				t.Errorf("%v: %q is no flag", args, flags)
				continue
			}
			if r := command(t, append(args, flags...)...); r.code != exitOK {
				t.Errorf("%v with %q does not fit: %s%s", args, flags, r.out, r.err)
			}
		}
	}
	r := command(t, "train", initialized(t), "--data", prose(t), "--tokenizer", "bytes", "--device", "cpu", "--max-memory", "2MiB", "--seq-len", "256")
	if r.code != exitFailed || !strings.Contains(r.err, "to make it fit: --max-memory ") {
		t.Errorf("%d %s", r.code, r.err)
	}
}

// A host memory that nobody gave is named among what was assumed.
func TestAssumedHostIsNamed(t *testing.T) {
	if r := command(t, "plan", "llama-3-8b", "--machine", "rtx4090"); !strings.Contains(r.out, "assumed         48.0 GiB of host memory") {
		t.Error(r.out)
	}
	if r := command(t, "plan", "llama-3.2-1b", "--machine", "rtx4090,host:64GiB"); strings.Contains(r.out, "of host memory\n") {
		t.Error(r.out)
	}
}
