package generate_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/generate"
	"spillway/machine"
	"spillway/run"
)

// textCase is a tiny model and what transformers writes with it.
type textCase struct {
	Model             string
	Prompt            []int32
	Greedy, Penalized []int32
	Beams             []struct {
		Count         int
		LengthPenalty float64 `json:"length_penalty"`
		EarlyStopping bool    `json:"early_stopping"`
		Texts         [][]int32
		Scores        []float64
	}
}

// start starts a task of a model on the CPU.
func start(t *testing.T, dir string, o spillway.Options) *spillway.Run {
	t.Helper()
	m, err := spillway.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if o.Machine, err = machine.Parse("cpu:1GiB,host:4GiB"); err != nil {
		t.Fatal(err)
	}
	dev := cpu.Open(cpu.Options{})
	o.On = []device.Device{dev}
	job, err := m.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range []error{job.Close(), dev.Close(), m.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return job
}

// engines are all there are, by name, for texts of a length.
func engines(t *testing.T, dir string, context, streams int64) map[string]generate.Engine {
	t.Helper()
	plain, err := generate.NewPlain(start(t, dir, spillway.Options{Task: spillway.Infer, Seq: context}))
	if err != nil {
		t.Fatal(err)
	}
	session, err := generate.NewSession(start(t, dir, spillway.Options{Task: spillway.Generate, Generation: run.Generation{Context: context, Streams: streams}}))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]generate.Engine{"plain": plain, "session": session}
}

// Texts of odd models are those of transformers: sliding windows, one head of keys, yarn,
// tied weights, wide heads; greedy, with a penalty, and by beams.
func TestTextsAreThoseOfTransformers(t *testing.T) {
	raw, err := os.ReadFile("testdata/texts.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []textCase }
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	for _, c := range file.Cases {
		if len(c.Greedy) != 200 {
			t.Fatalf("%s has %d tokens", c.Model, len(c.Greedy))
		}
		for name, e := range engines(t, filepath.Join("testdata/models", c.Model), int64(len(c.Prompt)+len(c.Greedy)), 5) {
			t.Run(c.Model+"/"+name, func(t *testing.T) { c.check(t, e) })
		}
	}
}

func (c textCase) check(t *testing.T, e generate.Engine) {
	sameText(t, "greedy", generated(t, e, generate.Request{Prompt: c.Prompt, MaxNewTokens: len(c.Greedy)})[0][len(c.Prompt):], c.Greedy)
	sameText(t, "penalized", generated(t, e, generate.Request{Prompt: c.Prompt, MaxNewTokens: len(c.Penalized), Sampler: generate.Sampler{RepetitionPenalty: 1.2}})[0][len(c.Prompt):], c.Penalized)
	for _, b := range c.Beams {
		g, err := generate.New(e, nil, generate.Request{Prompt: c.Prompt, MaxNewTokens: 16, Samples: b.Count, StopTokens: []int32{2},
			Beams: &generate.BeamSearch{Count: b.Count, LengthPenalty: b.LengthPenalty, EarlyStopping: b.EarlyStopping}})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range g.All(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
		}
		for i, r := range g.Results() {
			var ids []int32
			for _, token := range r.Tokens {
				ids = append(ids, token.ID)
			}
			want := b.Texts[i]
			if r.StopToken >= 0 {
				ids = append(ids, r.StopToken)
			}
			for len(want) > len(ids) && want[len(want)-1] == 0 { // padding
				want = want[:len(want)-1]
			}
			sameText(t, "beam", ids, want)
			if math.Abs(r.Score-b.Scores[i]) > 2e-6*max(1, math.Abs(b.Scores[i])) {
				t.Errorf("beam %d of %+v has the score %v, want %v", i, b, r.Score, b.Scores[i])
			}
		}
	}
}

func sameText(t *testing.T, what string, got, want []int32) {
	t.Helper()
	if !slices.Equal(got, want) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		t.Errorf("%s: token %d of %d differs\n got %v\nwant %v", what, at, len(want), got, want)
	}
}
