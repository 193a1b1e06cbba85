package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway"
	"spillway/dtype"
	"spillway/lora"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/trace"
	"spillway/units"
)

// gpuRow is one piece of work on a card.
type GPURow struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`         // of an iteration among many, the median
	Best    float64 `json:"best_seconds"`    // of all that were timed, the first aside
	Prepare float64 `json:"prepare_seconds"` // until the first iteration: the plan, kernels, memory
	// Burst is the bound by the products of a moment, Lasting by those of a card that
	// computes without pauses.
	Burst     GPUBound `json:"bound"`
	Sustained GPUBound `json:"lasting_bound"`
	Forecast  float64  `json:"forecast_seconds"`
	// Useful is the arithmetic a second of the work itself, whatever was computed twice:
	// 6 operations per param and token in training, else 2.
	Useful float64 `json:"useful_flops"`
	// LinkIn is what came in over the link, bytes per second.
	LinkIn float64 `json:"link_in"`

	Arena           int64 `json:"arena_bytes"` // of the card
	Driver          int64 `json:"driver_bytes"`
	DriverPredicted int64 `json:"driver_predicted_bytes"`
	Host            int64 `json:"host_bytes"`
	// Grown is what the driver counted more after each stage of the row than before it.
	Growth []GPUStage `json:"grown"`

	// Theirs are seconds of the peers, Ratio how many times faster ours is.
	Theirs map[string]float64 `json:"theirs"`
	Ratio  map[string]float64 `json:"ratio"`
	// TheirBytes is what they took of the card, as they count.
	TheirBytes map[string]int64 `json:"their_bytes,omitempty"`

	// Repeats: iterations are repeated from a note of the driver's.
	Captured bool `json:"repeats,omitempty"`
	// Spent is where the card's compute queue spent an iteration, in seconds.
	Spent map[string]float64 `json:"spent_seconds,omitempty"`
	// Digest is a checksum of losses and weights after some iterations, of rows with a twin.
	Digest string `json:"digest,omitempty"`

	model   string
	options spillway.Options
	tf32    bool   // products of f32 operands round them
	twin    string // the row that is the same training elsewhere
	steps   []trace.Event
}

// gpuStage is a part of a row: planned, started, timed, traced.
type GPUStage struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// gpuBound is the time the card's measured link or arithmetic alone would take, whichever
// is longer.
type GPUBound struct {
	By      string  `json:"by"`
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"` // of what the row took
}

// Names of the rows that peers know too.
const (
	forwardShort    = "forward of 8B from the host, 1 × 512 tokens"
	forwardLong     = "forward of 8B from the host, 4 × 2048 tokens"
	trainSaved      = "training of 1.1B on the card, 4 × 2048 tokens, all kept"
	trainRecomputed = "training of 1.1B on the card, 4 × 2048 tokens, recomputed"
	pureSaved       = "training of 1.1B on the card, all in bf16, 4 × 2048 tokens, all kept"
	pureRecomputed  = "training of 1.1B on the card, all in bf16, 4 × 2048 tokens, recomputed"
	encoderForward  = "forward of an encoder of 2.4B from the host, tf32, 16 × 512"
	encoderTrain    = "training of an encoder of 2.4B in 12 GiB, tf32, 16 × 512"
	encoderOnGPU    = "training of an encoder of 2.4B on the card, tf32, 16 × 512"
	linearForward   = "forward of 16 products of 4096 from the host, 4096 rows"
	linearResident  = "forward of 16 products of 4096 from the host, 4096 rows that stay on the card"
	linearTrain     = "training of 16 products of 4096 from the host, all in bf16, 4096 rows"
	tuneFromHost    = "training of 8B from the host in 24 GiB, 8 × 4096 tokens"
)

// gpuRows are what is measured: the work that peers do too, and work of other sizes
// that holds forecasts to account.
func gpuRows() []*GPURow {
	return slices.Concat(baselineRows(), cpuUpdateRows(), qloraRows(), spreadRows())
}

// bf16 is a row that computes in bf16.
func bf16(name, model string, o spillway.Options) *GPURow {
	o.Precision = dtype.BF16
	return &GPURow{Name: name, model: model, options: o}
}

