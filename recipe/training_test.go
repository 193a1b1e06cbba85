package recipe

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"spillway/optim"
)

// Steps, warm-up and learning rates are those of transformers' Trainer (tools/reference/steps.py).
func TestStepsAgreeWithTransformers(t *testing.T) {
	raw, err := os.ReadFile("../testdata/reference/steps.json")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Rate  float64
		Cases []struct {
			Samples, Batch int64
			Epochs, Warmup float64
			Steps          int64
			WarmupSteps    int `json:"warmup_steps"`
			Rates          map[string][]float64
		}
	}
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	if len(want.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range want.Cases {
		r := New()
		set(t, r, "epochs", fmt.Sprint(c.Epochs))
		set(t, r, "warmup-steps", fmt.Sprint(c.Warmup))
		perEpoch := (c.Samples + c.Batch - 1) / c.Batch
		if got := r.Training.EpochSteps(func(n int64) int64 { return n * perEpoch }); got != c.Steps {
			t.Errorf("%v epochs of %d steps: %d steps, transformers takes %d", c.Epochs, perEpoch, got, c.Steps)
		}
		if got := r.Training.Warmup(c.Steps); got != c.WarmupSteps {
			t.Errorf("warm-up %v of %d steps: %d steps, transformers' is %d", c.Warmup, c.Steps, got, c.WarmupSteps)
		}
		for name, rates := range c.Rates {
			s, err := optim.ParseSchedule(name)
			if err != nil {
				t.Fatal(err)
			}
			s.Warmup, s.Total = r.Training.Warmup(c.Steps), int(c.Steps)
			for i, rate := range rates {
				if got := want.Rate * s.Factor(i); math.Abs(got-rate) > 1e-15 {
					t.Errorf("%s, %d of %d steps warm-up: step %d has %v, transformers %v", name, s.Warmup, c.Steps, i, got, rate)
				}
			}
		}
	}
}

// Where passes have other numbers of steps, whole ones count as they are and the rest is a share of the last.
func TestEpochStepsOfUnequalPasses(t *testing.T) {
	after := []int64{0, 5, 9, 14}
	for epochs, want := range map[float64]int64{0.5: 3, 1: 5, 1.5: 7, 2: 9, 2.2: 10, 3: 14} {
		if got := (Training{Epochs: epochs}).EpochSteps(func(n int64) int64 { return after[n] }); got != want {
			t.Errorf("%v epochs take %d steps, want %d", epochs, got, want)
		}
	}
}

func TestWarmupRatio(t *testing.T) {
	for _, c := range []struct {
		steps, ratio string // "" is not given
		want         int    // of 100 steps
		says         string
	}{
		{"", "0.03", 3, ""}, {"0", "0.031", 4, ""}, {"0.05", "", 5, ""}, {"7", "", 7, ""}, {"7", "0", 7, ""}, {"0.05", "0", 5, ""},
		{"7", "0.03", 0, "keep one"}, {"0.05", "0.03", 0, "--warmup-steps 0.05 and --warmup-ratio 0.03: keep one"},
	} {
		r := New()
		set(t, r, "model", "tiny-llama")
		set(t, r, "data", "book.txt")
		if c.steps != "" {
			set(t, r, "warmup-steps", c.steps)
		}
		if c.ratio != "" {
			set(t, r, "warmup-ratio", c.ratio)
		}
		switch err := r.Check(); {
		case c.says != "":
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v: %v", c, err)
			}
		case err != nil:
			t.Errorf("%+v: %v", c, err)
		default:
			if got := r.Training.Warmup(100); got != c.want {
				t.Errorf("%+v: %d steps of warm-up", c, got)
			}
		}
	}
	for name, values := range map[string][]string{
		"epochs":       {"0", "-1", "nan", "inf", "1e9", "two"},
		"warmup-steps": {"-1", "-0.5", "1.5", "nan", "inf", "few"},
		"warmup-ratio": {"-0.1", "1.1", "nan", "few"},
	} {
		for _, v := range values {
			if New().Flags().Set(name, v) == nil {
				t.Errorf("%s %s was accepted", name, v)
			}
		}
	}
	r := New()
	if err := r.read("r.yaml", []byte("epochs: 2.5\nwarmup_ratio: 0.03\n")); err != nil || r.Training.Epochs != 2.5 || r.Training.WarmupRatio != 0.03 {
		t.Errorf("a recipe gives %+v, %v", r.Training, err)
	}
}

func set(t *testing.T, r *Recipe, name, value string) {
	t.Helper()
	if err := r.Flags().Set(name, value); err != nil {
		t.Fatal(err)
	}
}
