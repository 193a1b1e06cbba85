package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"spillway/device/cpu/kernel"
	"spillway/internal/term"
	"spillway/machine"
	"spillway/rig"
	"spillway/units"
)

func newBench(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench cpu|gpu",
		Short: "how fast this computer computes, as a share of its peak and beside PyTorch and numpy",
		Long: `bench gpu measures a card: forward passes of 8 billion params that rest in host memory,
training iterations on the card, and how well plans foretold their time and memory. Rows
in which the card computes most of the time run for a second before their time counts: it
lowers its clock under load. The bound is what the link or the arithmetic, measured in the
same run, would take alone, with products as fast as in a moment and, lasting, as in work
without pauses. Peers are PyTorch, accelerate, RamTorch and Overflow.

bench cpu measures the CPU backend: float32 matrix products, causal attention, AdamW, and one
training iteration of a Llama of 52 million params. Each figure is shown as a share of
what binds it, measured in the same run: arithmetic against multiply-adds of all cores that
never leave the registers; AdamW against the highest memory traffic. An iteration is counted
as 6 operations per param and token, as PyTorch's is; its share is that of the operations
really computed, which leave out the table of embeddings.

Where the Python named by --python has torch or numpy, the same work is measured there,
in turns with ours, and the ratio is printed: above 1 ours is faster. The best of all
rounds counts on both sides, since on a shared machine it is the least disturbed one.`,
		Example: `  spillway bench cpu
  spillway bench cpu --python ./venv/bin/python --rounds 5
  spillway bench cpu --only product         rows with that word only
  spillway bench gpu --device cuda:0 --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] != "cpu" && args[0] != "gpu" {
				return usageErrorf("%v; say what to measure: bench cpu or bench gpu", args)
			}
			return nil
		},
	}
	asJSON := jsonFlag(cmd)
	var o BenchOptions
	cmd.Flags().StringVar(&o.Python, "python", "python3", "run the baselines with `PROGRAM`")
	cmd.Flags().StringVar(&o.Baselines, "baselines", "bench/peers", "find the programs of the baselines in `DIR`")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 3, "let ours and theirs take `N` turns each")
	cmd.Flags().StringVar(&o.Device, "device", "cuda:0", "of bench gpu: measure the card `NAME`")
	cmd.Flags().StringVar(&o.Only, "only", "", "measure rows that have one of `WORDS`, separated by commas, in their names (default: all)")
	cmd.Flags().StringVar(&o.Rates, "rates", "", "of bench gpu: judge by the rates in `FILE`, which bench gpu --json wrote, instead of measuring them")
	cmd.Flags().StringVar(&o.Timeline, "timeline", "", "of bench gpu: write when each instruction of the last row ran to `FILE`, which Perfetto and chrome://tracing show")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.Rounds < 1 {
			return usageErrorf("--rounds %d; one at least", o.Rounds)
		}
		r, err := measureBench(cmd.Context(), sh, args[0], o)
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(sh.out, r)
		}
		return r.write(sh.out)
	}
	return cmd
}

// benchResult is what any bench gives.
type benchResult interface{ write(io.Writer) error }

func measureBench(ctx context.Context, sh shell, what string, o BenchOptions) (benchResult, error) {
	if what == "gpu" {
		return benchGPU(ctx, sh, o)
	}
	return benchCPU(ctx, sh, o)
}

// benchOptions are the flags of bench.
type BenchOptions struct {
	Python, Baselines string
	Rounds            int
	Only              string // words of the rows to measure, separated by commas
	Device            string // of bench gpu
	Rates             string // of bench gpu: a file of an earlier run
	Timeline          string // of bench gpu: a file for the steps of the last row
}

// benchReport is the object of bench --json.
type CPUReport struct {
	CPU       string    `json:"cpu"`
	Kernels   string    `json:"kernels"` // the path in use: avx512, avx2 or portable
	Threads   int       `json:"threads"`
	Peak      float64   `json:"peak_gflops"`     // multiply-adds of all threads in registers
	Memory    float64   `json:"memory_gb_per_s"` // the highest memory traffic, of copies or AdamW
	Baselines []string  `json:"peers"`           // that answered, with their versions
	Results   []*CPURow `json:"results"`
	Notes     []string  `json:"notes"`
}

// benchItem is one thing measured.
type CPURow struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Ours  float64 `json:"ours"`
	Share float64 `json:"share_of_peak"`
	// Theirs are the figures of the peers in the same unit; Ratio is ours over theirs.
	Theirs map[string]float64 `json:"theirs"`
	Ratio  map[string]float64 `json:"ratio"`

	measure func() (float64, error) // our figure, once
	memory  bool                    // bound by memory, not by arithmetic
	done    float64                 // how much of what the figure counts is really computed; 0 for all
}

func benchCPU(ctx context.Context, sh shell, o BenchOptions) (r *CPUReport, err error) {
	line := term.NewLine(sh.err)
	defer line.Done()
	line.Print("measuring copies and products")
	at, err := sh.open("cpu", rig.Options{Calibrate: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.Close()) }()
	here := at.Machine
	b := &bench{dev: at.Devices[0], here: here}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.prepare(o); err != nil {
		return nil, err
	}
	r = &CPUReport{CPU: here.Host.CPU, Kernels: kernel.Name(), Threads: runtime.GOMAXPROCS(0), Results: b.items, Baselines: []string{}, Notes: []string{}}
	theirs := newBaselines(o)
	for round := range o.Rounds {
		r.Peak = max(r.Peak, registerPeak())
		for _, item := range b.items {
			line.Print(fmt.Sprintf("round %d of %d: %s", round+1, o.Rounds, item.Name))
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := item.once(); err != nil {
				return nil, fmt.Errorf("measuring %s: %w", item.Name, err)
			}
		}
		theirs.once(ctx, r, func(name string) { line.Print(fmt.Sprintf("round %d of %d: %s", round+1, o.Rounds, name)) })
	}
	r.conclude(here)
	return r, nil
}

// once measures our side again and keeps the best.
func (i *CPURow) once() error {
	figure, err := i.measure()
	i.Ours = max(i.Ours, figure)
	return err
}

// keep keeps the best figure of a peer.
func (i *CPURow) keepBest(peer string, figure float64) {
	if i.Theirs == nil {
		i.Theirs = map[string]float64{}
	}
	i.Theirs[peer] = max(i.Theirs[peer], figure)
}

// conclude turns figures into shares and ratios.
func (r *CPUReport) conclude(here machine.Machine) {
	r.Memory = 2 * float64(here.Host.Copy) / giga
	for _, i := range r.Results {
		if i.memory {
			r.Memory = max(r.Memory, i.Ours, slices.Max(append(slices.Collect(maps.Values(i.Theirs)), 0)))
		}
	}
	for _, i := range r.Results {
		i.Share = i.Ours * cmp.Or(i.done, 1) / r.peakOf(i)
		i.Ratio = map[string]float64{}
		for peer, theirs := range i.Theirs {
			i.Ratio[peer] = i.Ours / theirs
		}
	}
}

// peakOf is the rate that binds an item.
func (r *CPUReport) peakOf(i *CPURow) float64 {
	if i.memory {
		return r.Memory
	}
	return r.Peak
}

const giga = 1e9

// write shows the figures to people.
func (r *CPUReport) write(w io.Writer) error {
	var p page
	p.line("bench cpu", "%s, %s kernels, %d threads", r.CPU, r.Kernels, r.Threads)
	p.line("peak", "arithmetic %v, memory %v", units.Flops(r.Peak*giga), units.Rate(r.Memory*giga))
	p.WriteString("\n")
	var t term.Table
	head := []string{"", "ours", "of peak"}
	for _, name := range baselineNames {
		head = append(head, name, "ours/theirs")
	}
	t.Row(head...)
	for _, i := range r.Results {
		row := []string{i.Name, fmt.Sprintf("%.4g %s", i.Ours, i.Unit), percent(i.Share)}
		for _, name := range baselineNames {
			if _, measured := i.Theirs[name]; !measured {
				row = append(row, "", "")
				continue
			}
			row = append(row, fmt.Sprintf("%.4g", i.Theirs[name]), fmt.Sprintf("%.2f×", math.Round(100*i.Ratio[name])/100))
		}
		t.Row(row...)
	}
	t.Write(&p) // a page takes everything
	p.WriteString("\n")
	p.list("peers", orNone(r.Baselines))
	if len(r.Notes) > 0 {
		p.list("notes", r.Notes)
	}
	_, err := io.WriteString(w, p.String())
	return err
}
