package run

import (
	"fmt"
	"math"
	"reflect"

	"spillway/device"
	"spillway/dtype"
	"spillway/graph"
	"spillway/lora"
	"spillway/machine"
	"spillway/optim"
	"spillway/placement"
	"spillway/plan"
	"spillway/planner/strategy"
	"spillway/rig"
	"spillway/units"
)

// Task is what a model is to be used for.
type Task string

// The tasks.
const (
	Infer    Task = "infer"    // logits
	Generate Task = "generate" // logits of next tokens, over a cache of keys and values
	Eval     Task = "eval"     // the loss, without dropout
	Train    Task = "train"    // all weights
	LoRA     Task = "lora"     // adapters next to frozen weights
	QLoRA    Task = "qlora"    // the same, with the frozen weights in 4 bits
)

// Tasks lists them.
var Tasks = []Task{Infer, Generate, Eval, Train, LoRA, QLoRA}

// graph is the task a model is traced for.
func (t Task) graph() (graph.Task, error) {
	switch t {
	case Infer:
		return graph.Infer, nil
	case Generate:
		return graph.Generate, nil
	case Eval:
		return graph.Eval, nil
	case Train, LoRA, QLoRA:
		return graph.Train, nil
	}
	return "", fmt.Errorf("there is no task %q; there are %v", t, Tasks)
}

// Trains says whether weights change.
func (t Task) Trains() bool { return t != Infer && t != Generate && t != Eval }

