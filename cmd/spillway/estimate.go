package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"spillway"
	"spillway/arch"
	"spillway/dtype"
	"spillway/internal/term"
	"spillway/machine"
	"spillway/optim"
	"spillway/plan"
	"spillway/recipe"
	"spillway/units"
)

func newEstimate(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "estimate [MODEL...]",
		Short: "the memory a model needs with everything on one device",
		Long: `Shows how much memory inference, training and fine-tuning need on a device that holds
everything: weights, gradients, master weights, optimizer state, activations and workspace
at their peak. The numbers come from plans with every buffer in its place, not from a
formula. plan says what smaller devices can do.

Without MODEL it is a table of all presets.

` + modelHelp,
		Example: `  spillway estimate                              every preset
  spillway estimate llama-3-8b --seq-len 4096
  spillway estimate qwen2.5-7b mistral-7b --rule-of-thumb --json`,
	}
	asJSON := jsonFlag(cmd)
	e := &estimate{}
	f := cmd.Flags()
	f.Int64Var(&e.batch, "batch-size", 1, "pass `N` sequences through the model at once")
	f.Int64Var(&e.seq, "seq-len", 0, "`N` tokens per sequence (default: what the model was made for, at most 2048)")
	f.Int64Var(&e.rank, "lora-rank", 16, "rank `N` of the adapters of lora and qlora")
	e.optim, _ = optim.Parse("adamw") // a name it knows
	settings := flag.NewFlagSet("estimate", flag.ContinueOnError)
	recipe.Optimizer(settings, &e.optim)
	bind(cmd, settings)
	f.BoolVar(&e.thumb, "rule-of-thumb", false, "show what the common formulas say, and where they are wrong")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		list, err := e.all(args)
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(sh.out, map[string]any{"models": list})
		}
		return e.write(sh.out, list, len(args) == 0)
	}
	return cmd
}

// estimate is the flags of the verb.
type estimate struct {
	batch, seq, rank int64
	thumb            bool
	optim            optim.Config
}

// modelEstimate is the memory a model needs, for each task and precision.
type modelEstimate struct {
	Name   string           `json:"name"`
	Params int64            `json:"params"`
	Seq    int64            `json:"seq"`
	Batch  int64            `json:"batch"`
	Rows   []memoryEstimate `json:"rows"`
}

// memoryEstimate is the device memory of one task at its peak, in bytes.
type memoryEstimate struct {
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
	Thumb *rule `json:"rule_of_thumb,omitempty"`
}

// estimateMachine computes as any GPU does; its size does not matter.
const estimateMachine = "gpu:80GiB"

