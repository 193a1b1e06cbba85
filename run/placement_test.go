package run_test

import (
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"spillway"
	"spillway/data"
	"spillway/executor"
	"spillway/internal/runtest"
	"spillway/planner/strategy"
	"spillway/train"
)

// strategies are the ways to place one training.
var strategies = map[string]func(slabs, blocks int) strategy.Choice{
	"resident":                       strategy.Uniform(false, false, strategy.SaveAll, 0),
	"matmuls saved":                  strategy.Uniform(false, false, strategy.SaveMatmuls, 0),
	"attention kept":                 strategy.Uniform(false, false, strategy.SaveAttention, 0),
	"recomputed":                     strategy.Uniform(false, false, strategy.SaveNone, 0),
	"optimizer on the host":          strategy.Uniform(false, true, strategy.SaveAll, 2),
	"streamed, window 1":             strategy.Uniform(true, true, strategy.SaveAll, 1),
	"streamed, window 3, recomputed": strategy.Uniform(true, true, strategy.SaveNone, 3),
	"every other slab, mixed saving": alternating,
	"updated by the host":            cpuUpdates(strategy.Uniform(false, true, strategy.SaveAll, 0), 1),
	"streamed, updated by both":      cpuUpdates(strategy.Uniform(true, true, strategy.SaveNone, 2), 2),
}

// cpuUpdates has the host update every n-th slab of a choice.
func cpuUpdates(choose func(slabs, blocks int) strategy.Choice, n int) func(slabs, blocks int) strategy.Choice {
	return func(slabs, blocks int) strategy.Choice {
		c := choose(slabs, blocks)
		for i := range slabs {
			c.UpdatedByCPU = append(c.UpdatedByCPU, i%n == 0)
		}
		return c
	}
}

// alternating treats neighbours differently.
func alternating(slabs, blocks int) strategy.Choice {
	c := strategy.Uniform(false, false, strategy.SaveAll, 2)(slabs, blocks)
	c.BreadthFirst = true
	for i := range slabs {
		c.Streamed[i], c.OffloadedState[i] = i%2 == 0, i%3 != 0
	}
	for i := range blocks {
		c.Level[i] = strategy.Level(i % 4)
	}
	return c
}

// variants are training runs that differ in what matters to the order of sums and to
// random streams.
var variants = []struct {
	name   string
	config string
	rows   int64
	micros int
	clip   float64
}{
	{"plain", tinyLlama(false, 0), 2, 1, 0},
	{"clipped", tinyLlama(false, 0), 2, 1, 0.5},
	{"accumulated", tinyLlama(false, 0), 1, 3, 0},
	{"accumulated, clipped, dropout", tinyLlama(false, 0.1), 1, 3, 0.5},
	{"tied", tinyLlama(true, 0), 2, 1, 0.5},
	{"tied, accumulated", tinyLlama(true, 0), 1, 3, 0.5},
	{"gpt2 with dropout", tinyGPT2, 2, 2, 0.5},
}

func tinyLlama(tied bool, dropout float64) string {
	return fmt.Sprintf(`{"model_type":"llama","vocab_size":61,"hidden_size":24,"num_hidden_layers":3,"num_attention_heads":4,
"num_key_value_heads":2,"intermediate_size":40,"rms_norm_eps":1e-5,"tie_word_embeddings":%t,"attention_dropout":%v,"max_position_embeddings":64}`, tied, dropout)
}

const tinyGPT2 = `{"model_type":"gpt2","vocab_size":61,"n_positions":16,"n_embd":24,"n_layer":2,"n_head":4,
"resid_pdrop":0.1,"embd_pdrop":0.1,"attn_pdrop":0.1}`

func packedFeed(t testing.TB, length int) *train.Tokens {
	t.Helper()
	l, err := data.NewLoader(runtest.Documents(40, 61), data.Config{Length: length, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	return train.NewTokens(l)
}

// configFile is a model that starts from random weights.
func configFile(t testing.TB, config string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// fingerprint of the weights and of the optimizer's state.
func fingerprint(t testing.TB, e *executor.Executor) string {
	t.Helper()
	h := sha256.New()
	for _, tensor := range append(e.Weights(), e.States()...) {
		fmt.Fprintf(h, "%s %s ", tensor.Param.Name, tensor.State)
		if err := e.Read(tensor, func(_ int64, chunk []byte) error { h.Write(chunk); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// Where things rest and what is computed twice changes no bit of a training run.
func TestPlacementChangesNoBit(t *testing.T) {
	const iterations, seq = 20, 12
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			var first string
			var losses []float64
			for name, choose := range strategies {
				m := open(t, configFile(t, v.config))
				job, e := start(t, m, spillway.Options{Task: spillway.Train, MicroBatchSize: v.rows, Seq: seq, MicroBatches: v.micros, Clip: v.clip, Packed: true, Choose: choose})
				run, err := train.New(job, packedFeed(t, seq), train.Config{Seed: 3})
				if err != nil {
					t.Fatal(err)
				}
				var got []float64
				for range iterations {
					r, err := run.Step()
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, r.Loss)
				}
				if first == "" {
					first, losses = fingerprint(t, e), got
				}
				for i := range got {
					if math.Float64bits(got[i]) != math.Float64bits(losses[i]) {
						t.Errorf("%s (%s): the loss of iteration %d is %v, elsewhere %v", name, job.Plan.Strategy, i+1, got[i], losses[i])
						break
					}
				}
				if print := fingerprint(t, e); print != first {
					t.Errorf("%s (%s): other weights", name, job.Plan.Strategy)
				}
				if got[0] <= got[iterations-1] {
					t.Errorf("%s: the loss went from %v to %v", name, got[0], got[iterations-1])
				}
			}
		})
	}
}
