package main

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/recipe"
)

// given are values of the settings that differ from their defaults.
var given = map[string]string{
	"batch-size": "2", "micro-batch-size": "2", "seq-len": "32", "gradient-accumulation-steps": "2", "precision": "fp32", "fp32-modules": "norm", "no-quantize": "down_proj", "optimizer": "sgd",
	"state-policy": "low-memory", "max-grad-norm": "1", "lora-rank": "4", "lora-alpha": "5", "lora-dropout": "0.5", "target-modules": "q_proj", "exclude-modules": "q_proj",
	"layers-to-transform": "0", "rank-pattern": "q_proj=3", "alpha-pattern": "q_proj=3", "modules-to-save": "norm", "use-rslora": "true", "use-dora": "true", "lora-bias": "all",
	"init-lora-weights": "gaussian", "quantization": "int8", "llm-int8-threshold": "6", "device-map": "balanced", "max-memory": "8GiB", "optimizer-device": "cpu", "strategy": "cpu-offload", "evaluate": "true", "canonical-sums": "true", "all-logits": "true", "document-len": "16",
	"deepspeed": "", "disk": "", "format": "text", "fields": "text", "chat-template": "t.jinja", "today": "2025-01-01", "tokenizer": "bytes", "token-bytes": "2",
	"skip-bad-lines": "true", "train-on-prompts": "true", "packing": "whole", "eval-data": "", "eval-split": "0.5", "eval-steps": "3", "eval-batches": "3", "patience": "2",
	"context": "32", "compress-weights": "on", "max-host-memory": "6GiB", "streams": "2", "chunk": "16", "cache-type": "int8", "exact": "true",
	"param-group": "norms:weight_decay=0", "freeze": "norms", "ema": "0.99", "centralize-gradients": "true",
	"keep-best": "true", "journal-every": "2", "plan": "plan.json", "adapter": "dir",
}

// Every setting of a plan changes the plan of every task, or is refused. Those that change the
// numbers of a training run, and not its plan, are named here.
func TestPlanFlagsHaveAnEffect(t *testing.T) {
	numbers := map[string]string{"lora-alpha": "lora qlora", "alpha-pattern": "lora qlora", "init-lora-weights": "lora qlora", "param-group": "train"}
	base := []string{"plan", "tiny-llama", "--machine", "gpu:24GiB", "--json"}
	for _, task := range []string{"infer", "generate", "train", "lora", "qlora"} {
		usual := command(t, append(base, "--task", task)...).out
		recipe.NewPlan().PlanFlags().VisitAll(func(f *flag.Flag) {
			value, known := given[f.Name]
			if f.Name == "task" || f.Name == "method" || recipe.Aliases[f.Name] != "" || known && value == "" {
				return
			}
			if !known {
				t.Errorf("--%s: add a value for it, and say here what it does", f.Name)
				return
			}
			r := command(t, append(base, "--task", task, "--"+f.Name+"="+value)...)
			if r.out == usual && r.code == exitOK && !slices.Contains(strings.Fields(numbers[f.Name]), task) {
				t.Errorf("--task %s --%s %s: accepted, and the plan is the same", task, f.Name, value)
			}
		})
	}
}

// A setting of train that has no effect in the plainest run is refused; the others act.
func TestTrainFlagsHaveAnEffect(t *testing.T) {
	idle := map[string]bool{}
	for _, name := range strings.Fields(`lora-rank lora-alpha lora-dropout target-modules exclude-modules layers-to-transform rank-pattern alpha-pattern modules-to-save use-rslora use-dora
		lora-bias init-lora-weights quantization llm-int8-threshold no-quantize compress-weights adapter format fields prompt-separator token-bytes eval-batches patience keep-best journal-every allow-changes`) {
		idle[name] = true
	}
	recipe.New().Flags().VisitAll(func(f *flag.Flag) {
		value, known := given[f.Name]
		if f.Name == recipe.ModelKey || f.Name == recipe.VersionKey || recipe.Aliases[f.Name] != "" || known && value == "" {
			return
		}
		if !known {
			value = f.DefValue
		}
		r := recipe.New()
		for name, text := range map[string]string{"model": "tiny-llama", "data": "book.txt", f.Name: value} {
			if err := r.Flags().Set(name, text); err != nil && name != f.Name {
				t.Fatal(err)
			}
		}
		if err := r.Check(); (err != nil) != idle[f.Name] {
			t.Errorf("--%s %s: %v; want it refused: %v", f.Name, value, err, idle[f.Name])
		}
	})
}

