package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/hf"
	"spillway/lora"
)

const (
	fixtures = "../../testdata/reference"
	peft     = "../../hf/testdata/adapters"
)

func TestQuantizeEveryFormat(t *testing.T) {
	model := initialized(t)
	for format, share := range map[string]float64{"nf4": 0.26, "fp4": 0.26, "int8": 0.52, "fp8": 0.52} {
		out := filepath.Join(t.TempDir(), format)
		r := command(t, "quantize", model, out, "--format", format, "--json").object(t)
		// The embedding, which stays, is 9000·64 of the weights; the rest shrinks, but for
		// tables of at most 1.5 kB with each weight.
		rest := func(key string) float64 { return at(t, r, key).(float64) - 2*9000*64 }
		if got := rest("bytes") / rest("bytes_before"); got < share*0.95 || rest("bytes") > share*1.05*rest("bytes_before")+3*7*1500 {
			t.Errorf("%s: linear weights take %.3f of what they took, want about %.3f", format, got, share)
		}
		if at(t, r, "changed").(float64) != 3*7 {
			t.Errorf("%s: %v", format, r)
		}
		again := filepath.Join(t.TempDir(), "again")
		if r := command(t, "quantize", out, again); r.code != exitFailed || !strings.Contains(r.err, "quantized already") {
			t.Errorf("%s quantized again: %d, %s", format, r.code, r.err)
		}
		back := command(t, "export", out, again, "--dtype", "bf16", "--json").object(t)
		if at(t, back, "bytes") != at(t, r, "bytes_before") {
			t.Errorf("%s exported as bf16: %v, was %v", format, back, r)
		}
	}
}

// A folder in accelerate's layout is opened like the one it was made from, and weights are
// read where they lie: training from both gives the same losses.
func TestExportForAccelerate(t *testing.T) {
	dir := t.TempDir()
	model, offloaded := initialized(t), filepath.Join(dir, "offloaded")
	r := command(t, "export", model, offloaded, "--offload-folder", "--json").object(t)
	files, err := filepath.Glob(filepath.Join(offloaded, "*.dat"))
	if err != nil || float64(len(files)) != at(t, r, "tensors").(float64)+1 { // the tied head has one too
		t.Errorf("%d files for %v tensors (%v)", len(files), at(t, r, "tensors"), err)
	}
	losses := func(folder string) any {
		v := command(t, "train", folder, "--data", prose(t), "--tokenizer", "bytes", "--method", "lora", "--seq-len", "32", "--max-steps", "2",
			"--disk", filepath.Join(dir, "disk"), "--out", filepath.Join(t.TempDir(), "run"), "--json").object(t)
		return at(t, v, "loss_last")
	}
	if got, want := losses(offloaded), losses(model); got != want {
		t.Errorf("the loss is %v from the offload folder, %v from the model folder", got, want)
	}
	if err := os.Remove(filepath.Join(offloaded, hf.ConfigName)); err != nil {
		t.Fatal(err)
	}
	if r := command(t, "inspect", offloaded); r.code != exitFailed || !strings.Contains(r.err, "put the model's config.json") {
		t.Errorf("without a config: %d, %s", r.code, r.err)
	}
}

// A run of train becomes an adapter for others, and a merged model.
func TestRunsAreExportedAndMerged(t *testing.T) {
	dir := t.TempDir()
	base, text, run := initialized(t), filepath.Join(dir, "text.txt"), filepath.Join(dir, "run")
	if err := os.WriteFile(text, []byte(strings.Repeat("\x01\x02\x03\x05\x08\x0d", 200)), 0o644); err != nil {
		t.Fatal(err)
	}
	r := command(t, "train", base, "--data", text, "--tokenizer", "bytes", "--method", "qlora", "--lora-rank", "4", "--seq-len", "32", "--max-steps", "3", "--out", run)
	if r.code != exitOK {
		t.Fatal(r.err)
	}
	// A plan of it is that of generate: the base as the run held it, and the adapter.
	sizes := []string{"--context", "64", "--device", "cpu", "--json"}
	plan := command(t, append([]string{"plan", run, "--task", "generate"}, sizes...)...).object(t)
	used := command(t, append([]string{"generate", run, "--tokens", "1,2", "--max-new-tokens", "2"}, sizes...)...).object(t)
	if got, want := at(t, plan, "devices").([]any)[0].(map[string]any)["peak_bytes"], at(t, used, "measured_peak_bytes"); got != want {
		t.Errorf("the plan of the run has %v bytes, generate took %v", got, want)
	}
	if r := command(t, "plan", run, "--task", "generate", "--quantization", "int8"); r.code != exitUsage || !strings.Contains(r.err, "--quantization has no effect") {
		t.Errorf("another base: %d, %s", r.code, r.err)
	}
	if r := command(t, "plan", run, "--task", "lora", "--machine", "cpu:1GiB"); r.code != exitOK || !strings.Contains(strings.Join(strings.Fields(r.out), " "), "without the adapter") {
		t.Errorf("training: %d, %s%s", r.code, r.out, r.err)
	}
	adapter, merged := filepath.Join(dir, "adapter"), filepath.Join(dir, "merged")
	exported := command(t, "export", run, adapter, "--dtype", "bf16", "--json").object(t)
	if at(t, exported, "kind") != "adapter" || at(t, exported, "tensors") != 42.0 || at(t, exported, "bytes").(float64)*2 != at(t, exported, "bytes_before") {
		t.Errorf("exported %v", exported)
	}
	a, err := lora.Open(adapter)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if a.Options.Rank != 4 || a.Options.Alpha != 8 {
		t.Errorf("the adapter has options %+v", a.Options)
	}
	both := command(t, "merge", base, run, merged, "--json").object(t)
	if at(t, both, "changed") != 21.0 || at(t, both, "bytes") != at(t, both, "bytes_before") {
		t.Errorf("merged %v", both)
	}
	undone := filepath.Join(dir, "undone")
	if r := command(t, "merge", merged, run, undone, "--unmerge"); r.code != exitOK || !strings.Contains(r.out, "21 of 29 weights changed") {
		t.Errorf("unmerged: %d, %s%s", r.code, r.out, r.err)
	}
}

