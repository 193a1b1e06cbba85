package spillway

import (
	"errors"
	"fmt"

	"spillway/device"
	"spillway/dtype"
	"spillway/executor"
	"spillway/graph"
	"spillway/lora"
	"spillway/machine"
	"spillway/nn"
	"spillway/optim"
	"spillway/placement"
	"spillway/plan"
	"spillway/planner"
	"spillway/rig"
	"spillway/spec"
)

// Task is what a model is to be used for.
type Task string

// The tasks.
const (
	Infer Task = "infer" // logits
	Eval  Task = "eval"  // the loss, without dropout
	Train Task = "train" // all weights
	LoRA  Task = "lora"  // adapters beside frozen weights
	QLoRA Task = "qlora" // the same, the frozen weights in 4 bits
)

// Tasks lists them.
var Tasks = []Task{Infer, Eval, Train, LoRA, QLoRA}

// graph is the task a model is traced for.
func (t Task) graph() (graph.Task, error) {
	switch t {
	case Infer:
		return graph.Infer, nil
	case Eval:
		return graph.Eval, nil
	case Train, LoRA, QLoRA:
		return graph.Train, nil
	}
	return "", fmt.Errorf("there is no task %q; there are %v", t, Tasks)
}

// PlanOptions say what is to be done, with what, and where.
type Options struct {
	Task           Task
	MicroBatchSize int64 // samples in a micro-batch; 0 counts as 1
	Seq            int64 // positions per sample; 0 is the model's context, at most 2048
	MicroBatches   int   // micro-batches per iteration; 0 counts as 1
	// Packed: samples hold several documents.
	Packed bool
	// Precision computed in: F32, or BF16 or F16 with full-precision masters; F16 scales
	// the loss. 0 is F32.
	Precision dtype.Type
	// Pure keeps no full-precision masters beside weights in BF16: updates are rounded
	// up or down at random, by how near each is.
	Pure bool
	// Kept are modules that compute in another type, or are not quantized.
	Exceptions []Exception

	Optimizer optim.Config // of training tasks; the zero value is AdamW as PyTorch has it
	// Policy compresses what the optimizer keeps later on; zero: never.
	StatePolicy optim.Policy
	NoDecay     optim.NoDecay // params without weight decay
	Clip        bool          // gradients are clipped, or their norm is wanted
	// Adapters of LoRA and QLoRA; the zero value has rank 8 on all products. Infer
	// and Eval have adapters where a rank is given.
	Adapters lora.Options
	// Adapter is values to begin from instead of fresh ones; where Adapters has no rank
	// its options count too. It must stay open while the job starts.
	Adapter *lora.Adapter

	Machine machine.Machine
	Device  string // of the machine; "" is its first
	// On are the devices the job will run on, alike; none plans for what is not here.
	On []device.Device
	// System tells how much host memory is left when a job starts; the zero value is
	// this computer.
	System rig.System
	// Choose insists on a choice instead of the fastest one.
	Choose func(slabs, blocks int) planner.Choice
	// Insist leaves the planner no choice about some things, Bounds narrow its search.
	Constraints planner.Constraints
	Bounds      planner.Bounds
	// DeviceMap says where blocks rest; nil leaves that to the planner.
	DeviceMap *placement.Map
	// MaxMemory is the most to take of each device and of the host; nil is all that
	// is usable.
	MaxMemory *placement.Memory
	// Budget is the most to take of the device; 0 is all that is usable.
	Budget int64
	// Disk is a folder that bytes may rest in when device and host are full; "" is
	// none. A training keeps every completed iteration there, so that Train goes on
	// from it after the process was killed.
	Disk string
	// DiskBudget is the most to take of the disk; 0 is all that is free. What is
	// trained counts twice.
	DiskBudget int64

	compressed bool // the policy has begun

	scratch bool // Disk is a folder of the job's own, removed at its end
}

const usualSeq = 2048

func (o Options) withDefaults(m *Model) Options {
	o.MicroBatchSize = max(o.MicroBatchSize, 1)
	o.MicroBatches = max(o.MicroBatches, 1)
	if o.Seq == 0 {
		o.Seq = usualSeq
		if m.Info.Context > 0 {
			o.Seq = min(m.Info.Context, usualSeq)
		}
	}
	if o.Precision == dtype.Invalid {
		o.Precision = dtype.F32
	}
	if o.Optimizer.Name == "" {
		o.Optimizer, _ = optim.Parse("adamw") // its own defaults are sound
	}
	if o.Adapters.Rank == 0 && o.Adapter != nil {
		base := o.Adapters.Base
		o.Adapters = o.Adapter.Options
		o.Adapters.Base = base
	}
	o.compressed = o.compressed || o.StatePolicy.Begin().Active
	if o.Adapters.Rank == 0 && o.adapters() {
		o.Adapters.Rank, o.Adapters.Alpha, o.Adapters.Targets = 8, 16, []string{lora.AllLinear}
	}
	if o.Task == QLoRA && o.Adapters.Base == dtype.Invalid {
		o.Adapters.Base = m.quantized()
	}
	if o.Device == "" && len(o.Machine.Devices) > 0 {
		o.Device = o.Machine.Devices[0].Name
	}
	return o
}

// adapters says whether the model has adapters.
func (o Options) adapters() bool {
	return o.Task == LoRA || o.Task == QLoRA || o.Task != Train && o.Adapters.Rank > 0
}

// Job is a model with a plan.
type Job struct {
	Model   *Model
	Plan    *plan.Plan
	Spec    *spec.Model
	Options Options
	// Notices are about what was asked for and means nothing here.
	Notices []string

	requested requests
}

