package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"spillway/device/cpu/kernel"
)

// A model writes the same text with its weights in 12 bits each as in bf16, in less memory, which was predicted; also where they stream, and
// where choices are compared. Elsewhere the setting is refused.
func TestCompressWeightsFlag(t *testing.T) {
	if !kernel.HasCompressed() {
		t.Skip("this CPU has no AVX2: weights are not compressed")
	}
	model := filepath.Join(t.TempDir(), "m")
	if r := command(t, "init", "small-llama", "--dtype", "bf16", "--out", model); r.code != exitOK {
		t.Fatal(r.err)
	}
	written := func(flags ...string) (text string, bytes float64) {
		t.Helper()
		v := command(t, append([]string{"generate", model, "--tokens", "1,2,3,4,5,6,7", "--max-new-tokens", "20", "--ignore-eos", "--device", "cpu:threads=2", "--json"}, flags...)...).object(t)
		if at(t, v, "predicted_peak_bytes") != at(t, v, "measured_peak_bytes") {
			t.Errorf("%v: %v bytes were predicted, %v are taken", flags, at(t, v, "predicted_peak_bytes"), at(t, v, "measured_peak_bytes"))
		}
		return fmt.Sprint(at(t, v, "tokens")), at(t, v, "measured_peak_bytes").(float64)
	}
	plain, whole := written("--compress-weights", "off")
	packed, less := written("--compress-weights", "on")
	usual, same := written()
	if packed != plain || usual != plain || same != less || less >= 0.95*whole {
		t.Errorf("%s in %v bytes, compressed %s in %v, by default %s in %v", plain, whole, packed, less, usual, same)
	}
	if streamed, bytes := written("--compress-weights", "on", "--max-memory", fmt.Sprintf("%.0fB", 0.9*less)); streamed != plain || bytes > 0.9*less {
		t.Errorf("streamed: %s in %v bytes, resident %s in %v", streamed, bytes, plain, less)
	}
	if r := command(t, "generate", model, "--tokens", "1,2", "--max-new-tokens", "2", "--compress-weights", "on"); !strings.Contains(r.err, "bits each, exactly") {
		t.Errorf("it does not say what a weight takes: %s", r.err)
	}
	for want, args := range map[string][]string{
		"it is auto, on, off":              {"generate", model, "--tokens", "1", "--compress-weights", "lossy"},
		"is computed in f32":               {"generate", model, "--tokens", "1", "--dtype", "f32", "--compress-weights", "on"},
		"has no effect on --data":          {"eval", model, "--data", "x.txt", "--compress-weights", "on"},
		"have no effect with --random":     {"bench", "generate", "--random", "1", "--compress-weights", "on"},
		"stay on gpu0 in bf16":             {"plan", model, "--task", "generate", "--machine", "h200", "--compress-weights", "on"},
		"frozen weights are compressed":    {"plan", model, "--task", "train", "--compress-weights", "off"},
		"the task is lora: a CPU has them": {"plan", model, "--task", "lora", "--machine", "cpu:4GiB,host:8GiB", "--dtype", "bf16", "--compress-weights", "on"},
		"give --method lora":               {"train", model, "--data", "x.txt", "--compress-weights", "on"},
	} {
		if r := command(t, args...); r.code == exitOK || !strings.Contains(r.err, want) {
			t.Errorf("%v should say %q: %s", args, want, r.err)
		}
	}
}

// Next to a GPU that a model is larger than, asking for weights in 12 bits saves host memory, and each token is forecast to take less; without being
// asked nothing changes.
func TestCompressWeightsNextToAGPU(t *testing.T) {
	forecast := func(flags ...string) (tokens, link, cpu, pinned float64) {
		t.Helper()
		v := command(t, append([]string{"plan", "llama-3-8b", "--task", "generate", "--context", "1024", "--machine", "h200", "--max-memory", "4GiB", "--json"}, flags...)...).object(t)
		step := at(t, v, "generation").(map[string]any)
		division := step["division"].(map[string]any)
		decode := step["decode"].([]any)[0].(map[string]any)["full_context"].(map[string]any)
		return decode["tokens_per_second"].(float64), division["streamed_bytes"].(float64), division["cpu_bytes"].(float64), at(t, v, "at_peak").(map[string]any)["weight"].(map[string]any)["pinned"].(float64)
	}
	plain, link, cpu, pinned := forecast("--compress-weights", "off")
	if tokens, l, c, p := forecast(); tokens != plain || l != link || c != cpu || p != pinned {
		t.Errorf("by default %v tokens/s, without %v", tokens, plain)
	}
	tokens, lessLink, lessCPU, lessPinned := forecast("--compress-weights", "on")
	if tokens < 1.3*plain || lessLink+lessCPU > 0.76*(link+cpu) || lessPinned > 0.77*pinned {
		t.Errorf("%.1f tokens/s, off the device %v and %v bytes, %v in host memory; in bf16 %.1f, %v, %v and %v", tokens, lessLink, lessCPU, lessPinned, plain, link, cpu, pinned)
	}
}