// all estimates some models, or every preset.
func (e *estimate) all(names []string) (list []modelEstimate, err error) {
	if e.batch < 1 || e.seq < 0 || e.rank < 1 {
		return nil, usageErrorf("--batch-size %d, --seq-len %d, --lora-rank %d: none may be below 1", e.batch, e.seq, e.rank)
	}
	if len(names) == 0 {
		names = arch.Presets()
	}
	for _, name := range names {
		m, err := e.model(name)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

func (e *estimate) model(name string) (modelEstimate, error) {
	m, err := spillway.Open(name)
	if err != nil {
		return modelEstimate{}, err
	}
	defer m.Close() // opened for reading
	out := modelEstimate{Name: m.Name, Batch: e.batch}
	for _, task := range []spillway.Task{spillway.Infer, spillway.Train, spillway.LoRA, spillway.QLoRA} {
		for _, of := range []dtype.Type{dtype.F32, dtype.BF16} {
			precision := map[dtype.Type]string{dtype.F32: "fp32", dtype.BF16: "bf16"}[of]
			job, err := e.job(m, task, of)
			if err != nil {
				return out, fmt.Errorf("%s, %s in %s: %w", name, task, precision, err)
			}
			if task == spillway.Infer {
				out.Params, out.Seq = job.Spec.Count(), job.Options.Seq
			}
			row := describeMemory(job)
			row.Task, row.Precision = string(task), precision
			if e.thumb {
				row.Thumb = thumb(row, out.Params)
			}
			out.Rows = append(out.Rows, row)
		}
	}
	return out, nil
}

// job is the plan with everything on one device.
func (e *estimate) job(m *spillway.Model, task spillway.Task, precision dtype.Type) (*spillway.Run, error) {
	mach, err := machine.Parse(estimateMachine)
	if err != nil {
		return nil, err
	}
	p := recipe.NewPlan()
	p.Task, p.MicroBatchSize, p.Seq, p.Optimizer, p.Adapters.Rank, p.Precision = task, e.batch, e.seq, e.optim, e.rank, precision
	o := p.Complete(mach.Devices[0])
	o.Machine = mach
	return m.Standard(o)
}

func describeMemory(job *spillway.Run) memoryEstimate {
	u := job.Plan.PeakUsage()
	of := func(list ...plan.Class) (n int64) {
		for _, c := range list {
			n += u[c][plan.OnDevice]
		}
		return n
	}
	return memoryEstimate{
		Trainable: job.Spec.Trainable(), Weights: of(plan.Weight), Gradients: of(plan.Gradient), Master: of(plan.Master), State: of(plan.State),
		Activations: of(plan.Activation), Workspace: of(plan.Workspace), Other: of(plan.BatchData, plan.ResultData, plan.Constant, plan.Gaps),
		Total: job.Plan.Peak()[plan.OnDevice],
	}
}

func (e *estimate) write(w io.Writer, list []modelEstimate, reference bool) error {
	var p page
	if reference {
		e.writeReference(&p, list)
	} else {
		for i, m := range list {
			if i > 0 {
				p.WriteString("\n")
			}
			e.writeModel(&p, m)
		}
	}
	_, err := io.WriteString(w, p.String())
	return err
}

func (e *estimate) writeModel(p *page, m modelEstimate) {
	p.line(m.Name, "%s params, batch %d × seq %s, %s, everything on one device", units.Count(m.Params), m.Batch, grouped(m.Seq), e.optim)
	p.WriteString("\n")
	var t term.Table
	t.Row("at the peak", "weights", "gradients", "master", "optimizer", "activations", "workspace", "other", "total")
	for _, r := range m.Rows {
		row := []string{fmt.Sprintf("  %s, %s", r.Task, r.Precision)}
		for _, n := range []int64{r.Weights, r.Gradients, r.Master, r.State, r.Activations, r.Workspace, r.Other, r.Total} {
			row = append(row, cell(n))
		}
		t.Row(row...)
	}
	t.Write(p) // a page takes everything
	if !e.thumb {
		return
	}
	p.WriteString("\n")
	for _, r := range m.Rows {
		p.line(fmt.Sprintf("  %s, %s", r.Task, r.Precision), "%s are %v, the plan takes %v: %s",
			r.Thumb.Formula, units.Bytes(r.Thumb.Bytes), units.Bytes(r.Total), r.Thumb.Wrong)
	}
}

// cell is empty where there is nothing.
func cell(n int64) string {
	if n == 0 {
		return ""
	}
	return units.Bytes(n).String()
}

// writeReference is a line per model.
func (e *estimate) writeReference(p *page, list []modelEstimate) {
	slices.SortStableFunc(list, func(a, b modelEstimate) int { return int(min(max(a.Params-b.Params, -1), 1)) })
	var t term.Table
	t.Row("model", "params", "fp32", "bf16", "nf4", "infer", "train", "lora", "qlora")
	for _, m := range list {
		at := map[string]memoryEstimate{}
		for _, r := range m.Rows {
			at[r.Task+" "+r.Precision] = r
		}
		t.Row(m.Name, units.Count(m.Params), bytesText(at["infer fp32"].Weights), bytesText(at["infer bf16"].Weights), bytesText(at["qlora bf16"].Weights),
			bytesText(at["infer bf16"].Total), bytesText(at["train bf16"].Total), bytesText(at["lora bf16"].Total), bytesText(at["qlora bf16"].Total))
	}
	t.Write(p) // a page takes everything
	p.WriteString("\n")
	p.line("", "%s", strings.Join(strings.Fields(fmt.Sprintf(`fp32, bf16 and nf4 are the weights alone; nf4 includes its scales, embeddings and lm_head
		in bf16, and LoRA of rank %d. The other columns are everything on one device, computed in bf16, for %s; training has
		f32 master weights and %s.`, e.rank, e.sample(), e.optim)), " "))
}

// sample is the batch that the estimates are for.
func (e *estimate) sample() string {
	if e.seq > 0 {
		return fmt.Sprintf("batch %d × seq %s", e.batch, grouped(e.seq))
	}
	return fmt.Sprintf("batch %d × the model's context, at most 2,048 tokens", e.batch)
}

// rule is what a common formula says.
type rule struct {
	Formula string `json:"formula"`
	Bytes   int64  `json:"bytes"`
	Wrong   string `json:"wrong"` // what it leaves out
}

// thumb is the common formula for a task.
func thumb(r memoryEstimate, params int64) *rule {
	width, name := int64(2), "2"
	if r.Precision == "fp32" {
		width, name = 4, "4"
	}
	switch r.Task {
	case "infer":
		return &rule{name + " bytes per param", width * params, "the rule leaves out activations, logits and workspace"}
	case "train":
		if width == 4 {
			return &rule{"16 bytes per param (weight 4, gradient 4, Adam 8)", 16 * params, "the rule leaves out activations; gradients that are applied at once need not all be stored"}
		}
		return &rule{"12 bytes per param (weight 2, gradient 2, Adam 8)", 12 * params, "the rule leaves out activations and f32 master weights"}
	case "lora":
		return &rule{"2 · weight + Adam 8 per trained param", (2*width + 8) * r.Trainable, "the rule counts trained params alone, without the frozen weights"}
	}
	return &rule{"3 bytes per param (weight 0.5, gradient 0.5, Adam 2)", 3 * params, "the rule charges gradients and optimizer state to weights that are frozen, and leaves out scales and activations"}
}
