package train_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway"
	"spillway/checkpoint"
	"spillway/data"
	"spillway/dtype"
	"spillway/optim"
	"spillway/planner/strategy"
	"spillway/safetensors"
	"spillway/train"
)

// placements are plans of one training run: where states are stored, and in what pieces.
var placements = map[string]func(slabs, blocks int) strategy.Choice{
	"on the device": strategy.Uniform(false, false, strategy.SaveAll, 0),
	"offloaded":     inPieces(false, 256),
	"streamed":      inPieces(true, 1280),
}

func inPieces(stream bool, elements int64) func(slabs, blocks int) strategy.Choice {
	return func(slabs, blocks int) strategy.Choice {
		c := strategy.Uniform(stream, true, strategy.SaveNone, 2)(slabs, blocks)
		c.PieceElements = elements
		return c
	}
}

// mixed is an optimizer whose states are in 8 bits, in bf16, in f16 and in f32, and
// factors one whose states are rows, columns and means in bf16.
const (
	mixed   = "adamw_8bit:lr=0.01,min_8bit_size=300,states_of=wpe:bf16;c_proj:fp16"
	factors = "adafactor_bf16:lr=0.01,beta1=0.9"
)

// Packed states are saved as they are, and restored to the bit whatever the plan: a run
// that changes its placement at every checkpoint ends like one that never does.
func TestPackedStatesSurviveOtherPlans(t *testing.T) {
	savedPacked(t, filepath.Join(survives(t, optimizer(t, mixed)), checkpoint.StateName))
	survives(t, optimizer(t, factors))
}

// survives gives the checkpoint of the run that stays.
func survives(t *testing.T, o optim.Config) string {
	t.Helper()
	run := func(dir, where string, iterations int64) string {
		j := plan(t, noDropout, spillway.Options{MicroBatchSize: 2, Packed: true, Optimizer: o, Choose: placements[where]})
		r, err := train.Run(context.Background(), j, feed(t, data.Config{Seed: 8}), train.Config{Iterations: iterations, Save: &train.Save{Dir: checkpoint.Dir{Path: dir}}})
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		return r.Checkpoint
	}
	want := run(t.TempDir(), "on the device", 8)
	moving := t.TempDir()
	var got string
	for i, where := range []string{"streamed", "on the device", "offloaded", "streamed"} {
		got = run(moving, where, int64(2*i+2))
	}
	for _, name := range []string{"model.safetensors", checkpoint.StateName} {
		a, err := os.ReadFile(filepath.Join(want, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(got, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s: %s differs from that of the run that stayed where it was", o, name)
		}
	}
	return want
}

// savedPacked checks the types of the states in a file: those that training has.
func savedPacked(t *testing.T, path string) {
	t.Helper()
	file, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, want := range map[string]dtype.Type{
		"exp_avg.transformer.h.0.attn.c_attn.weight": dtype.U8, "exp_avg_sq.transformer.h.0.attn.c_attn.weight": dtype.U8, "exp_avg_sq.absmax.transformer.h.0.attn.c_attn.weight": dtype.F32,
		"exp_avg.transformer.wpe.weight": dtype.BF16, "exp_avg_sq.transformer.h.1.mlp.c_proj.weight": dtype.F16, "exp_avg.transformer.ln_f.weight": dtype.F32,
	} {
		tensor, ok := file.Tensor(name)
		if !ok || tensor.Type != want {
			t.Errorf("%s is saved as %v (%t), want %v", name, tensor.Type, ok, want)
		}
	}
	if scales, ok := file.Tensor("exp_avg.absmax.transformer.h.0.attn.c_attn.weight"); !ok || scales.Shape.Elements() != 3 { // 16 × 48 elements
		t.Errorf("the scales are %v", scales.Shape)
	}
}

// A plan for other states than the optimizer's is refused, and so is a checkpoint of them.
func TestStatesOfAnotherTypeAreRefused(t *testing.T) {
	j := plan(t, noDropout, spillway.Options{MicroBatchSize: 2, Packed: true, Optimizer: optimizer(t, mixed)})
	j.Options.Optimizer = optimizer(t, "adamw:lr=0.01")
	if _, err := train.New(start(t, j), feed(t, data.Config{Seed: 8}), train.Config{}); err == nil || !strings.Contains(err.Error(), "plan again with it") {
		t.Errorf("a plan of 8-bit states took an optimizer of f32 ones: %v", err)
	}
}
