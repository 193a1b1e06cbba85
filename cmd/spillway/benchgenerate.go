package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"spillway/bench"
	"spillway/dtype"
	"spillway/internal/term"
	"spillway/internal/vfs"
	"spillway/units"
)

func newBenchGenerate(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "generate [MODEL...]",
		Short: "how fast models compute prompts and add tokens",
		Long: `Measures generation as generate --prompts does it: prefill, which computes prompts, and decode,
which adds a token to each of --streams texts in a step. MODEL is a preset or llama-1.1b, whose weights
are made at random in memory, so that nothing is downloaded, or a model folder. Without one it
is llama-3-8b on a GPU and llama-50m on a CPU.

A text has --context tokens in the end, of which --new-tokens are added one at a time. Rates are
tokens of all texts in a second, of the median step. Next to each are the plan's forecast, made
before, and the share of the roofline: what reading weights and cache once, the arithmetic, or the
link alone would take, at rates measured in the same run. Predicted memory is that of the plan,
and what the driver of a GPU was predicted to count.

With --random N models, lengths, numbers of texts, types and memory limits are drawn from --seed, and
forecasts are printed next to what was measured, the worst first.`,
		Example: `  spillway bench generate
  spillway bench generate llama-3.2-1b --streams 1,4 --context 128,256
  spillway bench generate ./model --streams 1,2 --context 32 --json
  spillway bench generate llama-3-8b --streams 1,16,128 --context 1024 --device cuda:0
  spillway bench generate llama-3-70b --quantization q4_k_m --max-memory 24GiB   larger than a GPU
  spillway bench generate --random 20 --seed 7   are forecasts true here?`,
	}
	asJSON := jsonFlag(cmd)
	var o bench.GenerationOptions
	var precision, cache, host, compress string
	f := cmd.Flags()
	random := f.Int("random", 0, "compare forecasts of `N` runs drawn at random with what is measured, instead of models")
	seed := f.Uint64("seed", 0, "with --random: draw the runs from `N`; run 3 of a seed is always the same, --only 3 measures it alone")
	f.StringVar(&o.Only, "only", "", "with --random: measure runs `NUMBERS` alone, separated by commas (default: all)")
	f.Int64SliceVar(&o.Streams, "streams", nil, "generate so many texts at once, one after the other `NUMBERS` separated by commas (default: 1,16,128 on a GPU, 1,2,8 on a CPU)")
	f.Int64SliceVar(&o.Contexts, "context", nil, "of so many tokens each, `NUMBERS` separated by commas (default: 1024 on a GPU, 256 on a CPU)")
	f.Int64Var(&o.NewTokens, "new-tokens", 0, "add the last `N` of them one at a time (default: 32 on a GPU, 16 on a CPU)")
	f.StringVar(&precision, "dtype", "", "compute in `f32|bf16|f16` (default: bf16, or the type of the weights in a folder)")
	f.StringVar(&cache, "cache-type", "", "store keys and values as `f32|bf16|f16|int8|fp8|int4`, or both apart: bf16:int8 (default: as --dtype)")
	f.StringVar(&o.Quantization, "quantization", "", "make the weights of linear layers in `FORMAT`: "+strings.Join(bench.Quantizations(), ", ")+" (default: as --dtype)")
	f.StringVar(&o.MaxMemory, "max-memory", "", "use at most `SIZE` of the device, such as 2GiB (default: all)")
	f.StringVar(&host, "max-host-memory", "", "use at most `SIZE` of host memory (default: all that is free)")
	f.StringVar(&o.Disk, "disk", "", "read weights from disk that fit in no memory, those made in memory from copies in the folder `DIR` (default: no disk)")
	f.StringVar(&o.Device, "device", "", "run on `NAME`: cpu, cuda:0 (default: the first GPU, else the CPU)")
	bindCompression(cmd, &compress)
	complete(cmd, "quantization", bench.Quantizations())
	complete(cmd, "dtype", []string{"f32", "bf16", "f16"})
	complete(cmd, "cache-type", []string{"f32", "bf16", "f16", "int8", "fp8", "int4"})
	completeModels(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		o.Models = args
		switch {
		case *random < 0:
			return usageErrorf("--random %d; a number of runs", *random)
		case *random == 0 && (f.Changed("seed") || f.Changed("only")):
			return usageErrorf("--seed and --only are of the runs of --random N: say how many")
		}
		for _, name := range []string{"streams", "context", "new-tokens", "dtype", "cache-type", "quantization", "compress-weights", "max-memory", "max-host-memory", "disk"} {
			if *random > 0 && (f.Changed(name) || len(args) > 0) {
				return usageErrorf("--%s and MODEL have no effect with --random, which draws them; leave them out", name)
			}
		}
		for _, n := range append(append([]int64{}, o.Streams...), o.Contexts...) {
			if n < 1 {
				return usageErrorf("--streams and --context are numbers above 0, not %d", n)
			}
		}
		if o.NewTokens < 0 || f.Changed("new-tokens") && o.NewTokens < 2 {
			return usageErrorf("--new-tokens %d; at least 2, since the first comes with the prompt", o.NewTokens)
		}
		if precision != "" {
			if o.Precision, err = dtype.ParsePlain(precision); err != nil {
				return usageErrorf("--dtype %q; it is f32, bf16 or f16", precision)
			}
		}
		if o.Key, o.Value, err = cacheTypes(cache); err != nil {
			return err
		}
		if o.CompressWeights, err = compression(compress); err != nil {
			return err
		}
		if o.Quantization != "" && !slices.Contains(bench.Quantizations(), o.Quantization) {
			return usageErrorf("--quantization %q; it is %s", o.Quantization, strings.Join(bench.Quantizations(), ", "))
		}
		if host != "" {
			if o.MaxHost, err = units.ParseBytes(host); err != nil {
				return usageErrorf("--max-host-memory: %v", err)
			}
		}
		line := term.NewLine(sh.err)
		defer line.Done()
		o.Rig, o.Report = sh.rigOptions(line), line.Print
		o.Progress = func(what string, done, total int64) { line.Show(func() string { return partDone(what, done, total) }) }
		o.Rig.Stop = cmd.Context().Err
		o.Rig.Disk = vfs.ExistingParent(vfs.OS, o.Disk)
		o.Rig.MeasureDisk = o.Rig.Measure && o.Disk != ""
		var r *bench.GenerationReport
		if *random > 0 {
			r, err = bench.RandomGeneration(cmd.Context(), *random, *seed, o)
		} else {
			r, err = bench.Generation(cmd.Context(), o)
		}
		if err != nil {
			return err
		}
		if *asJSON {
			return written(cmd.Context(), writeJSON(sh.out, r))
		}
		var p page
		writeGenerationBench(&p, r)
		_, err = io.WriteString(sh.out, p.String())
		return written(cmd.Context(), err)
	}
	return cmd
}