// tf32 is a row of f32 numbers whose products round them.
func tf32(name, model string, o spillway.Options) *GPURow {
	o.Precision = dtype.F32
	return &GPURow{Name: name, model: model, options: o, tf32: true}
}

// like names the row that is the same training elsewhere.
func (g *GPURow) like(twin string) *GPURow {
	g.twin = twin
	return g
}

// work are the options of a task, with slabs and blocks all treated alike.
func work(task spillway.Task, rows, seq int64, budget units.Bytes, choose func(slabs, blocks int) planner.Choice) spillway.Options {
	return spillway.Options{Task: task, MicroBatchSize: rows, Seq: seq, Budget: int64(budget), Choose: choose}
}

// lean has weights and moments in bf16 and no masters, as the peers have.
func pureBF16(o spillway.Options) spillway.Options {
	o.Pure = true
	o.Optimizer, _ = optim.Parse("adamw_bf16") // a name of ours
	return o
}

// updatedRows are the peers' training of an encoder, updated by the host, and by host and
// card: the bits are to be those of the training that is all on the card.
func cpuUpdateRows() (list []*GPURow) {
	for _, by := range []struct {
		whom    string
		updates planner.Updater
	}{{"the host", planner.ByCPU}, {"host and card", planner.ByBoth}} {
		o := work(spillway.Train, 16, 512, 12*units.GiB, nil)
		o.Constraints.Updates = by.updates
		list = append(list, tf32(encoderTrain+", updated by "+by.whom, modelEncoder, o).like(encoderOnGPU))
	}
	return list
}

// Ways to treat all slabs and blocks alike.
var (
	savedAll   = planner.Uniform(false, false, planner.SaveAll, 1)
	recomputed = planner.Uniform(false, false, planner.SaveNone, 1)
	streamed   = planner.Uniform(true, false, planner.SaveAll, 3)
	fromHost   = planner.Uniform(true, true, planner.SaveNone, 2)
)

// streamedButFirst streams all slabs but the first, which stays on the card.
func streamedButFirst(slabs, blocks int) planner.Choice {
	c := streamed(slabs, blocks)
	c.Streamed[0] = false
	return c
}

// onHost leaves nothing that is trained on the card between iterations.
var onHost = planner.Constraints{Weights: plan.OnHost, State: plan.OnHost}

// peerRows are the work that other programs are known for.
func baselineRows() []*GPURow {
	const gib = units.GiB
	return []*GPURow{
		bf16(forwardShort, "llama-3-8b", work(spillway.Eval, 1, 512, 4*gib, streamed)),
		bf16(forwardLong, "llama-3-8b", work(spillway.Eval, 4, 2048, 4*gib, streamed)),
		bf16(trainSaved, model11B, work(spillway.Train, 4, 2048, 0, savedAll)),
		bf16(trainRecomputed, model11B, work(spillway.Train, 4, 2048, 0, recomputed)),
		bf16(pureSaved, model11B, pureBF16(work(spillway.Train, 4, 2048, 0, savedAll))),
		bf16(pureRecomputed, model11B, pureBF16(work(spillway.Train, 4, 2048, 0, recomputed))),
		tf32(encoderForward, modelEncoder, work(spillway.Infer, 16, 512, 4*gib, streamed)),
		tf32(encoderTrain, modelEncoder, work(spillway.Train, 16, 512, 12*gib, nil)).like(encoderOnGPU),
		tf32(encoderOnGPU, modelEncoder, work(spillway.Train, 16, 512, 0, savedAll)).like(encoderTrain),
		bf16(linearForward, modelLinear, work(spillway.Infer, 4096, 1, 0, streamed)),
		bf16(linearResident, modelLinearTable, work(spillway.Eval, 1, 4096, 0, streamedButFirst)),
		bf16(linearTrain, modelLinear, pureBF16(work(spillway.Train, 4096, 1, 0, planner.Uniform(true, true, planner.SaveAll, 3)))),
		bf16(tuneFromHost, "llama-3-8b", spillway.Options{Task: spillway.Train, MicroBatchSize: 8, Seq: 4096, Budget: int64(24 * gib), Constraints: onHost}),
	}
}