// Options are all settings of a run: what is to be done, on what, and what its plan must
// satisfy. Every entrance takes them, so a new setting is a field here, or in
// strategy.Constraints or strategy.Bounds, and nowhere else. What settings mean to the
// planner is below: site has the hardware, goal the work.
type Options struct {
	Task Task
	// BatchSize is how many sequences an optimizer step works on, MicroBatchSize how many
	// pass through the model at once, MicroBatches how many such passes there are, on all
	// devices together. One follows from the other two. With BatchSize alone the planner
	// cuts the batch and divides it over the devices as is fastest. With none of them, all
	// are 1.
	BatchSize, MicroBatchSize int64
	MicroBatches              int
	// GradientAccumulation is MicroBatches by device, as other programs count them: where it
	// is given, MicroBatches is GradientAccumulation times the devices there are.
	GradientAccumulation int
	// CanonicalSums: the gradient of every micro-batch is computed alone, and they are added in
	// the order of the batch, so that no bit of the result depends on memory, on what a plan
	// decides or on how many devices there are. It takes some more time. Where only a batch size is
	// given, the size of micro-batches follows from it and the sequence length, instead of from
	// what is fastest here.
	CanonicalSums bool
	Seq           int64 // positions per sequence; 0 is the model's context, at most 2048
	// Packed: sequences hold several documents; the batch tensor "segments" says which
	// position belongs to which.
	Packed bool
	// Document is how many tokens the document has that a position of a packed sequence is
	// in, on average: attention takes less time over many short ones. 0: sequences are one
	// document. Nothing but the forecast depends on it.
	Document int64
	// AllLogits: the task Infer gives the logits of every position. Else a language model gives
	// those of one position of each sequence, which the batch tensor "outputs" names: position t
	// of sequence b as b·Seq+t.
	AllLogits bool
	// Generation is about the cache and the steps of the task Generate.
	Generation Generation

	// Precision computed in: F32, or BF16 or F16 with master weights in f32; F16 scales
	// the loss. 0 is F32.
	Precision dtype.Type
	// Pure trains weights in BF16 without master weights: updates are rounded up or down
	// at random, by how near each is.
	Pure bool
	// Exceptions are modules that compute in another type, or are not quantized.
	Exceptions []Exception

	// Evaluates gives the plan of a task that trains a phase that evaluates between two
	// iterations, in the memory that training has.
	Evaluates   bool
	Optimizer   optim.Config  // of tasks that train; the zero value is AdamW with PyTorch's defaults
	StatePolicy optim.Policy  // when optimizer states are compressed; the zero value never does
	NoDecay     optim.NoDecay // params without weight decay
	// Groups are params that are trained with hyper-parameters of their own.
	Groups []optim.Group
	// Freeze names params that are not trained, by words or expressions as those of NoDecay.
	Freeze []string
	// Average is the decay of a running average of the weights (EMA), such as 0.999; 0 has none. It
	// is stored with the optimizer states.
	Average float64
	// Centralize has the mean over all dimensions but the first taken off the gradients of matrices and of larger
	// tensors, before they are clipped.
	Centralize bool
	// Held: an iteration adds to gradients that stay, and a loop of one's own updates with them.
	Held bool
	// StateTypes, if not nil, is asked for the type of each state of each param; Invalid leaves it as the
	// optimizer says.
	StateTypes func(param, state string) dtype.Type
	// Outputs: the loss is no part of the model but computed by the loop, from outputs that it is given.
	Outputs bool
	// Clip is the greatest global norm of the gradients; 0 clips nothing. Infinity clips
	// nothing either, and has the norm computed and reported.
	Clip float64
	// Adapters of LoRA and QLoRA; the zero value has rank 8 on all linear layers. Infer
	// and Eval have adapters where a rank is given, and Infer and Generate hold weights as Base where
	// that is given.
	Adapters lora.Options
	// Adapter is values to begin from instead of random ones; where Adapters has no rank,
	// its options count too. It must stay open while the run starts.
	Adapter *lora.Adapter

	Machine machine.Machine
	Device  string // of the machine; "" is its first
	// On are the open devices to run on, all alike; none plans for what is not here.
	On []device.Device
	// System says how much host memory is left when a run starts; the zero value asks
	// this computer.
	System rig.System
	// MaxMemory is the most to take of each device, such as "10GiB", or of devices by
	// number and of the host: "0=10GiB,1=20GiB,cpu=100GiB". "" is all that is usable. Of a
	// GPU it is what the driver counts for the program, context and libraries included.
	MaxMemory string
	// Budget is the most that arenas take of each device, in bytes; 0 is all that is usable.
	Budget int64
	// ReservedMemory is left free on each device.
	ReservedMemory units.Bytes
	// Disk is a folder for bytes that fit neither device nor host; "" is none. A training run
	// commits every iteration there, and goes on from it after it was killed.
	Disk string
	// DiskBudget is the most to take of the disk, in bytes; 0 is all that is free. What is
	// trained counts twice.
	DiskBudget int64

	// Strategy is the name of one of package strategy, to be taken whatever is faster; "" leaves the
	// choice to the planner. One that is not possible is an error.
	Strategy string
	// Constraints leave the planner no choice about some things, Bounds narrow its search.
	Constraints strategy.Constraints
	Bounds      strategy.Bounds
	// PreferDataParallel takes ZeRO-2 where it fits, whatever is faster.
	PreferDataParallel bool
	// DataParallelThreshold above 0 considers ZeRO-1 and ZeRO-2, which have all weights
	// on each device, only for weights that take less than this share of a device.
	DataParallelThreshold float64
	// DeviceMap says where blocks are stored; nil leaves that to the planner.
	DeviceMap *placement.Map
	// Choose makes every choice by itself, without a search.
	Choose func(slabs, blocks int) strategy.Choice
	// Watch hears of all that is tried while a plan is looked for, see planner.Goal; an error ends that.
	Watch func(tried string) error

	// CompressWeights: frozen linear weights in bf16 are held in 12 bits each, exactly, by a CPU that infers or generates, and
	// where it is On next to a GPU that they stream to.
	CompressWeights Compression

	layers     optim.Layers // of the model's params
	compressed bool         // the state policy has compressed the states
	decoded    bool         // weights in the types of GGUF files are held as plain numbers, see Plan
	// interleaved weights are held as a CPU multiplies by them fastest, see Plan.
	interleaved bool
	// compressedWeights names those of them that are held in 12 bits, see Compression.
	compressedWeights map[string]bool
	left              *placement.Memory // what another run leaves; nil is everything
	tries             bool              // it is asked whether a plan fits, and nothing else is planned where none does
	refuses           bool              // nothing else is planned where nothing fits
	scratch           bool              // Disk is a folder of the run's own, removed at its end
	context           int64             // bytes of a GPU that an earlier plan took beyond what was expected
}

