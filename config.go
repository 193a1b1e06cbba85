package spillway

import (
	"fmt"
	"path/filepath"

	"spillway/device"
	"spillway/dtype"
	"spillway/lora"
	"spillway/machine"
	"spillway/optim"
	"spillway/placement"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/rig"
	"spillway/units"
)

// Config says how a wrapped model is run. The zero value runs it on what this
// computer has, as fast as the planner can.
type Config struct {
	// Samples and Seq are those of the batches to come (Seq means nothing to models
	// without positions), and Task is Train ("" counts as that), Infer or Eval: with
	// sizes given Wrap makes the plan for them at once. Whatever else a batch has or is
	// used for is planned for when it comes.
	Task           Task
	BatchSize, Seq int64
	// Micros is into how many micro-batches a batch is cut; 0 lets the planner
	// decide: as few as fit and are fast.
	MicroBatches int
	// Packed: samples hold several documents, told apart by batch part "segments".
	Packed bool
	// Adapters to train beside frozen weights, where a rank is given.
	Adapters lora.Options

	// Precision computed in: F32, or BF16 or F16 with full-precision masters; F16 scales
	// the loss. 0 is F32.
	Precision dtype.Type
	// Pure keeps no full-precision masters beside weights in BF16: updates are rounded
	// up or down at random, by how near each is.
	Pure bool
	// Kept are modules that compute in another type, or are not quantized.
	Exceptions []Exception
	Optimizer  optim.Config // the zero value is AdamW as PyTorch has it
	// Policy compresses what the optimizer keeps later on; the zero value never does.
	StatePolicy optim.Policy
	Schedule    optim.Schedule // of its rate; the zero value is constant
	NoDecay     optim.NoDecay  // params without weight decay
	Clip        float64        // greatest global norm of the gradients; 0 clips nothing
	Seed        uint64         // of dropout, and of fresh weights where Wrap makes them

	// Devices to run on, by the names their drivers know: "cpu:threads=1", "cuda:0".
	// None takes all cards that drivers in the program find, else the processor. On
	// are devices that are open already and stay the caller's.
	Devices []string
	On      []device.Device
	// Machine describes what the devices are part of; the zero value is this computer.
	Machine machine.Machine
	// Folder is where bytes may rest when the host is full; "" uses no disk.
	Disk string

	// MaxMemory is the most to take of each device, like "10GiB", or of devices by
	// number and of the host: "0=10GiB,1=20GiB,cpu=100GiB". "" is all that is usable.
	MaxMemory string
	// MinGPUMemory is what is left free on each device.
	ReservedMemory units.Bytes
	// Strategy is one of Strategies, to be taken whatever is faster; "" leaves it to
	// the planner. One that cannot be is an error.
	Strategy string
	// CheckpointThreshold is the share of a device that may be filled before
	// activations are recomputed, OffloadThreshold the share that may be filled before
	// weights and optimizer state leave the device. 0 lets the planner decide by time.
	// A strategy that decides the same leaves nothing to them.
	CheckpointThreshold, OffloadThreshold float64
	// PrefetchSize is how many streamed blocks may be on a device at once, the one at
	// work included; 0 lets the planner decide.
	Prefetch int
	// PreferDataParallel takes data parallel devices where that fits, whatever is
	// faster. With DataParallelThreshold above 0 they are considered only for models
	// whose weights take less than that share of a device.
	PreferDataParallel    bool
	DataParallelThreshold float64

	// ProfileInterval is after how many passes, of training or not, one is profiled:
	// see Profile. 0 profiles none.
	ProfileInterval int
	// Notice, if not nil, is told in words of what was done otherwise than asked or
	// planned. Explain lists the same.
	Notice func(string)
	// System tells how much host memory is left; the zero value is this computer.
	System rig.System
}

// Strategies that can be asked for.
var Strategies = strategy.Askable()

// folder is where a task's bytes may rest: each has its own, since one disk at a time
// uses a folder; "" for none.
func (c Config) folder(t Task) string {
	if c.Disk == "" {
		return ""
	}
	return filepath.Join(c.Disk, string(t))
}

