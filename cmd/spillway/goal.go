package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"spillway"
	"spillway/dtype"
	"spillway/lora"
	"spillway/machine"
	"spillway/optim"
	"spillway/rig"
)

// goal is what the user wants done with the model, as flags say it.
type goal struct {
	task         string
	batch, seq   int64
	accumulate   int
	precision    string
	optimizer    string
	policy       string // on states
	clip         float64
	lora         adapterFlags
	f32Modules   []string // modules
	notQuantized []string
	auto         bool     // the batch is found by planning
	tasks        []string // to choose from

	optim   optim.Config
	states  optim.Policy
	adapted lora.Options // of lora and qlora
}

// taskFlags adds the flags of a goal that is one of some tasks.
func taskFlags(cmd *cobra.Command, tasks ...string) *goal {
	g := &goal{tasks: tasks}
	cmd.Flags().StringVar(&g.task, "task", "train", "what to do, `"+strings.Join(tasks, "|")+"`:\ntrain trains all weights, lora adapters beside frozen weights, qlora the same beside 4-bit ones")
	g.flags(cmd)
	return g
}

// methodFlags adds the flags of a goal that is to train, in one of the methods.
func methodFlags(cmd *cobra.Command) *goal {
	g := &goal{task: "train", tasks: []string{"train", "lora", "qlora"}}
	cmd.Flags().Var(method{&g.task}, "method", "train `full|lora|qlora`:\nfull trains all weights, lora adapters beside frozen weights, qlora the same beside 4-bit ones")
	cmd.Flags().Var(method{&g.task}, "task", "the same, as plan calls it")
	cmd.Flags().Lookup("task").Hidden = true
	g.flags(cmd)
	return g
}

// method is a way to train as people call it; of all weights the task is called train.
type method struct{ task *string }

// String is the method's name.
func (m method) String() string {
	if m.task == nil || *m.task == "train" {
		return "full"
	}
	return *m.task
}

// Set takes a method's name.
func (m method) Set(name string) error {
	task, ok := map[string]string{"full": "train", "train": "train", "lora": "lora", "qlora": "qlora"}[name]
	if !ok {
		return fmt.Errorf("there is no such method; there are full, lora and qlora")
	}
	*m.task = task
	return nil
}

// Type is for help texts.
func (m method) Type() string { return "string" }

// flags adds those that all goals have.
func (g *goal) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	g.batch = 1
	f.Var(batchSize{&g.batch, &g.auto}, "batch", "pass `N` samples through the model at once, a micro-batch; auto takes the number with most tokens per second")
	f.Int64Var(&g.seq, "seq", 0, "`N` tokens per sample (default: what the model was made for, at most 2048)")
	f.IntVar(&g.accumulate, "accumulate", 1, "add up the gradients of `N` micro-batches in an iteration")
	f.StringVar(&g.precision, "precision", "", "compute in `fp32|bf16|pure-bf16|fp16`; bf16 and fp16 keep fp32 master weights, pure-bf16 rounds updates at random instead,\nfp16 scales the loss too (default: bf16 on a GPU, fp32 on a CPU)")
	f.StringSliceVar(&g.f32Modules, "keep-f32", nil, "`MODULES` that are held and computed in f32 whatever the precision: names or their last parts\nsuch as lm_head,norm, or re:PATTERN of whole names")
	f.StringSliceVar(&g.notQuantized, "no-quantize", nil, "`MODULES` that qlora leaves in the precision computed in, named in the same way")
	optimizerFlag(cmd, &g.optimizer)
	f.StringVar(&g.policy, "state-policy", "", "compress what the optimizer keeps once training has found its way: `"+strings.Join(optim.Presets(), "|")+"`,\nwith options if wanted: auto:warmup=50,patience=5,codecs=exp_avg:8bit (default: never)")
	f.Float64Var(&g.clip, "clip", 0, "clip gradients to a global norm of `X` (default: no clipping)")
	g.lora.add(cmd)
}

// optimizerFlag adds --optimizer, which is also called --optim as other trainers have it.
func optimizerFlag(cmd *cobra.Command, to *string) {
	f := cmd.Flags()
	f.StringVar(to, "optimizer", "adamw", "`"+strings.Join(optim.Names(), "|")+"`, with _8bit, _bf16 or _fp16 for what it keeps (paged_ is understood: a plan\nalways may rest it on the host), and options if wanted: adamw_8bit:beta2=0.95,states_of=embeddings:f32")
	alias := *f.Lookup("optimizer")
	alias.Name, alias.Hidden = "optim", true
	f.AddFlag(&alias)
}

// check refuses flags that make no sense together.
func (g *goal) check() (err error) {
	switch {
	case !slices.Contains(g.tasks, g.task):
		return usageErrorf("--task %q; it is one of %s", g.task, strings.Join(g.tasks, ", "))
	case g.batch < 1 || g.accumulate < 1 || g.seq < 0:
		return usageErrorf("--batch %d, --accumulate %d, --seq %d: none may be below 1", g.batch, g.accumulate, g.seq)
	case !(g.clip >= 0):
		return usageErrorf("--clip %v; it is a norm above 0, or 0 for no clipping", g.clip)
	case !slices.Contains([]string{"", "fp32", "bf16", "pure-bf16", "fp16"}, g.precision):
		return usageErrorf("--precision %q; it is fp32, bf16, pure-bf16 or fp16", g.precision)
	}
	if g.optim, err = optim.Parse(g.optimizer); err != nil {
		return usageError{err}
	}
	if g.states, err = optim.ParsePolicy(g.policy); err != nil {
		return usageError{err}
	}
	if g.adapters() {
		g.adapted, err = g.lora.options(g.task == "qlora")
	}
	return err
}

