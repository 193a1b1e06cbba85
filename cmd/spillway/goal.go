package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"spillway/dtype"
	"spillway/graph"
	"spillway/lora"
	"spillway/machine"
	"spillway/optim"
	"spillway/planner"
	"spillway/spec"
)

// goal is what the user wants done with the model, as flags say it.
type goal struct {
	task       string
	batch, seq int64
	accumulate int
	precision  string
	optimizer  string
	clip       float64
	rank       int64

	compute dtype.Type
	optim   optim.Config
}

// The tasks.
var tasks = []string{"infer", "train", "lora", "qlora"}

// usualSeq is the number of positions where neither the user nor the model says less.
const usualSeq = 2048

func goalFlags(cmd *cobra.Command) *goal {
	g := &goal{}
	f := cmd.Flags()
	f.StringVar(&g.task, "task", "train", "what to do: `infer|train|lora|qlora`; train trains all weights, lora adapters beside\nfrozen weights, qlora the same beside 4-bit ones")
	f.Int64Var(&g.batch, "batch", 1, "`samples` of a micro-batch: what passes the model at once")
	f.Int64Var(&g.seq, "seq", 0, "`positions` per sample (default: what the model was made for, at most 2048)")
	f.IntVar(&g.accumulate, "accumulate", 1, "`micro-batches` per iteration, whose gradients are added")
	f.StringVar(&g.precision, "precision", "", "to compute in: `fp32|bf16`; bf16 keeps fp32 master weights (default: bf16 on a\nGPU, fp32 on a CPU)")
	f.StringVar(&g.optimizer, "optimizer", "adamw", "`adamw|adam|sgd`, with options if wanted: adamw:beta2=0.95,weight_decay=0.1")
	f.Float64Var(&g.clip, "clip", 0, "clip gradients to this global `norm` (default: no clipping)")
	f.Int64Var(&g.rank, "rank", 16, "`rank` of the adapters of lora and qlora")
	return g
}

// check refuses flags that make no sense together.
func (g *goal) check() (err error) {
	switch {
	case !slices.Contains(tasks, g.task):
		return misused("--task %q; it is one of %s", g.task, strings.Join(tasks, ", "))
	case g.batch < 1 || g.accumulate < 1 || g.seq < 0 || g.rank < 1:
		return misused("--batch %d, --accumulate %d, --seq %d, --rank %d: none may be below 1", g.batch, g.accumulate, g.seq, g.rank)
	case !(g.clip >= 0):
		return misused("--clip %v; it is a norm above 0, or 0 for no clipping", g.clip)
	case !slices.Contains([]string{"", "fp32", "bf16"}, g.precision):
		return misused("--precision %q; it is fp32 or bf16", g.precision)
	}
	if g.optim, err = optim.Parse(g.optimizer); err != nil {
		return usageError{err}
	}
	return nil
}

// resolve fills in what depends on the device.
func (g *goal) resolve(kind machine.Kind) {
	g.compute = dtype.F32
	if g.precision == "bf16" || g.precision == "" && kind == machine.GPU {
		g.compute = dtype.BF16
	}
}

// complete fills in what depends on the model, and attaches adapters to it.
func (g *goal) complete(m *model) error {
	if g.seq == 0 {
		g.seq = usualSeq
		if m.info.Context > 0 {
			g.seq = min(g.seq, m.info.Context)
		}
	}
	if g.task != "lora" && g.task != "qlora" {
		return nil
	}
	o := lora.Options{Targets: []string{lora.AllLinear}, Rank: g.rank, Alpha: 2 * float64(g.rank)}
	if g.task == "qlora" {
		o.Base = dtype.NF4
	}
	_, err := lora.Attach(m.nn, o)
	return err
}

func (g *goal) trains() bool { return g.task != "infer" }

// request is the goal for the planner.
func (g *goal) request(m *model, site planner.Site) (planner.Request, error) {
	task := graph.Infer
	r := planner.Request{Rows: g.batch, Seq: g.seq, Site: site, Goal: planner.Goal{Micros: g.accumulate}}
	if g.trains() {
		task = graph.Train
		if err := g.train(&r.Goal); err != nil {
			return r, err
		}
	}
	r.Trace = func(rows, seq int64) (*spec.Model, error) {
		return spec.Trace(m.name, m.info.Type, m.nn, graph.Config{Rows: rows, Seq: seq, DType: g.compute, Task: task})
	}
	return r, nil
}