// Exception is modules that compute and are stored in a type of their own, whatever
// Precision is and whatever the frozen weights are quantized to. Values are cast where
// they enter and leave such a module; a weight in f32 needs no master weight.
type Exception struct {
	// Modules are names, whole or their last parts ("lm_head", "norm"), or regular
	// expressions of whole names behind "re:".
	Modules []string
	// Type is F32, or the type of Precision, which only keeps them from being quantized:
	// Invalid stands for it.
	Type dtype.Type
}

// UsualSeq is how many positions a sequence has where nobody says: the model's context, at
// most 2048.
func (m *Model) UsualSeq() int64 {
	const most = 2048
	if m.Info.Context > 0 {
		return min(m.Info.Context, most)
	}
	return most
}

// withDefaults fills in what was left out.
func (o Options) withDefaults(m *Model) (Options, error) {
	if o.Precision == dtype.Invalid {
		o.Precision = dtype.F32
	}
	if err := o.Generation.check(o); err != nil {
		return o, err
	}
	if o.Task == Generate {
		o.Generation = o.Generation.withDefaults(m, o)
		o.Seq = o.Generation.Chunk
	}
	if o.Seq == 0 {
		o.Seq = m.UsualSeq()
	}
	if o.Optimizer.Name == "" {
		o.Optimizer, _ = optim.Parse("adamw") // its own defaults are valid
	}
	if o.Adapters.Rank == 0 && o.Adapter != nil {
		base := o.Adapters.Base
		o.Adapters = o.Adapter.Options
		o.Adapters.Base = base
	}
	if o.Adapters.Rank == 0 && o.adapts() {
		o.Adapters.Rank, o.Adapters.Alpha, o.Adapters.Targets = 8, 16, []string{lora.AllLinear}
	}
	if o.Task == QLoRA && o.Adapters.Base == dtype.Invalid {
		o.Adapters.Base, _ = m.QuantizedType()
	}
	o.compressed = o.compressed || o.StatePolicy.Begin().Active
	if o.Device == "" && len(o.Machine.Devices) > 0 {
		o.Device = o.Machine.Devices[0].Name
	}
	if err := o.Check(); err != nil {
		return o, err
	}
	return o.withSizes()
}

// withSizes completes the sizes of a batch. MicroBatches stays 0 where the planner is to
// choose it.
func (o Options) withSizes() (Options, error) {
	counted := fmt.Sprintf("%d micro-batches", o.MicroBatches)
	if each := o.GradientAccumulation; each > 0 {
		site, _, err := o.site()
		if err != nil {
			return o, err
		}
		n := each * max(site.Devices, 1)
		if o.MicroBatches > 0 && o.MicroBatches != n {
			return o, fmt.Errorf("%d accumulated micro-batches on each of %d devices are %d, not %d; leave one of the numbers out", each, max(site.Devices, 1), n, o.MicroBatches)
		}
		o.GradientAccumulation, o.MicroBatches = 0, n
		counted = fmt.Sprintf("%d micro-batches (%d accumulated on each of %d devices)", n, each, max(site.Devices, 1))
	}
	switch n := o.MicroBatchSize * int64(o.MicroBatches); {
	case n > 0 && o.BatchSize > 0 && n != o.BatchSize:
		return o, fmt.Errorf("%s of %d sequences are %d, not a batch of %d; leave one of the sizes out", counted, o.MicroBatchSize, n, o.BatchSize)
	case o.BatchSize == 0:
		o.MicroBatchSize, o.MicroBatches = max(o.MicroBatchSize, 1), max(o.MicroBatches, 1)
		o.BatchSize = o.MicroBatchSize * int64(o.MicroBatches)
	case o.MicroBatches > 0:
		if o.BatchSize%int64(o.MicroBatches) != 0 {
			return o, fmt.Errorf("a batch of %d sequences cannot be cut into %s of one size; give a batch size that %d divides", o.BatchSize, counted, o.MicroBatches)
		}
		o.MicroBatchSize = o.BatchSize / int64(o.MicroBatches)
	case o.MicroBatchSize > 0:
		if o.BatchSize%o.MicroBatchSize != 0 {
			return o, fmt.Errorf("a batch of %d sequences cannot be cut into micro-batches of %d; give a batch size that %d divides", o.BatchSize, o.MicroBatchSize, o.MicroBatchSize)
		}
		o.MicroBatches = int(o.BatchSize / o.MicroBatchSize)
	case o.CanonicalSums:
		o.MicroBatchSize = canonicalSize(o.BatchSize, o.Seq)
		o.MicroBatches = int(o.BatchSize / o.MicroBatchSize)
	}
	if o.MicroBatches > maxMicroBatches {
		return o, fmt.Errorf("a batch of %d sequences in micro-batches of %d: that are %d, at most %d are planned; make them larger", o.BatchSize, o.MicroBatchSize, o.MicroBatches, maxMicroBatches)
	}
	return o, nil
}

