package main

import (
	"context"
	"crypto/sha256"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/hf"
)

const smallConfig = `{"model_type":"llama","hidden_size":64,"intermediate_size":96,"num_hidden_layers":3,"num_attention_heads":4,
	"num_key_value_heads":2,"vocab_size":9000,"max_position_embeddings":64,"tie_word_embeddings":true}`

// initialized makes a folder of smallConfig.
func initialized(t *testing.T, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "small.json")
	if err := os.WriteFile(config, []byte(smallConfig), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	if r := command(t, append([]string{"init", config, "--out", out}, flags...)...); r.code != 0 {
		t.Fatal(r.err)
	}
	return out
}

// sums are the checksums of a folder's tensors by name.
func sums(t *testing.T, dir string) (map[string][32]byte, int) {
	t.Helper()
	f, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, files := map[string][32]byte{}, map[string]bool{}
	for _, x := range f.Tensors() {
		h := sha256.New()
		if _, err := io.Copy(h, io.NewSectionReader(x, 0, x.Bytes)); err != nil {
			t.Fatal(err)
		}
		all[x.Name], files[x.Path] = [32]byte(h.Sum(nil)), true
	}
	return all, len(files)
}

func TestInitGivesTheSameBitsInAnyShards(t *testing.T) {
	one, files := sums(t, initialized(t, "--seed", "3"))
	if files != 1 || len(one) != 1+3*9+1 {
		t.Fatalf("%d tensors in %d files", len(one), files)
	}
	many, files := sums(t, initialized(t, "--seed", "3", "--shard-size", "100kB"))
	if files < 3 {
		t.Errorf("only %d files", files)
	}
	other, _ := sums(t, initialized(t, "--seed", "4"))
	embedding := "model.embed_tokens.weight"
	for name, sum := range one {
		if many[name] != sum {
			t.Errorf("%s differs with the shard size", name)
		}
	}
	if other[embedding] == one[embedding] {
		t.Error("another seed gives the same embedding")
	}
}

// The weights are what the architecture says: normal with the config's deviation,
// ones in the norms.
func TestInitStartsAsTheArchitectureSays(t *testing.T) {
	f, err := hf.Open(initialized(t, "--dtype", "f32"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	embedding, _ := f.Tensor("model.embed_tokens.weight")
	values := make([]float32, embedding.Shape.Elements())
	if err := embedding.ReadF32(values, 0); err != nil {
		t.Fatal(err)
	}
	var sum, squares float64
	for _, v := range values {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	n := float64(len(values))
	if mean, deviation := sum/n, math.Sqrt(squares/n); math.Abs(mean) > 1e-4 || math.Abs(deviation-0.02) > 1e-4 {
		t.Errorf("mean %v and deviation %v of %v numbers, want 0 and 0.02", mean, deviation, n)
	}
	norm, _ := f.Tensor("model.norm.weight")
	ones := make([]float32, 64)
	if err := norm.ReadF32(ones, 0); err != nil || ones[0] != 1 || ones[63] != 1 {
		t.Errorf("the norm is %v, %v", ones, err)
	}
}

func TestInitRefuses(t *testing.T) {
	taken := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"gpt2"}, exitUsage, "--out"},
		{[]string{"gpt2", "--out", taken}, exitFailed, "exists already"},
		{[]string{"gpt2", "--out", "x", "--dtype", "i8"}, exitUsage, "bf16, f16 or f32"},
		{[]string{"gpt2", "--out", "x", "--shard-size", "many"}, exitUsage, "5GB"},
		{[]string{"gpt-99", "--out", "x"}, exitFailed, "known are"},
	} {
		r := command(t, append([]string{"init"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%v: exit code %d, %s", c.args, r.code, r.err)
		}
	}
}

func TestInitInterruptedLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	parent := t.TempDir()
	r := commandIn(ctx, t, "init", "gpt2", "--out", filepath.Join(parent, "out"))
	left, err := os.ReadDir(parent)
	if r.code != 130 || err != nil || len(left) != 0 {
		t.Errorf("exit code %d, %d entries are left, %v", r.code, len(left), err)
	}
}