func (g *goal) train(to *planner.Goal) error {
	rule, attr, err := g.optim.Op()
	if err != nil {
		return err
	}
	to.Decay, err = optim.UsualNoDecay().Decays()
	to.Master = g.compute != dtype.F32
	to.Optimizer = &planner.Optimizer{Rule: rule, Attr: attr, Moments: g.optim.States(), Clip: g.clip > 0}
	return err
}

// goalReport is the goal as JSON.
type goalReport struct {
	Task      string  `json:"task"`
	Rows      int64   `json:"batch"`
	Seq       int64   `json:"seq"`
	Micros    int     `json:"accumulate"`
	Precision string  `json:"precision"`
	Master    bool    `json:"master"`
	Optimizer string  `json:"optimizer,omitempty"`
	Clip      float64 `json:"clip,omitempty"`
	Rank      int64   `json:"rank,omitempty"`
}

func (g *goal) report() goalReport {
	r := goalReport{Task: g.task, Rows: g.batch, Seq: g.seq, Micros: g.accumulate, Precision: g.compute.String()}
	if g.trains() {
		r.Master, r.Optimizer, r.Clip = g.compute != dtype.F32, g.optim.String(), g.clip
	}
	if g.task == "lora" || g.task == "qlora" {
		r.Rank = g.rank
	}
	return r
}

// step is what the forecast is about.
func (r goalReport) step() string {
	if r.Task == "infer" {
		return "pass"
	}
	return "iteration"
}

// String says the goal in a line: "train all weights, 1 × 4096 tokens × 8
// accumulated, bf16 with f32 master weights, adamw".
func (r goalReport) String() string {
	what := map[string]string{
		"infer": "inference", "train": "train all weights",
		"lora":  fmt.Sprintf("train adapters of rank %d", r.Rank),
		"qlora": fmt.Sprintf("train adapters of rank %d beside 4-bit weights", r.Rank),
	}[r.Task]
	text := fmt.Sprintf("%s, %d × %s tokens", what, r.Rows, grouped(r.Seq))
	if r.Micros > 1 {
		text += fmt.Sprintf(" × %d accumulated", r.Micros)
	}
	text += ", " + r.Precision
	if r.Master {
		text += " with f32 master weights"
	}
	if r.Optimizer != "" {
		text += ", " + r.Optimizer
	}
	if r.Clip > 0 {
		text += fmt.Sprintf(", gradients clipped to %v", r.Clip)
	}
	return text
}

// siteChoice is where the plan is to run, as flags say it.
type siteChoice struct{ machine, device string }

func siteFlags(cmd *cobra.Command) *siteChoice {
	s := &siteChoice{}
	cmd.Flags().StringVar(&s.machine, "machine", "", "`description` of the machine, as above (default: this computer)")
	cmd.Flags().StringVar(&s.device, "device", "", "`name` of the device to run on: gpu0, cpu0 (default: the first)")
	return s
}

// site looks at the machine and picks the device.
func (s *siteChoice) site(sh shell, g *goal) (machine.Machine, planner.Site, error) {
	if err := g.check(); err != nil {
		return machine.Machine{}, planner.Site{}, err
	}
	m, err := s.find(sh)
	if err != nil {
		return m, planner.Site{}, err
	}
	name := s.device
	if name == "" {
		name = m.Devices[0].Name
	}
	d, ok := m.Device(name)
	if !ok {
		return m, planner.Site{}, misused("--device %q; the machine has %s", name, strings.Join(deviceNames(m), ", "))
	}
	g.resolve(d.Kind)
	site, err := planner.SiteOf(m, name, g.compute)
	return m, site, err
}

func (s *siteChoice) find(sh shell) (machine.Machine, error) {
	if s.machine == "" {
		return sh.probe(machine.Options{})
	}
	m, err := machine.Parse(s.machine)
	if err != nil {
		return m, usageError{err}
	}
	return m, nil
}

func deviceNames(m machine.Machine) []string {
	names := make([]string, len(m.Devices))
	for i, d := range m.Devices {
		names[i] = d.Name
	}
	return names
}