// canonicalTokens is how many tokens a micro-batch has at least where sums are canonical: with
// fewer, adding up gradients would take more than some 2% of a step on a GPU.
const canonicalTokens = 8192

// canonicalSize is how many sequences a micro-batch has where sums are canonical and nobody says:
// the fewest that divide the batch and have enough tokens. It depends on nothing else.
func canonicalSize(batch, seq int64) int64 {
	for n := int64(1); n < batch; n++ {
		if batch%n == 0 && n*seq >= canonicalTokens {
			return n
		}
	}
	return batch
}

// Limits far above any run, so that a slip of the finger is an answer and not an hour of
// planning.
const (
	maxSequences    = 1 << 16 // of a batch
	maxMicroBatches = 1 << 14 // of a batch; the largest known runs have some hundreds
	maxSeq          = 1 << 24 // positions of a sequence
)

// Check refuses settings that contradict each other, whatever the model.
func (o Options) Check() error {
	switch {
	case o.BatchSize < 0 || o.MicroBatchSize < 0 || o.MicroBatches < 0 || o.GradientAccumulation < 0 || o.Seq < 0 || o.ReservedMemory < 0:
		return fmt.Errorf("batch size %d, micro-batch size %d, %d micro-batches, %d accumulated by device, %d positions, %v of reserved memory: none can be negative",
			o.BatchSize, o.MicroBatchSize, o.MicroBatches, o.GradientAccumulation, o.Seq, o.ReservedMemory)
	case o.MicroBatches > maxMicroBatches || o.GradientAccumulation > maxMicroBatches:
		return fmt.Errorf("%d micro-batches, %d accumulated by device: at most %d are planned; make them larger", o.MicroBatches, o.GradientAccumulation, maxMicroBatches)
	case o.BatchSize > maxSequences || o.MicroBatchSize > maxSequences || o.Seq > maxSeq:
		return fmt.Errorf("a batch of %d sequences, micro-batches of %d, %d positions: at most %d sequences and %d positions are planned", o.BatchSize, o.MicroBatchSize, o.Seq, maxSequences, maxSeq)
	case o.AllLogits && o.Task != Infer:
		return fmt.Errorf("the task is %s, and logits of all positions are for infer; leave them out", o.Task)
	case o.CanonicalSums && o.Task != "" && !o.Task.Trains():
		return fmt.Errorf("the task is %s, and canonical sums are of gradients; leave them out", o.Task)
	case o.CanonicalSums && (o.Strategy == string(strategy.ZeRO1) || o.Constraints.Parallelism == strategy.ZeRO1):
		return fmt.Errorf("with zero-1 each device adds up its own gradients first, with canonical sums all are added in the order of the batch; take zero-2, or leave canonical sums out")
	case !(o.Average >= 0 && o.Average < 1):
		return fmt.Errorf("an average of weights with a decay of %v; it is at least 0 and below 1, such as 0.999", o.Average)
	case (o.Held || o.Centralize || o.Average > 0 || len(o.Freeze) > 0 || len(o.Groups) > 0) && o.Task != "" && !o.Task.Trains():
		return fmt.Errorf("the task is %s, and held or centralized gradients, averages, groups and frozen params are for one that trains; leave them out", o.Task)
	case o.Outputs && !o.Held:
		return fmt.Errorf("outputs without the model's loss are for a loop of one's own; plan with Held gradients too")
	case o.Average > 0 && o.Pure:
		return fmt.Errorf("an average of weights in bf16 without master weights would be one of rounding errors; train with master weights")
	case o.StatePolicy.Codecs != "" && o.Optimizer.Name != "" && len(o.Optimizer.States()) == 0:
		return fmt.Errorf("a policy that compresses states to %s, and %v has none that can be compressed; leave the policy out", o.StatePolicy.Codecs, o.Optimizer)
	case !(o.Clip >= 0):
		return fmt.Errorf("clipping gradients to a norm of %v; it cannot be negative", o.Clip)
	case o.Document > 0 && !o.Packed:
		return fmt.Errorf("documents of %d tokens, and sequences are not packed from documents: leave the length out, or plan a training run", o.Document)
	case o.Evaluates && o.Task != "" && !o.Task.Trains():
		return fmt.Errorf("the task is %s, and evaluations are phases of one that trains; plan the task eval by itself", o.Task)
	case o.DeviceMap != nil && (o.Choose != nil || len(o.Constraints.Places) > 0):
		return fmt.Errorf("a device map and another choice of places; keep one")
	case o.Pure && o.Precision != dtype.BF16:
		return fmt.Errorf("weights in %v without master weights: only bf16 works without; plan with Precision BF16, or with master weights", o.Precision)
	case !(o.DataParallelThreshold >= 0 && o.DataParallelThreshold <= 1):
		return fmt.Errorf("a data parallel threshold of %v; it is a share of a device's memory, from 0 to 1", o.DataParallelThreshold)
	}
	return o.checkStrategy()
}