// check refuses what cannot work, whatever the model.
func (c Config) check() error {
	if c.Strategy != "" {
		if _, err := strategy.Find(c.Strategy); err != nil {
			return err
		}
	}
	switch demands := strategy.Demands(c.Strategy); {
	case demands.Weights == plan.OnDisk && c.Disk == "":
		return fmt.Errorf("strategy %s needs a folder to offload to; name one in Config.Disk", c.Strategy)
	case demands.Weights != "" && c.CheckpointThreshold+c.OffloadThreshold > 0:
		return fmt.Errorf("strategy %s decides what is recomputed or leaves the device, and so do thresholds of %v and %v; keep one", c.Strategy, c.CheckpointThreshold, c.OffloadThreshold)
	case c.BatchSize < 0 || c.Seq < 0 || c.MicroBatches < 0 || c.ProfileInterval < 0 || c.ReservedMemory < 0:
		return fmt.Errorf("samples %d, positions %d, micro-batches %d, profile interval %d, memory left free %v: none can be negative",
			c.BatchSize, c.Seq, c.MicroBatches, c.ProfileInterval, c.ReservedMemory)
	case !(c.DataParallelThreshold >= 0 && c.DataParallelThreshold <= 1):
		return fmt.Errorf("a data parallel threshold of %v; it is a share of a device's memory, from 0 to 1", c.DataParallelThreshold)
	case len(c.Devices) > 0 && len(c.On) > 0:
		return fmt.Errorf("devices are given by name and open already; keep one")
	}
	return nil
}

// options is the configuration as a request for a plan.
func (w *Wrapped) options(task Task, s sizes, micros int) (Options, error) {
	c := w.c
	o := Options{
		Task: task, MicroBatchSize: s.samples / int64(micros), Seq: s.seq, MicroBatches: micros, Packed: c.Packed, Precision: c.Precision, Pure: c.Pure, Exceptions: c.Exceptions,
		Optimizer: c.Optimizer, StatePolicy: c.StatePolicy, compressed: w.compressed, NoDecay: c.NoDecay, Clip: c.Clip > 0, Machine: w.here, On: w.devices, Disk: c.folder(task), System: c.System,
		Constraints: strategy.Demands(c.Strategy),
		Bounds:      planner.Bounds{SaveBelow: c.CheckpointThreshold, StayBelow: c.OffloadThreshold, Prefetch: c.Prefetch},
	}
	if task != Train {
		o.Constraints = o.Constraints.Inference()
	}
	if c.Strategy != "" && o.Constraints.Parallelism == "" {
		o.On = o.On[:1]
	}
	o = o.withDefaults(w.model)
	if err := w.limit(&o); err != nil {
		return o, err
	}
	if way, err := w.replicas(o); way != "" || err != nil {
		o.Bounds.Without = append(o.Bounds.Without, way, planner.ZeRO1) // both have all weights on each
		return o, err
	}
	return o, nil
}

// limit applies the limits on memory.
func (w *Wrapped) limit(o *Options) error {
	here, err := o.Memory()
	if err != nil {
		return err
	}
	if w.c.MaxMemory != "" {
		given, err := placement.ParseMemory(w.c.MaxMemory, here)
		if err != nil {
			return err
		}
		o.MaxMemory = &given
	}
	if w.c.ReservedMemory == 0 {
		return nil
	}
	for _, free := range here.Devices {
		if free <= int64(w.c.ReservedMemory) {
			return fmt.Errorf("%v are to be left free on each device, and one has %v; leave less", w.c.ReservedMemory, units.Bytes(free))
		}
		o.Budget = free - int64(w.c.ReservedMemory)
	}
	return nil
}

// replicas names the way that keeps all weights on each device if the model is too
// large for it.
func (w *Wrapped) replicas(o Options) (planner.Parallelism, error) {
	share := w.c.DataParallelThreshold
	if share == 0 || len(o.On) == 1 {
		return "", nil
	}
	site, err := o.site()
	if err != nil {
		return "", err
	}
	var weights int64
	for _, p := range w.params {
		weights += p.Type.Bytes()
	}
	if limit := share * float64(found(site).Devices[0]); float64(weights) >= limit {
		if w.c.Strategy == string(planner.ZeRO2) {
			return "", fmt.Errorf("strategy zero-2: the weights take %v, the threshold allows %v on each device; raise it or take zero-3", units.Bytes(weights), units.Bytes(limit))
		}
		return planner.ZeRO2, nil
	}
	return "", nil
}
