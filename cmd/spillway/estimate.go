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
	"spillway/machine"
	"spillway/optim"
	"spillway/recipe"
	"spillway/units"
)

func newEstimate(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "estimate [MODEL...]",
		Short: "the memory a model needs, and what fits a machine",
		Long: `Shows how much memory inference, training and fine-tuning need on a device that holds
everything: weights, gradients, master weights, optimizer state, activations and workspace
at their peak. The numbers come from plans with every buffer in its place, not from a
formula. plan says what smaller devices can do.

Without MODEL it is a table of all presets. With --machine it says what that machine does
instead: with a model, how each task would run there and how fast; without, the largest
published model for each task. --size is for a model of which nothing else is known.

` + modelHelp,
		Example: `  spillway estimate                              every preset
  spillway estimate llama-3-8b --seq-len 4096
  spillway estimate qwen2.5-7b mistral-7b --rule-of-thumb --json
  spillway estimate --machine rtx4060,host:32GiB              what fits this computer?
  spillway estimate --size 40GB --machine rtx4090,host:64GiB  what becomes of a model of 40 GB there?`,
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
	recipe.Average(settings, &o.Average)
	bind(cmd, settings)
	completeModels(cmd)
	f.BoolVar(&o.RulesOfThumb, "rule-of-thumb", false, "show what the common formulas say, and where they are wrong")
	where, size := "", ""
	f.StringVar(&where, "machine", "", "say what fits the machine that `DESC` describes, as for plan: rtx4060,host:32GiB")
	f.StringVar(&size, "size", "", "estimate a model of which only the `SIZE` of its weights in 16 bits is known, such as 40GB: Llama's shape is assumed")
	complete(cmd, "machine", machine.GPUNames())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case o.RulesOfThumb && len(args) == 0 && size == "":
			return usageErrorf("--rule-of-thumb has no effect on the table of all presets: name models, or leave it out")
		case o.RulesOfThumb && where != "":
			return usageErrorf("--rule-of-thumb is about memory with everything on one device: it has no effect with --machine")
		case o.MicroBatchSize < 1 || o.Seq < 0 || o.Rank < 1:
			return usageErrorf("--batch-size %d, --seq-len %d, --lora-rank %d: none may be below 1", o.MicroBatchSize, o.Seq, o.Rank)
		}
		models, err := openModels(args, size)
		if err != nil {
			return err
		}
		defer func() {
			for _, m := range models {
				m.Close() // opened for reading
			}
		}()
		if where != "" {
			return estimateFits(cmd.Context(), sh, models, where, o, *asJSON)
		}
		list, err := estimateModels(models, o)
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(sh.out, map[string]any{"models": list})
		}
		var p page
		if len(models) == 0 {
			writeReference(&p, list, o)
		}
		for i, m := range list[:len(models)] {
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

// openModels opens the models that are named, and one that is known by its size.
func openModels(names []string, size string) (list []*spillway.Model, err error) {
	for _, name := range names {
		m, err := spillway.Open(name)
		if err != nil {
			return list, err
		}
		list = append(list, m)
	}
	if size == "" {
		return list, nil
	}
	n, err := units.ParseBytes(size)
	if err != nil {
		return list, usageErrorf("--size %s: %w", size, err)
	}
	m, err := spillway.OfSize(n)
	if err != nil {
		return list, usageErrorf("--size %s: %w", size, err)
	}
	m.Name = "model of " + size
	return append(list, m), nil
}

// estimateModels estimates some models, or every preset.
func estimateModels(models []*spillway.Model, o inspect.MemoryOptions) (list []inspect.Memory, err error) {
	if len(models) == 0 {
		if models, err = openModels(arch.Presets(), ""); err != nil {
			return nil, err
		}
	}
	for _, m := range models {
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
