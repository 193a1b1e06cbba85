package main

import (
	"fmt"
	"math"
	"strings"

	"spillway"
	"spillway/dtype"
	"spillway/finetune"
	"spillway/inspect"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner"
	"spillway/quant"
	"spillway/recipe"
	"spillway/units"
)

// planReport is the object of plan --json. Its method write says the same to people.
type planReport struct {
	Model   inspect.Model `json:"model"`
	Machine machineReport `json:"machine"`
	Goal    goalReport    `json:"goal"`

	Fits bool `json:"fits"`
	madeReport
	misfitReport
	// Standard is what the device would need with everything on it, in bytes.
	Standard int64 `json:"standard_bytes"`

	advice
	Notices []string `json:"notices,omitempty"` // of what was asked for and has no effect, or is done otherwise

	plan         *plan.Plan // nil where it does not fit
	compute      dtype.Type
	deviceReason string // why this device was chosen; "" where it was named
}

// madeReport describes a plan that fits.
type madeReport struct {
	Strategy   string   `json:"strategy,omitempty"`
	Strategies []string `json:"strategies,omitempty"` // their names
	Reason     string   `json:"reason"`
	// Quantized says whether quantized weights stay on the device or stream to it.
	Quantized string         `json:"quantized,omitempty"`
	Forecast  *plan.Forecast `json:"forecast,omitempty"`
	SumOrder  string         `json:"sum_order,omitempty"` // of gradients of several micro-batches
	// SumPrice is how much longer a step takes with canonical sums, as a share of one without; nil
	// where they are not asked for.
	SumPrice *float64 `json:"canonical_sums_price,omitempty"`
	// Evaluation is the seconds of one pass over as many sequences as a step has, without
	// training; 0 where the plan evaluates nothing.
	Evaluation float64 `json:"evaluation_seconds,omitempty"`
	// Generation is the cache and the steps of the task generate.
	Generation *spillway.GenerationForecast `json:"generation,omitempty"`
	// Homes is where bytes are stored between iterations. AtPeak is what each tier holds at its
	// peak, which adds what lives for a while only.
	Homes     plan.Usage          `json:"homes,omitempty"`
	AtPeak    plan.Usage          `json:"at_peak,omitempty"`
	Available map[plan.Tier]int64 `json:"available_bytes,omitempty"`
	Devices   []deviceReport      `json:"devices,omitempty"` // that the plan uses
	Rejected  []plan.Alternative  `json:"rejected"`
}

// misfitReport says what is missing where no plan fits.
type misfitReport struct {
	Tier   plan.Tier `json:"tier,omitempty"` // that is too small
	Needed int64     `json:"needed_bytes,omitempty"`
	Budget int64     `json:"budget_bytes,omitempty"`
	// Host memory that the smallest plan takes, and what there is, whatever tier is too small.
	NeededHost int64               `json:"needed_host_bytes,omitempty"`
	BudgetHost int64               `json:"budget_host_bytes,omitempty"`
	Options    []planner.FitOption `json:"options,omitempty"`
}

// machineReport is a machine with its description and the device that was planned for.
type machineReport struct {
	machine.Machine
	Description string `json:"description"`
	Device      string `json:"device"`
}

// modelLine is a model in a line.
func modelLine(r inspect.Model) string {
	text := fmt.Sprintf("%s params, %d blocks of %s", units.Count(r.Params), r.Blocks, units.Count(r.BlockParams))
	if r.Vocabulary > 0 {
		text += ", vocabulary " + grouped(r.Vocabulary)
	}
	if r.Trainable != r.Params {
		text += fmt.Sprintf(", %s trainable (%.2g%%)", units.Count(r.Trainable), 100*float64(r.Trainable)/float64(r.Params))
	}
	return text
}

// describePlan says what came of planning. Where nothing fits, the job is the one that would
// run without a limit on memory.
func describePlan(job *spillway.Run, misfit *planner.FitError) *planReport {
	r := &planReport{Model: inspect.DescribeModel(job.Model.Info, job.Spec), madeReport: madeReport{Rejected: []plan.Alternative{}}, Notices: job.Notices, compute: job.Options.Precision}
	if e := misfit; e != nil {
		r.Standard = finetune.StandardPeak(job.Plan)
		r.misfitReport = misfitReport{e.Tier, e.Needed, e.Budget, e.NeededHost, e.BudgetHost, e.Options}
		r.Reason = e.Lack()
		return r
	}
	p := job.Plan
	r.Fits, r.plan, r.Standard = true, p, finetune.StandardPeak(p)
	r.Strategy, r.Strategies, r.Reason, r.Forecast = p.Strategy, p.Strategies, p.Reason, p.Forecast
	r.SumOrder = p.SumOrder()
	r.Homes, r.AtPeak, r.Available, r.Devices = p.HomeUsage(), p.PeakUsage(), available(job), describeDevices(p)
	for _, ph := range p.Phases {
		if ph.Name == plan.Evaluate {
			r.Evaluation = ph.Seconds
		}
	}
	r.Rejected, r.Quantized = append(r.Rejected, p.Rejected...), describeQuantized(job)
	return r
}

// available is what the plan may use of each tier, of all its devices together.
func available(job *spillway.Run) map[plan.Tier]int64 {
	free := map[plan.Tier]int64{}
	for _, d := range job.Plan.Devices {
		if d.Name == plan.DiskName {
			free[plan.OnDisk] += d.Budget
		} else {
			free[plan.OnDevice] += d.Budget
		}
	}
	for _, a := range job.Plan.Arenas {
		if a.Tier == plan.Pinned || a.Tier == plan.OnHost {
			free[a.Tier] = int64(job.Options.Machine.Host.Usable)
		}
	}
	return free
}