// checkStrategy refuses a strategy that there is not, or that something else decides too.
func (o Options) checkStrategy() error {
	if o.Strategy == "" {
		return nil
	}
	if _, err := strategy.Find(o.Strategy); err != nil {
		return err
	}
	switch demands := strategy.Demands(o.Strategy); {
	case demands.Weights == plan.OnDisk && o.Disk == "" && len(o.On) > 0:
		return fmt.Errorf("strategy %s needs a folder to offload to; name one with Disk or --disk", o.Strategy)
	case demands.Weights != "" && o.Bounds.SaveBelow+o.Bounds.StayBelow > 0:
		return fmt.Errorf("strategy %s decides what is recomputed or leaves the device, and so do bounds of %v and %v; keep one", o.Strategy, o.Bounds.SaveBelow, o.Bounds.StayBelow)
	case !reflect.DeepEqual(o.Constraints, strategy.Constraints{}):
		return fmt.Errorf("strategy %s is a set of constraints, and others are given too, such as --optimizer-device; keep one", o.Strategy)
	}
	return nil
}

// MaxNorm is the norm that gradients are clipped to, 0 for none.
func (o Options) MaxNorm() float64 {
	if math.IsInf(o.Clip, 1) {
		return 0
	}
	return o.Clip
}

// adapts says whether the model has adapters.
func (o Options) adapts() bool {
	return o.Task == LoRA || o.Task == QLoRA || o.Task != Train && o.Adapters.Rank > 0
}

// quantizes says whether weights of a model that is only run are held in a block format that the
// options name.
func (o Options) quantizes() bool {
	return !o.Task.Trains() && o.Adapters.Base != dtype.Invalid && o.Adapters.Rank == 0
}
