package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The largest batch fits as it is printed, and one more does not.
func TestMaxBatch(t *testing.T) {
	for _, c := range []struct{ flag, size string }{{"--max-batch-size", "--micro-batch-size"}, {"--max-seq-len", "--seq-len"}} {
		base := []string{"plan", "small-llama", "--task", "train", "--precision", "fp32", "--machine", "cpu:64MiB,host:96MiB", "--json"}
		v := command(t, append(base, c.flag)...).object(t)
		n := int(at(t, v, "largest.value").(float64))
		if at(t, v, "fits") != true || n < 2 {
			t.Fatalf("%s: %d", c.flag, n)
		}
		again := func(n int) result { return command(t, append(base, c.size, fmt.Sprint(n))...) }
		if again(n).code != exitOK {
			t.Errorf("%s %d does not fit after all", c.size, n)
		}
		if _, more := at(t, v, "largest").(map[string]any)["next"]; more && again(n+1).code != exitFailed {
			t.Errorf("%s %d fits, but one less was said to be the largest", c.size, n+1)
		}
	}
	if r := command(t, "plan", "tiny-llama", "--max-batch-size", "--max-seq-len", "--machine", "cpu:64MiB"); r.code != exitUsage {
		t.Errorf("both at once: exit code %d", r.code)
	}
}

// All strategies and all savings are there, in JSON and in text.
func TestCompareAndExplain(t *testing.T) {
	args := []string{"plan", "small-llama", "--task", "train", "--batch-size", "8", "--micro-batch-size", "4", "--machine", "2xgpu:1GiB@10GB/s,host:4GiB,disk:10GiB", "--compare", "--explain"}
	v := command(t, append(args, "--json")...).object(t)
	best := at(t, v, "forecast.step_seconds").(float64)
	names := map[string]bool{}
	for _, c := range at(t, v, "compare").([]any) {
		names[at(t, c, "name").(string)] = true
		if at(t, c, "fits") == true && at(t, c, "step_seconds").(float64) < 0.9999*best {
			t.Errorf("%v is faster than the plan, which takes %v s", c, best)
		}
	}
	for _, want := range []string{"standard", "checkpointing", "activation-offload", "optimizer-offload", "cpu-offload", "disk-offload", "zero-1", "zero-2", "zero-3", "model-parallel", "pipeline"} {
		if !names[want] {
			t.Errorf("%s is not compared: %v", want, names)
		}
	}
	start := at(t, v, "everything_on_the_device.device_bytes").(float64)
	if start != at(t, v, "standard_bytes") {
		t.Errorf("the savings start from %v bytes, standard are %v", start, at(t, v, "standard_bytes"))
	}
	for _, r := range at(t, v, "savings").([]any) {
		if r.(map[string]any)["skipped"] == nil && at(t, r, "alone.device_bytes").(float64)+at(t, r, "saves_bytes").(float64) != start {
			t.Errorf("%v: what is saved and what is left are not %v", r, start)
		}
	}
	text := command(t, args...).out
	for _, want := range []string{"strategy, its best plan", "CPU offload", "if memory is short", "full checkpointing", "LoRA of rank 16", "what changes", "left out"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text has no %q:\n%s", want, text)
		}
	}
}