// Pairs of settings of which one would win in silence, and those of the other commands.
func TestIdleFlagsAreRefused(t *testing.T) {
	dir, model := t.TempDir(), initialized(t)
	text, ids := filepath.Join(dir, "a.txt"), filepath.Join(dir, "a.bin")
	for name, content := range map[string]string{text: "to be or not to be, ", ids: "\x01\x00"} {
		if err := os.WriteFile(name, []byte(strings.Repeat(content, 400)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	adapter := filepath.Join(peft, "llama")
	for _, c := range []struct {
		says string
		args []string
	}{
		{"--epochs has no effect", []string{"train", model, "--data", ids, "--epochs", "2", "--max-steps", "1"}},
		{"sets lr too", []string{"train", model, "--data", ids, "--optimizer", "adamw:lr=1e-3", "--learning-rate", "1e-4"}},
		{"sets weight_decay too", []string{"train", model, "--data", ids, "--optimizer", "adamw:weight_decay=0", "--weight-decay", "1"}},
		{"sets warmup too", []string{"train", model, "--data", ids, "--lr-scheduler", "linear:warmup=3", "--warmup-steps", "1"}},
		{"--lora-rank has no effect: the options of the adapter", []string{"train", model, "--data", ids, "--method", "lora", "--adapter", adapter, "--lora-rank", "3"}},
		{"--tokenizer has no effect: all files hold token ids", []string{"train", model, "--data", ids, "--tokenizer", "bytes"}},
		{"--chat-template has no effect", []string{"train", model, "--data", text, "--tokenizer", "bytes", "--chat-template", text, "--max-steps", "1", "--out", filepath.Join(dir, "out")}},
		{"--train-on-prompts has no effect", []string{"train", model, "--data", text, "--tokenizer", "bytes", "--train-on-prompts", "--max-steps", "1", "--out", filepath.Join(dir, "out")}},
		{"is never reached: the run has 2 steps", []string{"train", model, "--data", ids, "--warmup-steps", "1000", "--max-steps", "2", "--out", filepath.Join(dir, "out")}},
		{"there is no layer 77", []string{"plan", "tiny-llama", "--task", "lora", "--layers-to-transform", "0,77"}},
		{`excluding: no layer is named "nosuch"`, []string{"plan", "tiny-llama", "--task", "lora", "--exclude-modules", "nosuch"}},
		{`pattern "nosuch"`, []string{"plan", "tiny-llama", "--task", "lora", "--rank-pattern", "nosuch=3"}},
		{"--batch-size has no effect", []string{"plan", "tiny-llama", "--batch-size", "2", "--max-batch-size"}},
		{"--seq-len has no effect", []string{"plan", "tiny-llama", "--seq-len", "2", "--max-seq-len"}},
		{"--instructions", []string{"plan", "tiny-llama", "--instructions", "--json"}},
		{"are not alike", []string{"plan", "tiny-llama", "--machine", "h100,rtx4090", "--device", "gpu0,gpu1"}},
		{"it has gpu0, gpu1", []string{"plan", "tiny-llama", "--machine", "2xh100", "--device", "gpu2"}},
		{"--rule-of-thumb has no effect", []string{"estimate", "--rule-of-thumb"}},
		{"--double-quant has no effect", []string{"quantize", model, filepath.Join(dir, "q"), "--format", "int8", "--double-quant=false"}},
		{`"nosuch"`, []string{"quantize", model, filepath.Join(dir, "q"), "--no-quantize", "nosuch"}},
		{"--dtype has no effect", []string{"merge", adapter, adapter, filepath.Join(dir, "both"), "--combine", "--dtype", "bf16"}},
		{"--shard-size has no effect", []string{"export", adapter, filepath.Join(dir, "e"), "--shard-size", "1GB"}},
		{"--shard-size has no effect", []string{"export", model, filepath.Join(dir, "e"), "--shard-size", "1GB", "--offload-folder"}},
		{"of bench gpu", []string{"bench", "cpu", "--rates", "file"}},
		{"cpu:avx2", []string{"bench", "cpu", "--device", "cuda:0"}},
	} {
		if r := command(t, c.args...); r.code == exitOK || !strings.Contains(r.err, c.says) {
			t.Errorf("%q: exit code %d, %s; want %q", c.args, r.code, r.err, c.says)
		}
	}
}

// One GPU of two is one GPU, as it is on this computer.
func TestPlanForOneDeviceOfSeveral(t *testing.T) {
	devices := func(args ...string) int {
		v := command(t, append([]string{"plan", "llama-3.2-1b", "--machine", "2xgpu:24GiB", "--json"}, args...)...).object(t)
		return len(at(t, v, "devices").([]any))
	}
	if one, both := devices("--device", "gpu1"), devices("--device-map", "balanced"); one != 1 || both != 2 {
		t.Errorf("%d device with --device gpu1, %d without", one, both)
	}
}

// Data with nothing to learn is refused before anything is trained, to train on and to
// evaluate on; a completion without an answer among others is left out, and said.
func TestNothingToLearnIsRefused(t *testing.T) {
	dir, model := t.TempDir(), initialized(t)
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty := file("empty.jsonl", strings.Repeat(`{"prompt": "a question", "completion": ""}`+"\n", 5))
	some := file("some.jsonl", strings.Repeat(`{"prompt": "a question", "completion": ""}`+"\n"+`{"prompt": "a question", "completion": "an answer"}`+"\n", 5))
	train := func(args ...string) result {
		return command(t, append([]string{"train", model, "--tokenizer", "bytes", "--seq-len", "32", "--out", filepath.Join(dir, "out"), "--max-steps", "1"}, args...)...)
	}
	config := filepath.Join(model, "config.json")
	raw, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	// A model without an end token: an empty answer is nothing at all.
	if err := os.WriteFile(config, []byte(strings.Replace(string(raw), "{", `{"eos_token_id": null, `, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--data", empty}, {"--data", some, "--eval-data", empty}} {
		if r := train(args...); r.code != exitFailed || !strings.Contains(r.err, "nothing to learn") {
			t.Errorf("%v: %d, %s%s", args, r.code, r.out, r.err)
		}
	}
	if r := train("--data", some); r.code != exitOK || !strings.Contains(r.out, "5 documents are left out, with no token in the loss") {
		t.Errorf("%d, %s%s", r.code, r.out, r.err)
	}
}