// writeGenerationBench shows how fast texts were made, and how good the forecasts were.
func writeGenerationBench(p *page, r *bench.GenerationReport) {
	p.line("bench", "%s: memory is read at %v, matmuls in bf16 at %v", r.Device, r.Bandwidth(), r.Rates.Compute.Rate(dtype.BF16))
	if len(r.Results) == 0 {
		p.list("notes", r.Notes)
		return
	}
	p.WriteString("\n")
	var t term.Table
	t.Row("", "prefill, tokens/s", "forecast", "of roofline", "decode, tokens/s", "forecast", "of roofline", "memory, predicted", "strategy")
	for _, row := range r.Results {
		memory := fmt.Sprintf("%v, %v", units.Bytes(row.Measured), units.Bytes(row.Predicted))
		if row.Driver > 0 {
			memory = fmt.Sprintf("%v, %v", units.Bytes(row.Driver), units.Bytes(row.DriverPredicted))
		}
		strategy := row.Strategy
		if row.Captured {
			strategy += ", as a graph"
		}
		t.Row(row.Name, rate(row.Prefill.Rate), rate(row.Prefill.Forecast), phaseShare(row.Prefill), rate(row.Decode.Rate), rate(row.Decode.Forecast), phaseShare(row.Decode), memory, strategy)
	}
	t.Write(p) // a page takes everything
	p.WriteString("\n")
	for _, row := range r.Results {
		if d := row.Division; d != nil && row.Overlap != nil && row.Overlap.Seconds > 0 {
			o := row.Overlap
			p.line("each step", "%s: %d blocks on the device, %d streamed (%v), %d by the CPU (%v); in %s the link worked %s, the CPU %s, both at once %s", row.Name, d.Device, d.Stream, units.Bytes(d.StreamBytes),
				d.CPU, units.Bytes(d.CPUBytes), units.Seconds(o.Seconds), percent(o.Link/o.Seconds), percent(o.CPU/o.Seconds), percent(o.Both/o.Seconds))
		}
	}
	for _, row := range r.Results {
		if f := row.Formula; f != nil {
			p.line("formula", "%s", formulaText(row))
		}
	}
	p.line("forecasts", "prefill off by %s at the median, in nine of ten rows by at most %s; decode by %s and %s", percent(r.PrefillOff[0]), percent(r.PrefillOff[1]), percent(r.DecodeOff[0]), percent(r.DecodeOff[1]))
	if len(r.Notes) > 0 {
		p.list("notes", r.Notes)
	}
}

// phaseShare is the share of the roofline and what limits it: "63% memory".
func phaseShare(p bench.GenerationPhase) string {
	if p.Share == 0 {
		return "above memory"
	}
	return strings.TrimSpace(percent(p.Share) + " " + p.Bound)
}

// formulaText says what a step of a limited CPU takes at least, and what that follows from.
func formulaText(row *bench.GenerationRow) string {
	f := row.Formula
	text := fmt.Sprintf("%s: a step copies %v and reads %v; at once %v and %v, alone %v and %v", row.Name, units.Bytes(f.Streamed), units.Bytes(f.ReadBytes), f.CopyWith, f.ReadWith, f.Copy, f.Read)
	if f.DiskBytes > 0 {
		text += fmt.Sprintf("; the disk reads %v at %v meanwhile", units.Bytes(f.DiskBytes), f.Disk)
	}
	return fmt.Sprintf("%s: %s tokens/s at most, measured are %s of that", text, rate(float64(row.Streams)/f.Seconds), percent(f.Share))
}