// Weights rest where the flag says, as words, JSON or a file.
func TestDeviceMapFlag(t *testing.T) {
	plan := func(args ...string) result {
		return command(t, append([]string{"plan", "small-llama", "--task", "infer", "--machine", "2xgpu:1GiB@10GB/s,host:4GiB", "--json"}, args...)...)
	}
	file := filepath.Join(t.TempDir(), "map.json")
	if err := os.WriteFile(file, []byte(`{"": "cpu"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`{"": "cpu"}`, file} {
		v := plan("--device-map", text).object(t)
		if homes := at(t, v, "homes.weight").(map[string]any); homes["device"] != nil || homes["pinned"] == nil {
			t.Errorf("%s: weights rest at %v", text, homes)
		}
	}
	v := plan("--device-map", "balanced").object(t)
	if n := len(at(t, v, "devices").([]any)); n != 2 {
		t.Errorf("balanced uses %d devices", n)
	}
	v = plan("--device-map", `{"": 0, "model.rotary_emb": 1}`).object(t)
	if n := at(t, v, "notices").([]any); len(n) != 1 || !strings.Contains(n[0].(string), "rotary_emb") {
		t.Errorf("notices %v", n)
	}
	for text, code := range map[string]int{"best": exitUsage, `{"model.layers": 0}`: exitFailed, `{"": 2}`: exitFailed} {
		if r := plan("--device-map", text); r.code != code {
			t.Errorf("%s: exit code %d, %s", text, r.code, r.err)
		}
	}
}

func TestMaxMemoryFlag(t *testing.T) {
	v := command(t, "plan", "small-llama", "--machine", "2xgpu:1GiB@10GB/s,host:4GiB", "--max-memory", "0=690MB,cpu=1GiB", "--json").object(t)
	if n := at(t, v, "forecast.peak_bytes.device").(float64); n > 690e6-614<<20 {
		t.Errorf("%v bytes, 690 MB are allowed with a context of 614 MiB", n)
	}
	if r := command(t, "plan", "small-llama", "--machine", "gpu:1GiB", "--max-memory", "1=40MB"); r.code != exitUsage {
		t.Errorf("a device that is not there: exit code %d", r.code)
	}
}

// DeepSpeed's file sets the goal; a flag that says it too is refused.
func TestDeepSpeedFlag(t *testing.T) {
	file := filepath.Join("..", "..", "deepspeed", "testdata", "zero2-offload.json")
	args := []string{"plan", "small-llama", "--machine", "2xgpu:1GiB@10GB/s,host:4GiB", "--deepspeed", file, "--json"}
	v := command(t, args...).object(t)
	if at(t, v, "goal.micro_batch_size") != 4.0 || at(t, v, "goal.micro_batches") != 8.0 || at(t, v, "goal.precision") != "f16" {
		t.Errorf("goal %v", v["goal"])
	}
	if homes := at(t, v, "homes.state").(map[string]any); homes["device"] != nil {
		t.Errorf("moments rest at %v", homes)
	}
	if s := at(t, v, "strategy").(string); !strings.HasPrefix(s, "ZeRO-2 on 2 devices") {
		t.Errorf("strategy %s", s)
	}
	if len(at(t, v, "notices").([]any)) == 0 {
		t.Error("no notices: no clipping is said")
	}
	if r := command(t, append(args, "--batch-size", "2")...); r.code != exitUsage || !strings.Contains(r.err, "--batch-size") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}

// The configuration of the guides drives a training.
func TestTrainWithDeepSpeed(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data.txt")
	if err := os.WriteFile(data, []byte(strings.Repeat("The quick brown fox jumps over the lazy dog. ", 400)), 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("..", "..", "deepspeed", "testdata", "zero2-offload.json")
	v := command(t, "train", "tiny-llama", "--device", "cpu", "--data", data, "--tokenizer", "bytes", "--seq-len", "16", "--max-steps", "6", "--learning-rate", "0.01", "--deepspeed", file, "--out", filepath.Join(dir, "out"), "--json").object(t)
	if first, last := at(t, v, "loss_first").(float64), at(t, v, "loss_last").(float64); last >= first {
		t.Errorf("the loss goes from %v to %v", first, last)
	}
	if s := at(t, v, "strategy").(string); !strings.Contains(s, "offload") {
		t.Errorf("strategy %s", s)
	}
	if at(t, v, "measured_peak_bytes") != at(t, v, "predicted_peak_bytes") {
		t.Errorf("predicted %v bytes, measured %v", at(t, v, "predicted_peak_bytes"), at(t, v, "measured_peak_bytes"))
	}
	if len(at(t, v, "notices").([]any)) < 2 {
		t.Errorf("notices %v", v["notices"])
	}
}

// --batch-size auto takes the micro-batch that planning finds fastest.
func TestBatchAuto(t *testing.T) {
	args := []string{"plan", "small-llama", "--machine", "gpu:1GiB@10GB/s,host:4GiB", "--json", "--batch-size"}
	v := command(t, append(args, "auto")...).object(t)
	one := command(t, append(args, "1")...).object(t)
	if at(t, v, "goal.micro_batch_size").(float64) < 2 || at(t, v, "forecast.tokens_per_second").(float64) <= at(t, one, "forecast.tokens_per_second").(float64) {
		t.Errorf("auto is %v with %v tokens/s, one sample has %v", at(t, v, "goal.micro_batch_size"), at(t, v, "forecast.tokens_per_second"), at(t, one, "forecast.tokens_per_second"))
	}
	if r := command(t, append(args, "some")...); r.code != exitUsage {
		t.Errorf("exit code %d", r.code)
	}
}

// ZeRO-Infinity's configuration trains from the folder it names.
func TestTrainWithDeepSpeedOnDisk(t *testing.T) {
	dir := t.TempDir()
	file, data := filepath.Join(dir, "ds.json"), filepath.Join(dir, "data.txt")
	config := fmt.Sprintf(`{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
		"optimizer": {"type": "AdamW", "params": {"lr": 0.003}},
		"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": %[1]q}, "offload_optimizer": {"device": "nvme", "nvme_path": %[1]q}}}`, filepath.Join(dir, "nvme"))
	for path, text := range map[string]string{file: config, data: strings.Repeat("Pack my box with five dozen liquor jugs. ", 400)} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	v := command(t, "train", "tiny-llama", "--device", "cpu", "--data", data, "--tokenizer", "bytes", "--seq-len", "16", "--max-steps", "4", "--deepspeed", file, "--out", filepath.Join(dir, "out"), "--json").object(t)
	if s := at(t, v, "strategy").(string); !strings.Contains(s, "CPU offload of 4 of 4 parameter buffers") || !strings.Contains(s, ", disk offload of 4 of 4") {
		t.Errorf("strategy %s", s)
	}
	if first, last := at(t, v, "loss_first").(float64), at(t, v, "loss_last").(float64); last >= first {
		t.Errorf("the loss goes from %v to %v", first, last)
	}
}
