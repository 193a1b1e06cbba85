package inspect

import (
	"fmt"

	"spillway"
	"spillway/dtype"
	"spillway/machine"
	"spillway/optim"
	"spillway/plan"
	"spillway/recipe"
)

// MemoryOptions say what the memory of a model is estimated for.
type MemoryOptions struct {
	MicroBatchSize, Seq int64 // Seq 0: what the model was made for, at most 2048
	Rank                int64 // of the adapters of LoRA and QLoRA
	Optimizer           optim.Config
	Average             float64 // decay of a running average of the weights that training keeps; 0 for none
	RulesOfThumb        bool    // say also what the common formulas give
}

// Memory is what a model needs with everything on one device, for each task and precision.
type Memory struct {
	Name   string      `json:"name"`
	Params int64       `json:"params"`
	Seq    int64       `json:"seq_len"`
	Batch  int64       `json:"batch_size"`
	Rows   []MemoryRow `json:"rows"`
}

// MemoryRow is the device memory of one task at its peak, in bytes.
type MemoryRow struct {
	Task        string `json:"task"`
	Precision   string `json:"precision"`
	Trainable   int64  `json:"trainable"`
	Weights     int64  `json:"weights_bytes"`
	Gradients   int64  `json:"gradients_bytes"`
	Master      int64  `json:"master_bytes"`
	State       int64  `json:"state_bytes"`
	Activations int64  `json:"activations_bytes"`
	Workspace   int64  `json:"workspace_bytes"`
	Other       int64  `json:"other_bytes"` // batch, constants and gaps
	Total       int64  `json:"total_bytes"`
	// Thumb is what the common formula says, where it was asked for.
	Thumb *RuleOfThumb `json:"rule_of_thumb,omitempty"`
}

// RuleOfThumb is what a common formula says.
type RuleOfThumb struct {
	Formula string `json:"formula"`
	Bytes   int64  `json:"bytes"`
	Wrong   string `json:"wrong"` // what it leaves out
}

// memoryMachine computes as any GPU does; its size does not matter.
const memoryMachine = "gpu:80GiB"

// EstimateMemory plans a model with everything on one device, every buffer in its place.
func EstimateMemory(m *spillway.Model, o MemoryOptions) (Memory, error) {
	out := Memory{Name: m.Name, Batch: o.MicroBatchSize}
	on, err := machine.Parse(memoryMachine)
	if err != nil {
		return out, err
	}
	p := recipe.NewPlan()
	p.Machine, p.MicroBatchSize, p.Seq, p.Optimizer, p.Adapters.Rank = on, o.MicroBatchSize, o.Seq, o.Optimizer, o.Rank
	for _, p.Task = range []spillway.Task{spillway.Infer, spillway.Train, spillway.LoRA, spillway.QLoRA} {
		if p.Average = 0; p.Task.Trains() {
			p.Average = o.Average
		}
		for _, p.Precision = range []dtype.Type{dtype.F32, dtype.BF16} {
			precision := map[dtype.Type]string{dtype.F32: "fp32", dtype.BF16: "bf16"}[p.Precision]
			job, err := m.Standard(p.Complete(on.Devices[0]))
			if err != nil {
				return out, fmt.Errorf("%s, %s in %s: %w", m.Name, p.Task, precision, err)
			}
			if p.Task == spillway.Infer {
				out.Params, out.Seq = job.Spec.Count(), job.Options.Seq
			}
			row := memoryRow(job)
			row.Task, row.Precision = string(p.Task), precision
			if o.RulesOfThumb {
				row.Thumb = row.ruleOfThumb(out.Params)
			}
			out.Rows = append(out.Rows, row)
		}
	}
	return out, nil
}

func memoryRow(job *spillway.Run) MemoryRow {
	u := job.Plan.PeakUsage()
	of := func(list ...plan.Class) (n int64) {
		for _, c := range list {
			n += u[c][plan.OnDevice]
		}
		return n
	}
	return MemoryRow{
		Trainable: job.Spec.Trainable(), Weights: of(plan.Weight), Gradients: of(plan.Gradient), Master: of(plan.Master), State: of(plan.State),
		Activations: of(plan.Activation), Workspace: of(plan.Workspace), Other: of(plan.BatchData, plan.ResultData, plan.Constant, plan.Gaps),
		Total: job.Plan.Peak()[plan.OnDevice],
	}
}

// ruleOfThumb is the common formula for a task.
func (r MemoryRow) ruleOfThumb(params int64) *RuleOfThumb {
	width := int64(2)
	if r.Precision == "fp32" {
		width = 4
	}
	switch {
	case r.Task == "infer":
		return &RuleOfThumb{fmt.Sprint(width, " bytes per param"), width * params, "the rule leaves out activations, logits and workspace"}
	case r.Task == "train" && width == 4:
		return &RuleOfThumb{"16 bytes per param (weight 4, gradient 4, Adam 8)", 16 * params, "the rule leaves out activations; gradients that are applied at once need not all be stored"}
	case r.Task == "train":
		return &RuleOfThumb{"12 bytes per param (weight 2, gradient 2, Adam 8)", 12 * params, "the rule leaves out activations and f32 master weights"}
	case r.Task == "lora":
		return &RuleOfThumb{"2 · weight + Adam 8 per trained param", (2*width + 8) * r.Trainable, "the rule counts trained params alone, without the frozen weights"}
	}
	return &RuleOfThumb{"3 bytes per param (weight 0.5, gradient 0.5, Adam 2)", 3 * params, "the rule charges gradients and optimizer state to weights that are frozen, and leaves out scales and activations"}
}
