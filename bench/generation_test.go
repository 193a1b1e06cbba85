package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"spillway/dtype"
	"spillway/trace"
)

// Models of every source generate: predicted memory is what is taken, forecasts stand next to
// what was measured, and no share of a roofline is above all of it.
func TestGenerationIsMeasured(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(config, []byte(`{"model_type":"llama","vocab_size":300,"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
"intermediate_size":128,"rms_norm_eps":1e-5,"tie_word_embeddings":false,"max_position_embeddings":128}`), 0o644); err != nil {
		t.Fatal(err)
	}
	o := GenerationOptions{Options: Options{Device: "cpu"}, Models: []string{config, "tiny-llama"}, Streams: []int64{1, 3}, Contexts: []int64{24, 40}, NewTokens: 6}
	r, err := Generation(t.Context(), o)
	if err != nil || len(r.Results) != 8 || len(r.Notes) > 0 || r.Reads <= 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, g := range r.Results {
		if g.Predicted != g.Measured || g.Predicted == 0 || g.Prompt+g.New != g.Context || g.DType != "bf16" {
			t.Errorf("%+v", g)
		}
		for _, p := range []GenerationPhase{g.Prefill, g.Decode} {
			if !(p.Rate > 0 && p.Forecast > 0 && p.Best > 0 && p.Best <= p.Seconds) || p.Share > 1 || (p.Share > 0) != (p.Bound != "") {
				t.Errorf("%s: %+v", g.Name, p)
			}
		}
	}
	o.Models, o.Precision, o.MaxMemory = []string{"no-such-model"}, dtype.F32, "1GiB"
	if _, err := Generation(t.Context(), o); err == nil {
		t.Error("a model that there is not was measured")
	}
}

// Runs drawn at random take what was predicted, and each depends on its number alone.
func TestRandomGenerations(t *testing.T) {
	o := GenerationOptions{Options: Options{Device: "cpu", Only: "1,4,19"}}
	r, err := RandomGeneration(t.Context(), 20, 7, o)
	if err != nil || len(r.Results) != 3 || len(r.Notes) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, g := range r.Results {
		if g.Predicted != g.Measured || g.Predicted == 0 || !(g.Decode.Rate > 0 && g.Prefill.Rate > 0) {
			t.Errorf("%+v", g)
		}
	}
	o.Only = "4"
	again, err := RandomGeneration(t.Context(), 20, 7, o)
	if err != nil || len(again.Results) != 1 {
		t.Fatalf("%+v, %v", again, err)
	}
	for _, g := range r.Results {
		if g.Name[:2] == again.Results[0].Name[:2] && (g.Name != again.Results[0].Name || g.Predicted != again.Results[0].Predicted) {
			t.Errorf("alone %+v, among others %+v", again.Results[0], g)
		}
	}
}

// Weights of presets are made in every format, in less memory than they take, and who worked when is
// measured; a folder has weights of its own.
func TestQuantizedGenerationIsMeasured(t *testing.T) {
	for format, kib := range map[string]int64{"nf4": 200, "int8": 245, "q4_k_m": 245, "q8_0": 245} {
		o := GenerationOptions{Options: Options{Device: "cpu"}, Models: []string{"tiny-llama"}, Streams: []int64{1}, Contexts: []int64{24}, NewTokens: 4, Quantization: format, MaxMemory: fmt.Sprint(kib, "KiB")}
		r, err := Generation(t.Context(), o)
		if err != nil || len(r.Results) != 1 {
			t.Fatalf("%s: %+v, %v", format, r, err)
		}
		g := r.Results[0]
		if g.Predicted != g.Measured || g.Measured > kib<<10 || g.Division == nil || g.Division.StreamBytes == 0 || g.Overlap == nil || g.Overlap.Link <= 0 || g.Overlap.Link > g.Overlap.Seconds {
			t.Errorf("%s: %+v, %+v, %+v", format, g, g.Division, g.Overlap)
		}
	}
	if _, err := Generation(t.Context(), GenerationOptions{Options: Options{Device: "cpu"}, Models: []string{"tiny-llama"}, Quantization: "q9"}); err == nil {
		t.Error("a format that there is not was taken")
	}
}

// Times of the link and of the CPU count once, and those of both together.
func TestOverlapIsCounted(t *testing.T) {
	at := func(verb trace.Verb, device, lane string, from, to int64) trace.Event {
		return trace.Event{Verb: verb, Lane: trace.Lane{Device: device, Queue: lane}, Start: from * 1e9, End: to * 1e9}
	}
	got := overlapOf([]trace.Event{
		at(trace.Move, "gpu0", "in", 0, 4), at(trace.Move, "gpu0", "in", 4, 6), at(trace.Run, "host", "compute", 1, 3), at(trace.Run, "host", "compute", 5, 8),
		at(trace.Run, "gpu0", "compute", 8, 9), at(trace.Move, "gpu0", "compute", 8, 8), at(trace.Free, "gpu0", "compute", 20, 20),
	})
	if want := (Overlap{Seconds: 9, Link: 6, CPU: 5, Both: 3}); *got != want {
		t.Errorf("%+v, want %+v", *got, want)
	}
}

// Weights that are made in memory take minutes where a model is large: they are reported on, and Ctrl-C ends them.
func TestMakingWeightsIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var last, most int64
	o := GenerationOptions{Models: []string{"llama-50m"}, Streams: []int64{1}, Contexts: []int64{16}, Precision: dtype.BF16, Progress: func(_ string, done, total int64) {
		if last, most = done, total; done > total/4 {
			cancel()
		}
	}}
	o.Device = "cpu"
	r, err := Generation(ctx, o)
	if err != nil || len(r.Results) > 0 || len(r.Notes) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if last <= most/4 || last > most*3/4 {
		t.Errorf("ended after %d of %d bytes", last, most)
	}
}
