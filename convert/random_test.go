package convert_test

import (
	"context"
	"path/filepath"
	"testing"

	"spillway/arch"
	"spillway/convert"
	"spillway/dtype"
	"spillway/hf"
	"spillway/internal/runtest"
)

// A new folder has the weights of its seed, in the type of its config, however it is
// split.
func TestRandomFoldersFollowTheirSeed(t *testing.T) {
	raw, err := arch.Preset("tiny-llama")
	if err != nil {
		t.Fatal(err)
	}
	config, err := hf.ParseConfig(raw)
	if err != nil {
		t.Fatal(err)
	}
	config.Type = dtype.BF16
	made := func(seed uint64, shard int64) []float32 {
		dir := filepath.Join(t.TempDir(), "new")
		r, err := convert.Random(context.Background(), config, dir, seed, convert.Options{ShardBytes: shard})
		if err != nil || r.Bytes != 2*r.Params {
			t.Fatalf("%d params in %d bytes (%v)", r.Params, r.Bytes, err)
		}
		return numbers(t, dir, "model.layers.1.mlp.up_proj.weight")
	}
	one, split, other := made(1, 0), made(1, 20_000), made(2, 0)
	if runtest.Apart(one, split) != 0 || runtest.Apart(one, other) == 0 {
		t.Errorf("split they differ by %v, of another seed by %v", runtest.Apart(one, split), runtest.Apart(one, other))
	}
	config.Type = dtype.I8
	if _, err := convert.Random(context.Background(), config, filepath.Join(t.TempDir(), "new"), 1, convert.Options{}); err == nil {
		t.Error("weights of i8 were made")
	}
}
