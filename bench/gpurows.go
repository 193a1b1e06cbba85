package bench

import (
	"fmt"
	"math"
	"slices"

	"spillway"
	"spillway/dtype"
	"spillway/lora"
	"spillway/op"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner/strategy"
	"spillway/trace"
	"spillway/units"
)

// GPURow is one piece of work on a GPU.
type GPURow struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`         // of an iteration, the median of many
	Best    float64 `json:"best_seconds"`    // of all that were timed but the first
	Prepare float64 `json:"prepare_seconds"` // until the first iteration: the plan, kernels, memory
	// Burst is the bound with matmuls at their burst rate, Sustained at the rate of a GPU that
	// computes without pauses.
	Burst     GPUBound `json:"bound"`
	Sustained GPUBound `json:"sustained_bound"`
	Forecast  float64  `json:"forecast_seconds"`
	// Useful is the arithmetic per second of the work itself, without what was computed twice:
	// 6 operations per param and token in training, else 2.
	Useful float64 `json:"useful_flops"`
	LinkIn float64 `json:"link_in"` // bytes per second that came in over the link

	Arena           int64 `json:"arena_bytes"` // of the GPU
	Driver          int64 `json:"driver_bytes"`
	DriverPredicted int64 `json:"driver_predicted_bytes"`
	Host            int64 `json:"host_bytes"`
	// Growth is how much more the driver counted after each stage of the row than before it.
	Growth []GPUStage `json:"growth"`

	// Theirs are seconds of the baselines, Ratio how many times faster ours is, TheirBytes
	// what they used of the GPU, as they count it.
	Theirs     map[string]float64 `json:"theirs"`
	Ratio      map[string]float64 `json:"ratio"`
	TheirBytes map[string]int64   `json:"their_bytes,omitempty"`

	Captured bool `json:"captured,omitempty"` // iterations are launched as a captured graph
	// Spent is where the GPU's compute queue spent an iteration, in seconds.
	Spent map[string]float64 `json:"spent_seconds,omitempty"`
	// Digest is a checksum of losses and weights after some iterations, of rows with a twin.
	Digest string `json:"digest,omitempty"`

	model   string
	options spillway.Options
	tf32    bool // f32 matmuls are computed in TF32
	// documents is how many tokens those packed into sequences have on average; 0: a sequence is
	// one document.
	documents int64
	twin      string // the row that is the same training run with another plan
	events    []trace.Event
}

// GPUStage is a stage of a row: planned, started, timed, traced.
type GPUStage struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// GPUBound is the time that the GPU's measured link or arithmetic alone would take,
// whichever is longer.
type GPUBound struct {
	By      string  `json:"by"`
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"` // of what the row took
}

// Names of the rows that baselines have too.
const (
	forwardShort    = "forward of 8B from the host, 1 × 512 tokens"
	forwardLong     = "forward of 8B from the host, 4 × 2048 tokens"
	trainSaved      = "training of 1.1B on the GPU, 4 × 2048 tokens, activations saved"
	trainRecomputed = "training of 1.1B on the GPU, 4 × 2048 tokens, recomputed"
	pureSaved       = "training of 1.1B on the GPU, all in bf16, 4 × 2048 tokens, activations saved"
	pureRecomputed  = "training of 1.1B on the GPU, all in bf16, 4 × 2048 tokens, recomputed"
	encoderForward  = "forward of an encoder of 2.4B from the host, tf32, 16 × 512"
	encoderTrain    = "training of an encoder of 2.4B in 12 GiB, tf32, 16 × 512"
	encoderOnGPU    = "training of an encoder of 2.4B on the GPU, tf32, 16 × 512"
	linearForward   = "forward of 16 linear layers of 4096 from the host, 4096 rows"
	linearResident  = "forward of 16 linear layers of 4096 from the host, 4096 rows that stay on the GPU"
	linearTrain     = "training of 16 linear layers of 4096 from the host, all in bf16, 4096 rows"
	tuneFromHost    = "training of 8B from the host in 24 GiB, 8 × 4096 tokens"
)

// gpuRows are what is measured: the work of the baselines, and work of other sizes to check
// forecasts with.
func gpuRows() []*GPURow {
	return slices.Concat(baselineRows(), cpuUpdateRows(), qloraRows(), spreadRows())
}

// bf16 is a row that computes in bf16.
func bf16(name, model string, o spillway.Options) *GPURow {
	o.Precision = dtype.BF16
	return newRow(name, model, o)
}

// tf32 is a row in f32 whose matmuls are computed in TF32.
func tf32(name, model string, o spillway.Options) *GPURow {
	o.Precision = dtype.F32
	g := newRow(name, model, o)
	g.tf32 = true
	return g
}

// newRow packs the sequences of language models, as train and eval do: one document each.
func newRow(name, model string, o spillway.Options) *GPURow {
	o.Packed = model != modelEncoder && model != modelLinear && model != modelLinearTable
	return &GPURow{Name: name, model: model, options: o}
}

