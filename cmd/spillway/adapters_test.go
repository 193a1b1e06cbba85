package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/checkpoint"
	"spillway/hf"
)

// The flags of train become the config of the adapter it makes, and a run begins from an
// adapter that another made.
func TestAdapterFlags(t *testing.T) {
	dir, base := t.TempDir(), initialized(t)
	text := filepath.Join(dir, "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("to be or not to be, ", 100)), 0o644); err != nil {
		t.Fatal(err)
	}
	train := func(out string, flags ...string) result {
		return command(t, append([]string{"train", base, "--data", text, "--tokenizer", "bytes", "--seq-len", "32", "--max-steps", "2", "--learning-rate", "0.01", "--out", filepath.Join(dir, out)}, flags...)...)
	}
	r := train("first", "--method", "qlora", "--quantization", "fp8", "--lora-rank", "3", "--lora-alpha", "5", "--target-modules", "q_proj,v_proj,up_proj", "--exclude-modules", "re:.*0.mlp.*",
		"--rank-pattern", "v_proj=2", "--alpha-pattern", "up_proj=9", "--use-dora", "--use-rslora", "--init-lora-weights", "gaussian", "--layers-to-transform", "0,2")
	if r.code != exitOK {
		t.Fatal(r.err)
	}
	if !strings.Contains(r.out, "QLoRA of rank 3, DoRA, rank-stabilized with fp8 weights") {
		t.Errorf("the goal is not shown: %s", r.out)
	}
	a, err := hf.OpenAdapter(checkpoint.Newest(filepath.Join(dir, "first")))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if c := a.Config; c.Rank != 3 || c.Alpha != 5 || !c.DoRA || !c.RankStabilized || c.Init != hf.InitGaussian || c.RankPattern["v_proj"] != 2 ||
		c.AlphaPattern["up_proj"] != 9 || c.Exclude.Pattern != ".*0.mlp.*" || len(c.Layers.Numbers) != 2 || len(a.Tensors()) != 5*3 {
		t.Errorf("%d tensors, %+v", len(a.Tensors()), c)
	}
	second := train("second", "--method", "lora", "--adapter", filepath.Join(dir, "first"), "--json")
	if second.code != exitOK || at(t, second.object(t), "steps") != 2.0 {
		t.Errorf("from an adapter: %d, %s%s", second.code, second.out, second.err)
	}
	// PEFT refuses all-linear next to layers_to_transform, so the layers are named.
	if r := train("third", "--method", "lora", "--layers-to-transform", "1"); r.code != exitOK {
		t.Fatal(r.err)
	}
	b, err := hf.OpenAdapter(checkpoint.Newest(filepath.Join(dir, "third")))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if c := b.Config; c.Targets.Pattern != "" || strings.Join(c.Targets.Names, " ") != "down_proj gate_proj k_proj o_proj q_proj up_proj v_proj" || len(c.Layers.Numbers) != 1 || len(b.Tensors()) != 7*2 {
		t.Errorf("of layer 1: %d tensors, %+v", len(b.Tensors()), c)
	}
	if r := train("third", "--resume", "--max-steps", "3"); r.code != exitOK {
		t.Error(r.err)
	}
	for says, flags := range map[string][]string{
		"say the layers in the pattern":       {"--method", "lora", "--target-modules", "re:.*q_proj", "--layers-to-transform", "1"},
		"unknown format of quantized weights": {"--method", "qlora", "--quantization", "int3"},
		`"0" for "--lora-rank"`:               {"--method", "lora", "--lora-rank", "0"},
		"q_proj=8":                            {"--method", "lora", "--rank-pattern", "q_proj=many"},
		`no layer is named "q"`:               {"--method", "lora", "--target-modules", "q"},
		"none, all, lora_only":                {"--method", "lora", "--lora-bias", "some"},
		"not full":                            {"--adapter", dir},
		"not an adapter's folder":             {"--method", "lora", "--adapter", dir},
	} {
		if r := train("bad", flags...); r.code == exitOK || !strings.Contains(r.err, says) {
			t.Errorf("%v: %d, %s", flags, r.code, r.err)
		}
	}
}