// deviceReport is what a plan takes of one device.
type deviceReport struct {
	Name    string `json:"name"`
	Peak    int64  `json:"peak_bytes"`
	Budget  int64  `json:"budget_bytes"`
	Context int64  `json:"context_bytes,omitempty"` // of a GPU, beyond both
}

func describeDevices(p *plan.Plan) []deviceReport {
	var list []deviceReport
	for i, d := range p.Devices {
		if d.Name == plan.DiskName || d.Name == plan.HostName {
			continue
		}
		r := deviceReport{Name: d.Name, Budget: d.Budget, Context: d.Context}
		for _, a := range p.Arenas {
			if a.Tier == plan.OnDevice && a.Device == i {
				r.Peak += a.Bytes
			}
		}
		list = append(list, r)
	}
	return list
}

// goalReport is the goal as JSON.
type goalReport struct {
	Task           string   `json:"task"`
	BatchSize      int64    `json:"batch_size"` // micro_batches of micro_batch_size
	MicroBatchSize int64    `json:"micro_batch_size"`
	Seq            int64    `json:"seq_len"`
	MicroBatches   int      `json:"micro_batches"`
	Document       int64    `json:"document_len,omitempty"` // tokens of the document a position is in
	Context        int64    `json:"context,omitempty"`      // most tokens of a sequence that is generated
	Streams        int64    `json:"streams,omitempty"`      // such sequences at once
	CacheType      string   `json:"cache_type,omitempty"`
	Exact          bool     `json:"exact,omitempty"`
	Precision      string   `json:"precision"`
	Master         bool     `json:"master_weights"`
	F32Modules     []string `json:"fp32_modules,omitempty"`
	NotQuantized   []string `json:"not_quantized,omitempty"` // modules
	Optimizer      string   `json:"optimizer,omitempty"`
	Clip           float64  `json:"max_grad_norm,omitempty"`
	Norm           bool     `json:"grad_norm,omitempty"` // reported, and nothing clipped
	Rank           int64    `json:"lora_rank,omitempty"`
	Adapters       []string `json:"adapters,omitempty"`     // what is unusual about them
	Base           string   `json:"quantization,omitempty"` // format of frozen weights
}

// describeGoal is the goal with everything filled in.
func describeGoal(o spillway.Options) goalReport {
	r := goalReport{Task: string(o.Task), BatchSize: o.MicroBatchSize * int64(o.MicroBatches), MicroBatchSize: o.MicroBatchSize, Seq: o.Seq, MicroBatches: o.MicroBatches, Document: o.Document, Precision: o.Precision.String()}
	for _, e := range o.Exceptions {
		if e.Type == dtype.F32 {
			r.F32Modules = e.Modules
		} else {
			r.NotQuantized = e.Modules
		}
	}
	if o.Task == spillway.Generate {
		r.Context, r.Streams, r.CacheType, r.Exact = o.Generation.Context, o.Generation.Streams, recipe.CacheTypeName(o.Generation), o.Generation.Exact
	}
	if o.Task.Trains() {
		r.Master, r.Optimizer, r.Clip = o.Precision != dtype.F32 && !o.Pure, o.Optimizer.String(), o.Clip
		if r.Norm = math.IsInf(o.Clip, 1); r.Norm {
			r.Clip = 0
		}
	}
	if o.Task == spillway.LoRA || o.Task == spillway.QLoRA {
		r.Rank, r.Adapters = o.Adapters.Rank, o.Adapters.Traits()
		if o.Task == spillway.QLoRA {
			r.Base = quant.Of(o.Adapters.Base).Alias
		}
	}
	return r
}

// step is what the forecast is about: a training step, or a forward pass.
func (r goalReport) step() string {
	switch r.Task {
	case "infer":
		return "pass"
	case "generate":
		return "chunk"
	}
	return "step"
}

// String says the goal in a line: "train all weights, batch 32 × seq 4,096, 8
// micro-batches of 4, bf16 with f32 master weights, adamw".
func (r goalReport) String() string {
	lora := strings.Join(append([]string{fmt.Sprintf("LoRA of rank %d", r.Rank)}, r.Adapters...), ", ")
	what := map[string]string{"infer": "inference", "train": "train all weights", "lora": lora, "qlora": strings.Replace(lora, "LoRA", "QLoRA", 1) + " with " + r.Base + " weights"}[r.Task]
	text := fmt.Sprintf("%s, batch %s × seq %s", what, grouped(r.BatchSize), grouped(r.Seq))
	if r.Task == "generate" {
		text = fmt.Sprintf("generate, %s of up to %s tokens, cache in %s", plural(int(r.Streams), "sequence"), grouped(r.Context), r.CacheType)
		if r.Exact {
			text += ", exact"
		}
	}
	if 0 < r.Document && r.Document < r.Seq {
		text += fmt.Sprintf(" in documents of %s (mean over positions, padding too)", grouped(r.Document))
	}
	if r.MicroBatches > 1 {
		text += fmt.Sprintf(", %d micro-batches of %d", r.MicroBatches, r.MicroBatchSize)
	}
	text += ", " + r.Precision
	if r.Master {
		text += " with f32 master weights"
	}
	if len(r.F32Modules) > 0 {
		text += ", " + strings.Join(r.F32Modules, " and ") + " in f32"
	}
	if len(r.NotQuantized) > 0 {
		text += ", " + strings.Join(r.NotQuantized, " and ") + " not quantized"
	}
	if r.Optimizer != "" {
		text += ", " + r.Optimizer
	}
	if r.Norm {
		text += ", gradient norm reported"
	}
	if r.Clip > 0 {
		text += fmt.Sprintf(", gradients clipped to norm %v", r.Clip)
	}
	return text
}