// leanRows train adapters of rank 16 beside 4-bit weights, with what the optimizer keeps
// in 8 bits: everything on the card, and the weights from the host.
func qloraRows() (list []*GPURow) {
	for _, w := range []struct {
		name, model   string
		whole, little units.Bytes
	}{
		{"8B", "llama-3-8b", 16 * units.GiB, 6 * units.GiB},
		{"Llama-2-70B", "llama-2-70b", 48 * units.GiB, 12 * units.GiB},
		{"Llama-3-70B", "llama-3-70b", 48 * units.GiB, 12 * units.GiB},
	} {
		for _, budget := range []units.Bytes{w.whole, w.little} {
			o := work(spillway.QLoRA, 1, 2048, budget, nil)
			o.Adapters.Rank, o.Adapters.Alpha, o.Adapters.Targets = 16, 32, []string{lora.AllLinear}
			o.Optimizer, _ = optim.Parse("adamw_8bit") // a name it knows
			list = append(list, bf16(fmt.Sprintf("qlora of %s in %v, 1 × 2048 tokens", w.name, budget), w.model, o))
		}
	}
	return list
}

// spreadRows are models and sizes of all kinds, small enough to be measured quickly.
func spreadRows() (list []*GPURow) {
	for _, model := range []string{"llama-50m", "gpt2", "qwen2.5-0.5b", "qwen3-0.6b"} {
		for _, w := range []struct {
			how       string
			task      spillway.Task
			rows, seq int64
			choose    func(slabs, blocks int) planner.Choice
		}{
			{"training, all kept", spillway.Train, 4, 1024, savedAll},
			{"training, recomputed", spillway.Train, 8, 512, recomputed},
			{"training from the host", spillway.Train, 4, 512, fromHost},
			{"forward", spillway.Eval, 8, 1024, planner.Uniform(false, false, planner.SaveAll, 1)},
			{"forward from the host", spillway.Eval, 1, 512, streamed},
		} {
			list = append(list, bf16(fmt.Sprintf("%s: %s, %d × %d tokens", model, w.how, w.rows, w.seq), model, work(w.task, w.rows, w.seq, 0, w.choose)))
		}
	}
	list = append(list,
		tf32("llama-50m: training in tf32, 4 × 1024 tokens", "llama-50m", work(spillway.Train, 4, 1024, 0, savedAll)),
		tf32("qwen2.5-0.5b: training in tf32 from the host, 4 × 512 tokens", "qwen2.5-0.5b", work(spillway.Train, 4, 512, 0, fromHost)),
		bf16("8 layers of 8B: training from the host in 24 GiB, 8 × 4096 tokens", model8Layers,
			spillway.Options{Task: spillway.Train, MicroBatchSize: 8, Seq: 4096, Budget: int64(24 * units.GiB), Constraints: onHost}))
	for _, rows := range []int64{1, 4} {
		size := fmt.Sprintf("%d × 1024 tokens", rows)
		list = append(list,
			bf16("1.1B: training in 8 GiB, "+size, model11B, work(spillway.Train, rows, 1024, 8*units.GiB, nil)),
			bf16("llama-3.2-1b: forward, "+size, "llama-3.2-1b", work(spillway.Eval, rows, 1024, 0, savedAll)))
	}
	return list
}

// wants says whether a row was asked for.
func (o BenchOptions) wants(row string) bool {
	return o.Only == "" || slices.ContainsFunc(strings.Split(o.Only, ","), func(words string) bool { return strings.Contains(row, words) })
}

// shares of the bounds: one where both are the same.
func (g *GPURow) shares() string {
	if g.Burst == g.Sustained {
		return percent(g.Burst.Share)
	}
	return fmt.Sprintf("%s, lasting %s", percent(g.Burst.Share), percent(g.Sustained.Share))
}

func (g *GPURow) baselineText() string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(g.Theirs)) {
		text := fmt.Sprintf("%s %s, %.2f×", name, seconds(g.Theirs[name]), g.Ratio[name])
		if bytes := g.TheirBytes[name]; bytes > 0 {
			text += fmt.Sprintf(", %v", units.Bytes(bytes))
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}