// Plan makes the fastest plan that fits. Where none does, the error is a
// *planner.FitError with changes that do fit.
func (m *Model) Plan(o Options) (*Job, error) {
	o = o.withDefaults(m).furthest()
	r, err := m.request(o)
	if err != nil {
		return nil, err
	}
	notices, err := o.place(&r)
	if err != nil {
		return nil, err
	}
	j := &Job{Model: m, Options: o, Notices: notices}
	if j.Plan, j.Spec, err = o.earlier(r); err == nil && j.Plan == nil {
		if j.Plan, j.Spec, err = o.ask(r); err == nil {
			err = j.checkDisk()
		}
	}
	if err != nil {
		return nil, err
	}
	return j, nil
}

// request is what the planner is asked for options that are complete.
func (m *Model) request(o Options) (r planner.Request, err error) {
	task, err := o.Task.graph()
	if err != nil {
		return r, err
	}
	if o.Pure && o.Precision != dtype.BF16 {
		return r, fmt.Errorf("weights in %v without masters: only bf16 can do without; plan with Precision BF16, or with masters", o.Precision)
	}
	net, err := m.network(o)
	if err != nil {
		return r, err
	}
	r = planner.Request{MicroBatchSize: o.MicroBatchSize, Seq: o.Seq, Trace: func(rows, seq int64) (*spec.Model, error) {
		return spec.Trace(m.Name, m.Info.Type, net, graph.Config{MicroBatchSize: rows, Seq: seq, DType: o.Precision, Task: task, Packed: o.Packed})
	}}
	if r.Site, err = o.site(); err != nil {
		return r, err
	}
	r.Site.Disk.Budget += m.inPlaceBytes(o)
	r.Goal, err = o.goal()
	return r, err
}

// ask asks the planner for the fastest plan, or for the one insisted on.
func (o Options) ask(r planner.Request) (*plan.Plan, *spec.Model, error) {
	if o.Choose == nil {
		return r.Plan()
	}
	s, err := r.Trace(r.MicroBatchSize, r.Seq)
	if err != nil {
		return nil, nil, err
	}
	p, err := planner.Build(s, r.Goal, r.Site, o.Choose)
	return p, s, err
}

// network builds the model, with adapters where the task wants them.
func (m *Model) network(o Options) (nn.Model, error) {
	net, err := m.build()
	if err == nil && o.adapters() {
		_, err = lora.Attach(net, o.Adapters)
	}
	if err != nil {
		return nil, err
	}
	return net, o.keep(net)
}

// site is the device to plan for.
func (o Options) site() (planner.Site, error) {
	site, err := planner.SiteOf(o.Machine, o.Device, o.Precision)
	if err != nil {
		return site, err
	}
	for _, dev := range o.On {
		info := dev.Info()
		site.Kernels, site.Alignment, site.Devices = dev, max(site.Alignment, info.Alignment), len(o.On)
		if info.Limit > 0 {
			site.Budget = min(site.Budget, info.Limit)
		}
	}
	if o.Budget > 0 {
		site.Budget = min(site.Budget, o.Budget)
	}
	if site.Disk, err = o.disk(); err != nil {
		return site, err
	}
	return o.limited(site)
}

func (o Options) goal() (planner.Goal, error) {
	g := planner.Goal{MicroBatches: o.MicroBatches, Constraints: o.Constraints, Bounds: o.Bounds}
	if o.Task == Infer || o.Task == Eval {
		return g, nil
	}
	var err error
	if g.Optimizer, err = o.optimizer(); err != nil {
		return g, err
	}
	if g.Decay, err = o.NoDecay.Decays(); err != nil {
		return g, err
	}
	if tier := o.stateTier(); tier != "" && g.Constraints.State == "" {
		g.Constraints.State = tier
	}
	g.Master = o.Precision != dtype.F32 && !o.Pure
	return g, nil
}

// Start allocates everything the plan needs on its devices and loads the weights. The
// caller closes the executor; the devices stay the caller's.
func (j *Job) Start() (*executor.Executor, error) {
	from, err := j.Weights()
	if err != nil {
		return nil, err
	}
	e, _, err := j.allocate(false)
	if err != nil {
		return nil, err
	}
	return e, j.load(e, from, false)
}

// StartEmpty is Start without the weights, which the caller writes: for measuring, where
// which numbers they are does not matter.
func (j *Job) StartEmpty() (*executor.Executor, error) {
	e, _, err := j.allocate(false)
	return e, err
}

// allocate makes an executor without weights. With keep, a disk of the plan keeps what
// is trained from iteration to iteration, and an earlier state there is gone on from.
func (j *Job) allocate(keep bool) (*executor.Executor, *durable, error) {
	on, disk, err := j.devices(keep)
	if err != nil {
		return nil, nil, err
	}
	last := none
	if err = j.checkHost(on); err == nil && disk != nil && keep {
		last, err = j.recover(disk)
	}
	if err != nil {
		return nil, nil, errors.Join(err, j.closeOpened(on, disk))
	}
	e, err := executor.New(j.Plan, on)
	if err != nil {
		return nil, nil, errors.Join(err, j.closeOpened(on, disk))
	}
	if at := hostAt(j.Plan); at >= 0 {
		e.CloseWith(on[at])
	}
	var kept *durable
	if err = e.WriteConstants(); err == nil && keep && disk != nil {
		kept, err = newDurable(disk, e, last)
	}
	if disk != nil {
		e.CloseWith(diskCloser{disk, kept, j.Options.Disk, j.Options.scratch})
	}
	if err != nil {
		return nil, nil, errors.Join(err, e.Close())
	}
	return e, kept, nil
}
