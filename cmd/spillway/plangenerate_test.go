package main

import (
	"slices"
	"strings"
	"testing"

	"spillway/units"
)

// A plan to generate says what its cache takes and what its steps will do, to people and to
// programs.
func TestPlanGenerate(t *testing.T) {
	args := []string{"plan", "llama-3-8b", "--task", "generate", "--context", "32768", "--streams", "4", "--cache-type", "int8,fp8", "--machine", "h200"}
	text := command(t, args...).out
	for _, want := range []string{"4 sequences of up to 32,768 tokens, cache in int8:fp8", "key-value cache", "2,048 pages of 64 tokens", "first token", "1 sequence:", "4 sequences:", "tokens/s at 16,384 tokens"} {
		if !strings.Contains(text, want) {
			t.Errorf("the plan does not say %q:\n%s", want, text)
		}
	}
	v := command(t, append(args, "--json")...).object(t)
	for _, path := range []string{"generation.cache_bytes", "generation.pages", "generation.prompt_seconds", "generation.decode", "homes.cache.device", "goal.context", "goal.streams"} {
		at(t, v, path)
	}
	if n, want := at(t, v, "generation.cache_bytes"), 4*32768*32*2*8*(128+4.0); n != want { // a byte each, and a scale for every head
		t.Errorf("the cache takes %v bytes, want %v", n, want)
	}
}

// Where the cache fits neither on the device nor in host memory, the flags that are named are tried as they are written, and fit.
func TestGenerationMisfits(t *testing.T) {
	args := []string{"plan", "llama-3-8b", "--task", "generate", "--context", "32768", "--streams", "8", "--machine", "rtx4090,host:40GiB", "--json"}
	v := command(t, append(args, "--max-memory", "12GiB")...).object(t)
	if at(t, v, "fits") != false {
		t.Fatal("it fits")
	}
	options := at(t, v, "options").([]any)
	if len(options) < 2 {
		t.Fatalf("options %v", options)
	}
	for _, o := range options {
		flags := strings.Fields(at(t, o, "change").(string))
		if again := command(t, append(append([]string{}, append(args, "--max-memory", "12GiB")...), flags...)...).object(t); at(t, again, "fits") != true {
			t.Errorf("%v does not fit", flags)
		}
	}
}

// The smallest plan of all is the one that is named where nothing fits: the one with keys and values in host memory.
func TestGenerationMisfitsByTheSmallestPlan(t *testing.T) {
	args := []string{"plan", "llama-3-8b", "--task", "generate", "--context", "8192", "--machine", "h200", "--json"}
	v := command(t, append(args, "--max-memory", "1GiB")...).object(t)
	flags := strings.Fields(at(t, at(t, v, "options").([]any)[0], "change").(string))
	if again := command(t, append(args, flags...)...).object(t); at(t, again, "fits") != true {
		t.Errorf("%v does not fit", flags)
	}
	if needed, limit := at(t, v, "needed_bytes").(float64), at(t, v, "budget_bytes").(float64); needed < limit || needed > float64(1200*units.MiB) {
		t.Errorf("the smallest plan needs %v of %v", units.Bytes(needed), units.Bytes(limit))
	}
}

// Settings of other tasks are refused.
func TestGenerationSettings(t *testing.T) {
	for _, c := range []struct{ flags, want string }{
		{"--task generate --seq-len 64", "--seq-len has no effect"},
		{"--task generate --batch-size 2", "--batch-size has no effect"},
		{"--task infer --context 64", "--context has no effect"},
		{"--task train --cache-type bf16", "--cache-type has no effect"},
		{"--task generate --max-seq-len", "--max-seq-len has no effect"},
		{"--task generate --cache-type nf4", "it is fp32, bf16, fp16, int8, fp8, int4"},
		{"--task generate --streams 0", "--streams"},
		{"--task generate --draft self", "--task generate --quantization nf4 plans what"},
	} {
		if got := command(t, append([]string{"plan", "llama-3-8b", "--machine", "h200"}, strings.Fields(c.flags)...)...).err; !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q in it", c.flags, got, c.want)
		}
	}
}

// Types have the same names for every command, and keys and values apart are written alike.
func TestTypesHaveTheSameNames(t *testing.T) {
	sandbox(t)
	plan := []string{"plan", "./model", "--task", "generate", "--device", "cpu"}
	generate := []string{"generate", "./model", "--tokens", "1", "--max-new-tokens", "2", "--device", "cpu"}
	for _, flags := range []string{"--dtype f32", "--dtype fp32", "--dtype float32", "--dtype bfloat16", "--cache-type fp16", "--cache-type f16", "--cache-type int8:fp8", "--cache-type int8,fp8", "--cache-type bf16:int4"} {
		works(t, append(slices.Clone(plan), strings.Fields(flags)...)...)
		works(t, append(slices.Clone(generate), strings.Fields(flags)...)...)
	}
	for _, flags := range []string{"--dtype int8", "--dtype fp64", "--dtype float64", "--cache-type nf4", "--cache-type int8:int8:int8", "--cache-type f64"} {
		for _, args := range [][]string{plan, generate} {
			if r := command(t, append(slices.Clone(args), strings.Fields(flags)...)...); r.code != exitUsage {
				t.Errorf("%s %s: %d %s", args[0], flags, r.code, r.err)
			}
		}
	}
}