// documentTokens is how long documents are on average in rows that have many in a sequence.
const documentTokens = 700

// ofDocuments is the same row over sequences of documents whose lengths fall off exponentially
// from the mean.
func (g *GPURow) ofDocuments() *GPURow {
	g.Name += fmt.Sprintf(", documents of %d on average", documentTokens)
	g.documents = documentTokens
	var tokens, squares int64
	for i := range g.options.MicroBatchSize {
		for _, n := range documentLengths(i, g.options.Seq, g.documents) {
			tokens, squares = tokens+n, squares+n*n
		}
	}
	g.options.Document = squares / tokens
	return g
}

// documentLengths are those of the documents of a sequence; the last one is cut.
func documentLengths(sequence, seq, mean int64) (list []int64) {
	for left := seq; left > 0; {
		u := float64(op.Uniform(2, uint32(sequence), uint64(len(list))))
		n := min(1+int64(-float64(mean)*math.Log1p(-u)), left)
		list, left = append(list, n), left-n
	}
	return list
}

// like names the row that is the same training run with another plan.
func (g *GPURow) like(twin string) *GPURow {
	g.twin = twin
	return g
}

// work is the options of a task; choose treats all slabs and blocks alike.
func work(task spillway.Task, rows, seq int64, budget units.Bytes, choose func(slabs, blocks int) strategy.Choice) spillway.Options {
	return spillway.Options{Task: task, MicroBatchSize: rows, Seq: seq, Budget: int64(budget), Choose: choose}
}

// pureBF16 has weights and moments in bf16 and no master weights, as the baselines have.
func pureBF16(o spillway.Options) spillway.Options {
	o.Pure = true
	o.Optimizer, _ = optim.Parse("adamw_bf16") // a name it knows
	return o
}

// cpuUpdateRows train the encoder of the baselines with the optimizer step on the CPU, and on
// CPU and GPU: the bits are to be those of the run that is all on the GPU.
func cpuUpdateRows() (list []*GPURow) {
	for _, by := range []struct {
		whom    string
		updates strategy.Updater
	}{{"the CPU", strategy.ByCPU}, {"CPU and GPU", strategy.ByBoth}} {
		o := work(spillway.Train, 16, 512, 12*units.GiB, nil)
		o.Constraints.Updates = by.updates
		list = append(list, tf32(encoderTrain+", optimizer step on "+by.whom, modelEncoder, o).like(encoderOnGPU))
	}
	return list
}

// Choices that treat all slabs and blocks alike.
var (
	savedAll   = strategy.Uniform(false, false, strategy.SaveAll, 1)
	recomputed = strategy.Uniform(false, false, strategy.SaveNone, 1)
	streamed   = strategy.Uniform(true, false, strategy.SaveAll, 3)
	fromHost   = strategy.Uniform(true, true, strategy.SaveNone, 2)
)

// streamedButFirst streams all slabs but the first, which stays on the GPU.
func streamedButFirst(slabs, blocks int) strategy.Choice {
	c := streamed(slabs, blocks)
	c.Streamed[0] = false
	return c
}

// onHost stores nothing that is trained on the GPU between iterations.
var onHost = strategy.Constraints{Weights: plan.OnHost, State: plan.OnHost}

// baselineRows are the work that other programs are known for.
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
		bf16(linearTrain, modelLinear, pureBF16(work(spillway.Train, 4096, 1, 0, strategy.Uniform(true, true, strategy.SaveAll, 3)))),
		bf16(tuneFromHost, "llama-3-8b", spillway.Options{Task: spillway.Train, MicroBatchSize: 8, Seq: 4096, Budget: int64(24 * gib), Constraints: onHost}),
		bf16(trainSaved, model11B, work(spillway.Train, 4, 2048, 0, savedAll)).ofDocuments(),
		bf16(tuneFromHost, "llama-3-8b", spillway.Options{Task: spillway.Train, MicroBatchSize: 8, Seq: 4096, Budget: int64(24 * gib), Constraints: onHost}).ofDocuments(),
	}
}

// qloraRows train adapters of rank 16 next to 4-bit weights, with 8-bit optimizer state: with
// everything on the GPU, and with the weights in host memory.
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

// spreadRows are models of many kinds and sizes, small enough to be measured quickly.
func spreadRows() (list []*GPURow) {
	for _, model := range []string{"llama-50m", "gpt2", "qwen2.5-0.5b", "qwen3-0.6b"} {
		for _, w := range []struct {
			how       string
			task      spillway.Task
			rows, seq int64
			choose    func(slabs, blocks int) strategy.Choice
		}{
			{"training, activations saved", spillway.Train, 4, 1024, savedAll},
			{"training, recomputed", spillway.Train, 8, 512, recomputed},
			{"training from the host", spillway.Train, 4, 512, fromHost},
			{"forward", spillway.Eval, 8, 1024, strategy.Uniform(false, false, strategy.SaveAll, 1)},
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
