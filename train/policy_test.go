package train_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/checkpoint"
	"spillway/data"
	"spillway/dtype"
	"spillway/optim"
	"spillway/quant"
	"spillway/safetensors"
	"spillway/train"
)

const compressLater = "max-compression:warmup=4,min_8bit_size=300"

// virtual trains with a policy on states to an iteration, saving every so many.
func virtual(t *testing.T, dir, policy string, iterations, every int64) (reports []train.Report, notices []string) {
	t.Helper()
	p, err := optim.ParsePolicy(policy)
	if err != nil {
		t.Fatal(err)
	}
	o := optimizer(t, "adamw:lr=0.01")
	j := plan(t, noDropout, spillway.Options{MicroBatchSize: 2, Packed: true, Optimizer: o, StatePolicy: p})
	_, err = train.Run(context.Background(), j, feed(t, data.Config{Seed: 8}), train.Config{Iterations: iterations,
		Report: func(r train.Report) { reports = append(reports, r) }, Notice: func(text string) { notices = append(notices, text) },
		Save: &train.Save{Dir: checkpoint.Dir{Path: dir}, Every: every}})
	if err != nil {
		t.Fatal(err)
	}
	return reports, notices
}

func stateFile(t *testing.T, dir string, iteration string) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(dir, "step-0000000"+iteration, checkpoint.StateName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func raw(t *testing.T, f *safetensors.File, name string) []byte {
	t.Helper()
	tensor, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("no tensor %s", name)
	}
	b := make([]byte, tensor.Bytes)
	if _, err := tensor.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// A policy changes nothing until it begins; then states are the codes of what they were.
func TestPoliciesCompressStates(t *testing.T) {
	plainDir, dir := t.TempDir(), t.TempDir()
	plain, _ := virtual(t, plainDir, "", 8, 4)
	got, notices := virtual(t, dir, compressLater, 8, 4)
	for i := range 5 { // the fifth loss is of weights that f32 states made
		if got[i].Loss != plain[i].Loss {
			t.Errorf("the loss of iteration %d is %v, without a policy %v", i+1, got[i].Loss, plain[i].Loss)
		}
	}
	if got[7].Loss == plain[7].Loss || got[2].Compressed || !got[7].Compressed || got[7].StateBytes > got[2].StateBytes/2 {
		t.Errorf("%+v after %+v: nothing was compressed", got[7], got[2])
	}
	if !slices.ContainsFunc(notices, func(s string) bool { return strings.Contains(s, "compressed from iteration 5 on") }) {
		t.Errorf("no notice: %q", notices)
	}
	before, after := stateFile(t, plainDir, "4"), stateFile(t, dir, "4")
	for state, kind := range map[string]dtype.Type{"exp_avg": quant.Dyn8, "exp_avg_sq": quant.UDyn8} {
		const param = "transformer.h.0.attn.c_attn.weight"
		numbers := make([]float32, 16*48)
		dtype.F32.Decode(numbers, raw(t, before, state+"."+param))
		want := make([]byte, kind.Bytes(int64(len(numbers))))
		if err := quant.Encode(kind, want, numbers, len(numbers)); err != nil {
			t.Fatal(err)
		}
		if packed := append(raw(t, after, state+".absmax."+param), raw(t, after, state+"."+param)...); !bytes.Equal(packed, want) {
			t.Errorf("%s is not the codes of what it was", state)
		}
	}
}

// A run with a policy goes on from its checkpoints to the same bits, from before and
// from after the policy began.
func TestPoliciesSurviveResuming(t *testing.T) {
	for _, policy := range []string{compressLater, "low-memory:warmup=2,patience=2,tol=10,min_8bit_size=300,home=host"} {
		whole, parts := t.TempDir(), t.TempDir()
		virtual(t, whole, policy, 9, 0)
		for _, iterations := range []int64{1, 3, 6, 9} {
			virtual(t, parts, policy, iterations, 0)
		}
		for _, name := range []string{"model.safetensors", checkpoint.StateName, checkpoint.TrainerName} {
			a, err := os.ReadFile(filepath.Join(whole, "step-00000009", name))
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(parts, "step-00000009", name))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(a, b) {
				t.Errorf("%s: %s differs from the undisturbed run's", policy, name)
			}
		}
		if f := stateFile(t, whole, "9"); !compressedIn(f) {
			t.Errorf("%s: nothing was compressed", policy)
		}
	}
}

func compressedIn(f *safetensors.File) bool {
	_, ok := f.Tensor("exp_avg.absmax.transformer.h.0.attn.c_attn.weight")
	return ok
}

// A policy that waits for nothing starts with compressed states.
func TestPoliciesBeginAtOnce(t *testing.T) {
	reports, notices := virtual(t, t.TempDir(), "max-compression", 2, 0)
	if !reports[0].Compressed || len(notices) > 0 {
		t.Errorf("%+v, %q", reports[0], notices)
	}
}

func TestPoliciesThatCannotBe(t *testing.T) {
	o := optimizer(t, "adamw")
	job := start(t, plan(t, noDropout, spillway.Options{MicroBatchSize: 2, Packed: true, Optimizer: o}))
	for says, policy := range map[string]optim.Policy{
		"none can be negative": {Preset: "auto", Warmup: -1},
	} {
		job.Options.StatePolicy = policy
		if _, err := train.New(job, feed(t, data.Config{}), train.Config{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