// Models that are only run are planned in the format that is asked for: the weights of 70B take 33 GiB
// in nf4, lm_head and embedding in bf16.
func TestPlanQuantizedInference(t *testing.T) {
	const linear, other = 856e6 * 80, 2 * 2 * 32000 * 8192 // params of layers, bytes of the rest
	for _, task := range []string{"infer", "generate"} {
		args := []string{"plan", "llama-2-70b", "--task", task, "--machine", "h200,host:100GiB"}
		v := command(t, append(args, "--quantization", "nf4", "--json")...).object(t)
		if n, want := at(t, v, "homes.weight.device").(float64), linear*(0.5+1.0/64)+other; n < want || n > 1.01*want {
			t.Errorf("%s: weights take %.1f GB, want %.1f", task, n/1e9, want/1e9)
		}
		if r := command(t, append(args, "--no-quantize", "lm_head")...); r.code == 0 || !strings.Contains(r.err, "has no effect") {
			t.Errorf("%s: --no-quantize where nothing is quantized: %d %s", task, r.code, r.err)
		}
	}
}

// A preset is planned with the types that a GGUF file of it has: its weights take what those of the file do, which
// export makes.
func TestPlanAsGGUF(t *testing.T) {
	t.Chdir(t.TempDir())
	works(t, "init", "tiny-llama", "--out", "model")
	works(t, "export", "model", "model.gguf", "--gguf-type", "q4_k_m")
	args := []string{"--task", "generate", "--context", "64", "--machine", "h200", "--json"}
	file := command(t, append([]string{"plan", "model.gguf"}, args...)...).object(t)
	preset := command(t, append([]string{"plan", "tiny-llama", "--quantization", "q4_k_m"}, args...)...).object(t)
	if n, want := at(t, preset, "homes.weight.device"), at(t, file, "homes.weight.device"); n != want {
		t.Errorf("weights of the preset take %v bytes, those of the file %v", n, want)
	}
	for flags, want := range map[string]string{
		"plan tiny-llama --task train --quantization q4_k_m --machine h200":                          "to train on one, name the file",
		"plan tiny-llama --task generate --quantization q4_k_m --no-quantize lm_head --machine h200": "--no-quantize has no effect",
		"plan ./model --task generate --quantization q4_k_m --machine h200":                          "has weights of its own",
		"plan tiny-llama --task generate --quantization q4_k_x --machine h200":                       "q4_k_m",
	} {
		if r := command(t, strings.Fields(flags)...); r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("%s: %d %q, want %q in it", flags, r.code, r.err, want)
		}
	}
}

// Where weights come from the disk in every token, nothing but the disk takes time: it reads the next block while the last
// one goes over the link, and fills memory of a CPU itself.
func TestPlanFromDisk(t *testing.T) {
	for _, c := range []struct{ machine, memory string }{
		{"rtx4090,host:2GiB,disk:1TiB@3.1GB/s", "4GiB"},
		{"cpu:32GiB@usable=4GiB/10GB/s/bf16=400GFLOPS/400GFLOPS/bandwidth=20GB/s/shared,host:32GiB@usable=4GiB/copy=10GB/s,disk:1TiB@3.1GB/s", "4GiB"},
	} {
		args := []string{"plan", "llama-3-8b", "--task", "generate", "--context", "512", "--machine", c.machine, "--max-memory", c.memory, "--precision", "bf16"}
		v := command(t, append(args, "--json")...).object(t)
		d := at(t, v, "generation.division")
		blocks, bytes := at(t, d, "disk_blocks").(float64), at(t, d, "disk_bytes").(float64)
		if share := at(t, d, "disk_share").(float64); share < 0.95 || blocks < 20 || bytes < 8e9 {
			t.Errorf("%s: %v blocks of %.1f GB are read in %.0f%% of a token's time", c.machine, blocks, bytes/1e9, 100*share)
		}
		half := at(t, at(t, v, "generation.decode").([]any)[0], "half_context")
		bound := at(t, half, "roofline_bound")
		if rate, want := at(t, half, "tokens_per_second").(float64), 3.1e9/bytes; bound != "disk" || rate < 0.95*want || rate > want {
			t.Errorf("%s: %v tokens/s, bound by %v; the disk brings %v", c.machine, rate, bound, want)
		}
		if text := command(t, args...).out; !strings.Contains(strings.Join(strings.Fields(text), " "), "from the disk (") {
			t.Errorf("%s: the plan does not say what comes from the disk:\n%s", c.machine, text)
		}
	}
}
