package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"spillway"
	"spillway/arch"
	"spillway/inspect"
	"spillway/internal/term"
	"spillway/optim"
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
	var o inspect.MemoryOptions
	f := cmd.Flags()
	f.Int64Var(&o.MicroBatchSize, "batch-size", 1, "pass `N` sequences through the model at once")
	f.Int64Var(&o.Seq, "seq-len", 0, "`N` tokens per sequence (default: what the model was made for, at most 2048)")
	f.Int64Var(&o.Rank, "lora-rank", 16, "rank `N` of the adapters of lora and qlora")
	o.Optimizer, _ = optim.Parse("adamw") // a name it knows
	settings := flag.NewFlagSet("estimate", flag.ContinueOnError)
	recipe.Optimizer(settings, &o.Optimizer)
	bind(cmd, settings)
	completeModels(cmd)
	f.BoolVar(&o.RulesOfThumb, "rule-of-thumb", false, "show what the common formulas say, and where they are wrong")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if o.RulesOfThumb && len(args) == 0 {
			return usageErrorf("--rule-of-thumb has no effect on the table of all presets: name models, or leave it out")
		}
		list, err := estimateModels(args, o)
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(sh.out, map[string]any{"models": list})
		}
		var p page
		if len(args) == 0 {
			writeReference(&p, list, o)
		}
		for i, m := range list[:len(args)] {
			if i > 0 {
				p.WriteString("\n")
			}
			writeEstimate(&p, m, o)
		}
		_, err = io.WriteString(sh.out, p.String())
		return err
	}
	return cmd
}

// estimateModels estimates some models, or every preset.
func estimateModels(names []string, o inspect.MemoryOptions) (list []inspect.Memory, err error) {
	if o.MicroBatchSize < 1 || o.Seq < 0 || o.Rank < 1 {
		return nil, usageErrorf("--batch-size %d, --seq-len %d, --lora-rank %d: none may be below 1", o.MicroBatchSize, o.Seq, o.Rank)
	}
	if len(names) == 0 {
		names = arch.Presets()
	}
	for _, name := range names {
		m, err := spillway.Open(name)
		if err != nil {
			return nil, err
		}
		defer m.Close() // opened for reading
		e, err := inspect.EstimateMemory(m, o)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// writeEstimate is a table of the tasks of a model.
func writeEstimate(p *page, m inspect.Memory, o inspect.MemoryOptions) {
	p.line(m.Name, "%s params, batch %d × seq %s, %s, everything on one device", units.Count(m.Params), m.Batch, grouped(m.Seq), o.Optimizer)
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
	if !o.RulesOfThumb {
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
func writeReference(p *page, list []inspect.Memory, o inspect.MemoryOptions) {
	slices.SortStableFunc(list, func(a, b inspect.Memory) int { return cmp.Compare(a.Params, b.Params) })
	var t term.Table
	t.Row("model", "params", "fp32", "bf16", "nf4", "infer", "train", "lora", "qlora")
	for _, m := range list {
		at := map[string]inspect.MemoryRow{}
		for _, r := range m.Rows {
			at[r.Task+" "+r.Precision] = r
		}
		t.Row(m.Name, units.Count(m.Params), bytesText(at["infer fp32"].Weights), bytesText(at["infer bf16"].Weights), bytesText(at["qlora bf16"].Weights),
			bytesText(at["infer bf16"].Total), bytesText(at["train bf16"].Total), bytesText(at["lora bf16"].Total), bytesText(at["qlora bf16"].Total))
	}
	t.Write(p) // a page takes everything
	sample := fmt.Sprintf("batch %d × the model's context, at most 2,048 tokens", o.MicroBatchSize)
	if o.Seq > 0 {
		sample = fmt.Sprintf("batch %d × seq %s", o.MicroBatchSize, grouped(o.Seq))
	}
	p.WriteString("\n")
	p.line("", "%s", strings.Join(strings.Fields(fmt.Sprintf(`fp32, bf16 and nf4 are the weights alone; nf4 includes its scales, embeddings and lm_head
		in bf16, and LoRA of rank %d. The other columns are everything on one device, computed in bf16, for %s; training has
		f32 master weights and %s.`, o.Rank, sample, o.Optimizer)), " "))
}
