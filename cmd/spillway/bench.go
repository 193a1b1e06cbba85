package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"spillway/bench"
	"spillway/internal/term"
	"spillway/units"
)

func newBench(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench cpu|gpu|generate",
		Short: "how fast this computer computes, compared with its peak, PyTorch and numpy",
		Long: `bench gpu measures a GPU: forward passes of models whose weights are in host memory,
training steps on the GPU, and how good the plans' forecasts of time and memory were. Sequences
are packed, as train packs them: of one document each, or of many whose lengths fall off
exponentially from the average that the row names. Rows in
which the GPU computes most of the time run for a second before their time counts, because it
lowers its clock under load. The roofline is what the link or the arithmetic alone would
take, at rates measured in the same run: with matmuls at their burst rate, and at their
sustained rate, as in work without pauses. The baselines are PyTorch, accelerate, RamTorch and
Overflow.

bench generate measures generation: spillway bench generate --help.

bench cpu measures the CPU backend: matmuls in float32 and bf16, causal attention, AdamW, and one
training step of a Llama of 52 million params that computes in either, with weights and Adam states in
float32. Each figure is shown as a share of what limits it, measured in the same run: arithmetic
compared with multiply-adds of all cores that never leave the registers, of which CPUs that
multiply pairs of bf16 do twice as many; AdamW compared with a loop that reads and writes the same
memory and computes nothing. A step counts as 6 operations per
param and token, as in PyTorch; its share is that of the operations really computed, which leave
out the embedding.

With --random N either draws N training runs from --seed: architectures, sizes, batches,
precisions, methods, memory limits and lengths of documents. Each is carried out as
spillway train would, and its forecast is printed next to what was measured, the worst
first.

Where the Python named by --python has torch or numpy, they do the same work, in turns with
ours, and the ratio is printed: above 1 ours is faster. The best of all rounds counts on both
sides, since on a shared machine it is the one that was disturbed least.`,
		Example: `  spillway bench cpu
  spillway bench cpu --python ./venv/bin/python --rounds 5
  spillway bench cpu --only matmul          rows with that word only
  spillway bench cpu --device cpu:avx2      as on a CPU without AVX-512
  spillway bench cpu --random 20 --seed 7   are forecasts true here?
  spillway bench generate                   tokens a second
  spillway bench gpu --device cuda:0 --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] != "cpu" && args[0] != "gpu" {
				return usageErrorf("%v; say what to measure: bench cpu, bench gpu or bench generate", args)
			}
			return nil
		},
	}
	cmd.AddCommand(newBenchGenerate(sh))
	asJSON := jsonFlag(cmd)
	var o bench.Options
	f := cmd.Flags()
	random := f.Int("random", 0, "compare forecasts of `N` training runs drawn at random with what is measured, instead of the rows")
	trained := f.Bool("train", false, "of bench gpu: measure training runs of known sizes as train carries them out, and compare their forecasts, instead of the rows; --only picks some")
	seed := f.Uint64("seed", 0, "with --random: draw the runs from `N`; run 3 of a seed is always the same, --only 3 measures it alone")
	f.StringVar(&o.Python, "python", "python3", "run the baselines with `PROGRAM`")
	f.StringVar(&o.Baselines, "baselines", "bench/baselines", "find the programs of the baselines in `DIR`")
	f.IntVar(&o.Rounds, "rounds", 3, "let ours and the baselines take `N` turns each")
	f.StringVar(&o.Device, "device", "cuda:0", "measure the device `NAME`: cuda:1 with bench gpu; with bench cpu, cpu:avx2 for kernels of AVX2 alone,\nalso of the baselines")
	f.StringVar(&o.Only, "only", "", "measure rows that have one of `WORDS`, separated by commas, in their names (default: all)")
	f.StringVar(&o.Rates, "rates", "", "of bench gpu: compare with the rates in `FILE`, which bench gpu --json wrote, instead of measuring them")
	f.StringVar(&o.Timeline, "timeline", "", "of bench gpu: write when each instruction of the last row ran to `FILE`, which Perfetto and chrome://tracing show; with --random, a folder for those of all runs, measured and forecast")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.Rounds < 1 {
			return usageErrorf("--rounds %d; one at least", o.Rounds)
		}
		for _, name := range []string{"python", "baselines", "rounds", "rates"} {
			if (*random > 0 || *trained) && f.Changed(name) {
				return usageErrorf("--%s has no effect with --random and --train, which measure ours alone; leave it out", name)
			}
		}
		switch {
		case *trained && (args[0] == "cpu" || *random > 0):
			return usageErrorf("--train is of bench gpu, without --random")
		case *random < 0:
			return usageErrorf("--random %d; a number of runs", *random)
		case *random == 0 && f.Changed("seed"):
			return usageErrorf("--seed draws the runs of --random N: say how many")
		case args[0] == "cpu" && (f.Changed("rates") || f.Changed("timeline") && *random == 0):
			return usageErrorf("--rates and --timeline are of bench gpu; bench cpu measures the CPU")
		case args[0] == "cpu" && f.Changed("device") && !bench.IsCPU(o.Device):
			return usageErrorf("--device %s, and bench cpu measures the CPU: cpu:avx2 is the CPU with kernels of AVX2", o.Device)
		case args[0] == "cpu" && !f.Changed("device"):
			o.Device = "cpu"
		}
		r, err := runBench(cmd.Context(), sh, args[0], *trained, *random, *seed, o)
		if err != nil {
			return err
		}
		if *asJSON {
			return written(cmd.Context(), writeJSON(sh.out, r))
		}
		var p page
		switch r := r.(type) {
		case *bench.CPUReport:
			writeCPU(&p, r)
		case *bench.GPUReport:
			writeGPU(&p, r)
		case *bench.RandomReport:
			writeRandom(&p, r)
		}
		_, err = io.WriteString(sh.out, p.String())
		return written(cmd.Context(), err)
	}
	return cmd
}

// runBench measures the CPU or a GPU, and reports on the way what comes next.
func runBench(ctx context.Context, sh shell, what string, trained bool, random int, seed uint64, o bench.Options) (any, error) {
	line := term.NewLine(sh.err)
	defer line.Done()
	o.Rig, o.Report = sh.rigOptions(line), line.Print
	switch {
	case trained:
		return bench.Trained(ctx, o)
	case random > 0:
		return bench.Random(ctx, random, seed, o)
	case what == "gpu":
		return bench.GPU(ctx, o)
	}
	return bench.CPU(ctx, o)
}

// writeRandom shows forecasts next to what was measured.
func writeRandom(p *page, r *bench.RandomReport) {
	from := ""
	if r.Drawn {
		from = fmt.Sprintf(" drawn from seed %d", r.Seed)
	}
	p.line("bench "+r.Device, "%d training runs%s, the worst forecast first", len(r.Results), from)
	p.WriteString("\n")
	var t term.Table
	t.Row("", "forecast", "measured", "off by", "predicted", "allocated", "driver, predicted", "strategy")
	for _, row := range r.Results {
		driver := ""
		if row.Driver > 0 {
			driver = fmt.Sprintf("%v, %v", units.Bytes(row.Driver), units.Bytes(row.DriverPredicted))
		}
		t.Row(row.Name, units.Seconds(row.Forecast), units.Seconds(row.Seconds), fmt.Sprintf("%+.1f%%", 100*row.Off), units.Bytes(row.Predicted).String(), units.Bytes(row.Measured).String(), driver, row.Strategy)
	}
	t.Write(p) // a page takes everything
	p.WriteString("\n")
	for _, row := range r.Results {
		if d := row.Differences(); d != "" {
			number, _, _ := strings.Cut(row.Name, ":")
			p.line(number, "measured against forecast: %s", d)
		}
		if c := row.Carriers(); c != "" {
			number, _, _ := strings.Cut(row.Name, ":")
			p.line(number, "ops against forecast, one by one: %s", c)
		}
	}
	p.line("forecasts", "time off by %s at the median, in nine of ten runs by at most %s, at worst by %s", percent(r.TimeOff), percent(r.TimeOffMost), percent(r.TimeOffWorst))
	if len(r.Notes) > 0 {
		p.list("notes", r.Notes)
	}
}

// writeCPU shows the figures of a CPU.
func writeCPU(p *page, r *bench.CPUReport) {
	p.line("bench cpu", "%s, %s kernels, %d threads", r.CPU, r.Kernels, r.Threads)
	p.line("peak", "arithmetic %v, memory %v", units.Flops(r.Peak*giga), units.Rate(r.Memory*giga))
	p.WriteString("\n")
	var t term.Table
	head := []string{"", "ours", "of peak"}
	for _, name := range bench.BaselineNames {
		head = append(head, name, "ours/theirs")
	}
	t.Row(head...)
	for _, i := range r.Results {
		row := []string{i.Name, fmt.Sprintf("%.4g %s", i.Ours, i.Unit), percent(i.Share)}
		for _, name := range bench.BaselineNames {
			if _, measured := i.Theirs[name]; !measured {
				row = append(row, "", "")
				continue
			}
			row = append(row, fmt.Sprintf("%.4g", i.Theirs[name]), fmt.Sprintf("%.2f×", math.Round(100*i.Ratio[name])/100))
		}
		t.Row(row...)
	}
	t.Write(p) // a page takes everything
	p.WriteString("\n")
	writeNotes(p, r.Baselines, r.Notes)
}

const giga = 1e9

// writeGPU shows the figures of a GPU.
func writeGPU(p *page, r *bench.GPUReport) {
	p.line("bench gpu", "%s", r.GPU)
	p.line("measured", "link %v in, %v out, %v both; bf16 %v, sustained %v; memory %v; launch overhead %v", r.Rates.Link.In, r.Rates.Link.Out, r.Rates.Link.BothWays(),
		r.Rates.Compute.BF16, r.Rates.Sustained.BF16, r.Rates.Bandwidth, r.Rates.Launch)
	p.WriteString("\n")
	var t term.Table
	t.Row("", "ours", "best", "of roofline", "limited by", "useful", "forecast", "arena", "driver, predicted", "baselines")
	for _, row := range r.Results {
		t.Row(row.Name, units.Seconds(row.Seconds), units.Seconds(row.Best), rooflineShares(row), row.Sustained.By, units.Flops(row.Useful).String(), units.Seconds(row.Forecast), units.Bytes(row.Arena).String(),
			fmt.Sprintf("%v, %v", units.Bytes(row.Driver), units.Bytes(row.DriverPredicted)), baselineTimes(row))
	}
	t.Write(p) // a page takes everything
	p.WriteString("\n")
	for _, k := range r.Kernels {
		p.line(k.Name, "%s, %v, %s of a copy within the GPU", units.Seconds(k.Seconds), k.Rate, percent(k.Share))
	}
	for _, row := range r.Host {
		p.line(row.Name, "%.2f G params/s with %d threads%s", row.Ours/giga, row.Threads, ratios(row.Ratio))
	}
	if len(r.MemoryOff) == 2 {
		p.line("forecasts", "time off by %s at the median, in nine of ten rows by at most %s; memory by %+.1f%% to %+.1f%%", percent(r.TimeOff), percent(r.TimeOffMost), 100*r.MemoryOff[0], 100*r.MemoryOff[1])
	}
	if len(r.Bits) > 0 {
		p.list("bits", r.Bits)
	}
	writeNotes(p, r.Baselines, r.Notes)
}

func writeNotes(p *page, baselines, notes []string) {
	p.list("baselines", orNone(baselines))
	if len(notes) > 0 {
		p.list("notes", notes)
	}
}

// rooflineShares are the shares of both rooflines: one where they are equal.
func rooflineShares(g *bench.GPURow) string {
	if g.Burst == g.Sustained {
		return percent(g.Burst.Share)
	}
	return fmt.Sprintf("%s, sustained %s", percent(g.Burst.Share), percent(g.Sustained.Share))
}

// baselineTimes are the times of the baselines, how many times faster ours is, and their
// memory.
func baselineTimes(g *bench.GPURow) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(g.Theirs)) {
		text := fmt.Sprintf("%s %s, %.2f×", name, units.Seconds(g.Theirs[name]), g.Ratio[name])
		if bytes := g.TheirBytes[name]; bytes > 0 {
			text += fmt.Sprintf(", %v", units.Bytes(bytes))
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

// ratios say how many times faster than each of PyTorch's implementations ours is.
func ratios(by map[string]float64) (text string) {
	for _, name := range slices.Sorted(maps.Keys(by)) {
		text += fmt.Sprintf(", %.2f× PyTorch's %s", by[name], name)
	}
	return text
}