// options is the goal for the library, on a device of a machine. Samples to train on
// are packed: they may hold several documents.
func (g *goal) options(m machine.Machine, d machine.Device) spillway.Options {
	o := spillway.Options{
		Task: spillway.Task(g.task), MicroBatchSize: g.batch, Seq: g.seq, MicroBatches: g.accumulate, Precision: dtype.F32,
		Optimizer: g.optim, StatePolicy: g.states, NoDecay: optim.DefaultNoDecay(), Clip: g.clip, Packed: g.task != "infer", Machine: m, Device: d.Name,
	}
	switch g.precision {
	case "fp16":
		o.Precision = dtype.F16
	case "bf16", "pure-bf16":
		o.Precision, o.Pure = dtype.BF16, g.precision == "pure-bf16"
	case "":
		if d.Kind == machine.GPU {
			o.Precision = dtype.BF16
		}
	}
	if g.adapters() {
		o.Adapters = g.adapted
	}
	o.Exceptions = g.kept()
	return o
}

// kept are the modules that are exceptions.
func (g *goal) kept() (list []spillway.Exception) {
	if len(g.notQuantized) > 0 {
		list = append(list, spillway.Exception{Modules: g.notQuantized})
	}
	if len(g.f32Modules) > 0 {
		list = append(list, spillway.Exception{Modules: g.f32Modules, Type: dtype.F32})
	}
	return list
}

func (g *goal) adapters() bool { return g.task == "lora" || g.task == "qlora" }

// goalReport is the goal as JSON.
type goalReport struct {
	Task         string   `json:"task"`
	Rows         int64    `json:"batch"`
	Seq          int64    `json:"seq"`
	Micros       int      `json:"accumulate"`
	Precision    string   `json:"precision"`
	Master       bool     `json:"master"`
	F32Modules   []string `json:"kept_f32,omitempty"`      // modules
	NotQuantized []string `json:"not_quantized,omitempty"` // modules
	Optimizer    string   `json:"optimizer,omitempty"`
	Clip         float64  `json:"clip,omitempty"`
	Rank         int64    `json:"rank,omitempty"`
	Adapters     []string `json:"adapters,omitempty"` // what is unusual about them
	Base         string   `json:"base,omitempty"`     // format of frozen weights
}

// describeGoal is the goal with everything filled in.
func describeGoal(o spillway.Options, g *goal) goalReport {
	r := goalReport{Task: g.task, Rows: o.MicroBatchSize, Seq: o.Seq, Micros: o.MicroBatches, Precision: o.Precision.String(), F32Modules: g.f32Modules, NotQuantized: g.notQuantized}
	if o.Task != spillway.Infer {
		r.Master, r.Optimizer, r.Clip = o.Precision != dtype.F32 && !o.Pure, o.Optimizer.String(), g.clip
	}
	if g.adapters() {
		r.Rank, r.Adapters = o.Adapters.Rank, adapterTraits(o.Adapters)
		if g.task == "qlora" {
			r.Base = formatName(o.Adapters.Base)
		}
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
	adapters := strings.Join(append([]string{fmt.Sprintf("train adapters of rank %d", r.Rank)}, r.Adapters...), ", ")
	what := map[string]string{"infer": "inference", "train": "train all weights", "lora": adapters, "qlora": adapters + " beside " + r.Base + " weights"}[r.Task]
	text := fmt.Sprintf("%s, %d × %s tokens", what, r.Rows, grouped(r.Seq))
	if r.Micros > 1 {
		text += fmt.Sprintf(" × %d accumulated", r.Micros)
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
	if r.Clip > 0 {
		text += fmt.Sprintf(", gradients clipped to %v", r.Clip)
	}
	return text
}

// siteChoice is where the plan is to run, as flags say it.
type siteChoice struct{ machine, device, disk string }

func siteFlags(cmd *cobra.Command) *siteChoice {
	s := &siteChoice{}
	cmd.Flags().StringVar(&s.machine, "machine", "", "plan for the machine that `DESC` describes, as above (default: this computer)")
	cmd.Flags().StringVar(&s.device, "device", "", deviceHelp+"\nwith --machine: one of its devices, such as gpu0 (default: its first)")
	diskFlag(cmd, &s.disk)
	return s
}

// open gives the machine that is described, with no device open, or this computer with its
// devices open, and the device to plan for. The caller closes the rig.
func (s *siteChoice) open(sh shell) (*rig.Rig, machine.Device, error) {
	if s.machine == "" {
		here, err := sh.open(s.device, diskOptions(s.disk))
		if err != nil {
			return here, machine.Device{}, err
		}
		return here, here.Machine.Devices[0], nil
	}
	if s.disk != "" {
		return &rig.Rig{}, machine.Device{}, usageErrorf("--disk is a folder of this computer; describe another machine's disk in --machine, such as disk:2TiB")
	}
	m, d, err := s.pick()
	return &rig.Rig{Machine: m}, d, err
}

// pick reads the machine and picks the device.
func (s *siteChoice) pick() (machine.Machine, machine.Device, error) {
	m, err := machine.Parse(s.machine)
	if err != nil {
		return m, machine.Device{}, usageError{err}
	}
	name := s.device
	if name == "" {
		name = m.Devices[0].Name
	}
	d, ok := m.Device(name)
	if !ok {
		return m, d, usageErrorf("--device %q; the machine has %s", name, strings.Join(deviceNames(m), ", "))
	}
	return m, d, nil
}

func deviceNames(m machine.Machine) []string {
	names := make([]string, len(m.Devices))
	for i, d := range m.Devices {
		names[i] = d.Name
	}
	return names
}