func TestAdaptersAreCombined(t *testing.T) {
	dir := t.TempDir()
	one := filepath.Join(dir, "one")
	r := command(t, "merge", filepath.Join(peft, "llama")+"=0.5", filepath.Join(peft, "llama-all"), one, "--combine", "--json").object(t)
	if at(t, r, "kind") != "adapter" || at(t, r, "tensors") != 28.0 {
		t.Errorf("combined %v", r)
	}
	base, direct, through := filepath.Join(fixtures, "llama"), filepath.Join(dir, "direct"), filepath.Join(dir, "through")
	for out, adapters := range map[string][]string{direct: {filepath.Join(peft, "llama") + "=0.5", filepath.Join(peft, "llama-all")}, through: {one}} {
		if r := command(t, append(append([]string{"merge", base}, adapters...), out)...); r.code != exitOK {
			t.Fatal(r.err)
		}
	}
	const name = "model.layers.0.self_attn.q_proj.weight"
	a, b := weightOf(t, direct, name), weightOf(t, through, name)
	for i := range a {
		if d := a[i] - b[i]; d > 1e-5 || d < -1e-5 {
			t.Fatalf("element %d is %v merged one by one, %v combined", i, a[i], b[i])
		}
	}
}

func weightOf(t *testing.T, dir, name string) []float32 {
	t.Helper()
	f, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, _ := f.Tensor(name)
	out := make([]float32, x.Shape.Elements())
	if err := x.ReadF32(out, 0); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFolderCommandsRefuse(t *testing.T) {
	parent := t.TempDir()
	out, llama := filepath.Join(parent, "out"), filepath.Join(fixtures, "llama")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"quantize", llama, out, "--format", "int3"}, exitUsage, "written in fp4, fp8, int8, nf4; types of GGUF files"},
		{[]string{"quantize", llama, out, "--format", "q4_k"}, exitUsage, "written in fp4, fp8, int8, nf4; types of GGUF files"},
		{[]string{"quantize", llama, parent}, exitFailed, "exists already"},
		{[]string{"quantize", parent, out}, exitFailed, "not a model folder"},
		{[]string{"quantize", filepath.Join(fixtures, "gpt2"), out}, exitFailed, "[in out]"},
		{[]string{"merge", llama, out}, exitUsage, "at least 3"},
		{[]string{"merge", llama, filepath.Join(peft, "llama") + "=half", out}, exitUsage, "DIR=0.5"},
		{[]string{"merge", llama, filepath.Join(peft, "gpt2"), out}, exitFailed, "no layer is named"},
		{[]string{"merge", llama, filepath.Join(peft, "dora"), out}, exitFailed, "is it for another model?"},
		{[]string{"merge", llama, parent, out}, exitFailed, "not an adapter's folder"},
		{[]string{"merge", llama, filepath.Join(peft, "llama"), out, "--dtype", "int8"}, exitUsage, "bf16, f16 or f32"},
		{[]string{"export", parent, out}, exitFailed, "not a model folder"},
		{[]string{"export", llama, out, "--shard-size", "0"}, exitUsage, "5GB"},
	} {
		r := command(t, c.args...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%v: exit code %d, %s", c.args, r.code, r.err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := commandIn(ctx, t, "quantize", llama, out); r.code != 130 || !strings.Contains(r.err, "interrupted") {
		t.Errorf("interrupted: exit code %d, %s", r.code, r.err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// Quantized folders and adapters are shown as what they are, without problems.
func TestInspectQuantizedAndAdapters(t *testing.T) {
	for dir, want := range map[string]string{
		"../../quant/stored/testdata/nf4":  "7 weights are nf4",
		"../../quant/stored/testdata/int8": "7 weights are int8",
		filepath.Join(peft, "dora"):        "rank 3, alpha 6, of",
		filepath.Join(peft, "saved"):       "lm_head and norm in full; for testdata/reference/llama",
	} {
		r := command(t, "inspect", dir)
		if text := strings.Join(strings.Fields(r.out), " "); r.code != exitOK || !strings.Contains(text, want) || !strings.Contains(text, "problems none") {
			t.Errorf("%s: %d, %s%s", dir, r.code, r.out, r.err)
		}
	}
}
