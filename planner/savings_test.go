package planner_test

import (
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/op"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/quant"
	"spillway/spec"
)

// climb plans the savings of the tiny Llama; adapters are not traced here, so savings
// with them plan the same model.
func climb(t *testing.T, start planner.Setting, budget int64) (planner.Usage, map[string]planner.Saving) {
	t.Helper()
	base, savings, err := planner.Savings(start, func(s planner.Setting) (planner.Request, error) {
		goal := tiny.AdamW(s.MicroBatches, false)
		goal.Master = s.Precision != dtype.F32
		if s.StateType == quant.Dyn8 {
			goal.Optimizer.States = coded
		}
		return planner.Request{Goal: goal, Site: tiny.Site(budget), Trace: func(rows, seq int64) (*spec.Model, error) {
			return tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: rows, Seq: seq, DType: s.Precision, Task: graph.Train}), nil
		}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]planner.Saving{}
	for _, r := range savings {
		of[r.Name] = r
	}
	return base, of
}

// coded are the states of Adam in 8 bits.
func coded(p spec.Param) []op.State {
	list := planner.FullStates("exp_avg", "exp_avg_sq")(p)
	list[0].Type.DType, list[1].Type.DType = quant.Dyn8, quant.UDyn8
	return list
}

var fourRows = planner.Setting{Train: true, MicroBatchSize: 4, Seq: 32, MicroBatches: 1, Precision: dtype.F32, StateType: dtype.F32}

func TestSavingsSaveWhatTheySay(t *testing.T) {
	base, of := climb(t, fourRows, 1<<20)
	m := tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 4, Seq: 32, Task: graph.Train})
	standard, err := planner.Build(m, tiny.AdamW(1, false), tiny.Site(1<<30), strategy.Uniform(false, false, strategy.SaveAll, 0))
	if err != nil {
		t.Fatal(err)
	}
	if base.Device != standard.Arenas[0].Bytes || base.Seconds != standard.Forecast.StepSeconds {
		t.Errorf("the start takes %d bytes and %g s, the standard plan %d and %g", base.Device, base.Seconds, standard.Arenas[0].Bytes, standard.Forecast.StepSeconds)
	}
	var state, largest int64 // bytes of moments, and of the largest slab's
	for _, s := range standard.Slabs {
		state += 8 * s.Elements
		largest = max(largest, 8*s.Elements)
	}
	offload := of["optimizer offload"]
	if offload.Saves > state || offload.Saves < state-3*largest {
		t.Errorf("optimizer offload saves %d bytes, the moments are %d, those of a slab up to %d", offload.Saves, state, largest)
	}
	if full, cheap := of["full checkpointing"], of["checkpointing of cheap values"]; full.Saves <= cheap.Saves || cheap.Saves <= 0 || full.Costs <= cheap.Costs {
		t.Errorf("checkpointing saves %d bytes for %g s in full, %d for %g s of cheap values", full.Saves, full.Costs, cheap.Saves, cheap.Costs)
	}
	if eight := of["8-bit optimizer state"]; eight.Saves < 3*state/5 || eight.Saves > 3*state/4 { // params of some hundred elements are padded to blocks
		t.Errorf("8-bit optimizer state saves %d of the %d bytes of moments, want up to three quarters", eight.Saves, state)
	}
	if of["weight streaming"].Saves <= 0 || of["weight streaming"].Costs <= 0 {
		t.Errorf("%+v", of["weight streaming"])
	}
}

// The first saving is the same by itself and together; later ones together save more.
func TestSavingsAddUp(t *testing.T) {
	_, of := climb(t, fourRows, 1<<20)
	first := of["micro-batches of 1, accumulated"]
	if first.Alone != first.SoFar || first.Skipped != "" {
		t.Errorf("%+v", first)
	}
	last := of["weight streaming"]
	if last.SoFar.Device >= last.Alone.Device || last.SoFar.Device >= first.SoFar.Device {
		t.Errorf("all together take %d bytes, streaming alone %d, small micro-batches alone %d", last.SoFar.Device, last.Alone.Device, first.SoFar.Device)
	}
}

// Whether a saving fits is a question of both memories.
func TestSavingsFit(t *testing.T) {
	base, of := climb(t, fourRows, 1<<30)
	edge := of["full checkpointing"].Alone.Device
	if !base.Fits || edge >= base.Device {
		t.Fatalf("%+v, checkpointing %d", base, edge)
	}
	for _, budget := range []int64{edge - 1, edge} {
		base, of := climb(t, fourRows, budget)
		if base.Fits || of["full checkpointing"].Alone.Fits != (budget == edge) {
			t.Errorf("%d bytes: %+v, %+v", budget, base, of["full checkpointing"])
		}
	}
}

// What is there already is skipped, and says so.
func TestSavingsSkip(t *testing.T) {
	start := planner.Setting{Train: true, MicroBatchSize: 1, Seq: 32, MicroBatches: 1, Precision: dtype.BF16, StateType: quant.Dyn8, LoRARank: 4, FrozenType: quant.NF4}
	_, of := climb(t, start, 1<<20)
	for _, name := range []string{"micro-batches of 1, accumulated", "bf16 instead of fp32", "8-bit optimizer state", "LoRA of rank 16", "adapters of rank 4", "QLoRA: frozen weights in 4 bits", "sequences half as long"} {
		if of[name].Skipped == "" {
			t.Errorf("%s is not skipped", name)
		}
	}
	start.Train = false
	if _, of := climb(t, start, 1<<20); of["full checkpointing"].Skipped == "" || of["weight streaming"].Skipped != "" {
		t.Error("without training, checkpointing is nothing and streaming something")
	}
}
