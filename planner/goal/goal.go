// Package goal says what is to be planned, and where: the Goal (micro-batches, optimizer,
// constraints), the Site (devices, memory and rates), and the error that nothing fits.
//
//	site, err := goal.SiteOf(machine, "gpu0", dtype.BF16)
//	g := goal.Goal{MicroBatches: 8, Master: true, Optimizer: &adamw}
package goal

import (
	"fmt"
	"strings"
	"time"

	"spillway/device"
	"spillway/device/sim"
	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/plan"
	"spillway/planner/strategy"
	"spillway/spec"
	"spillway/units"
)

// Alignment of buffers: what the widest loads of every backend like.
const Alignment = 256

// Goal is what the user wants done.
type Goal struct {
	MicroBatches int // micro-batches per iteration; 0 counts as 1
	// Optimizer of a training task; nil otherwise.
	Optimizer *Optimizer
	// Master: there are master weights in f32 next to the ones computed with.
	Master bool
	// CanonicalSums: gradients of micro-batches are computed alone and added one after the
	// other, in the order of the micro-batches, so that the result depends on their size and on
	// nothing else that a plan decides, devices included.
	CanonicalSums bool
	// Grad is the element type of gradients.
	Grad dtype.Type
	// Decay says whether weight decay applies to a param.
	Decay func(param string) bool
	// Group numbers the params that have hyper-parameters of their own, 0 those that do not; nil for all.
	Group func(param string) int
	// Constraints are what a plan must do, Bounds what narrows the search.
	Constraints strategy.Constraints
	Bounds      strategy.Bounds
	// HostCaches: keys and values are stored in host memory, see strategy.Choice.
	HostCaches bool
	// Watch hears of all that is tried, of plans that are written with what they do; an error ends the search, and is what Make
	// returns. Nil is nobody.
	Watch func(tried string) error
}

// Tries tells whoever watches that something is tried.
func (g *Goal) Tries(choice *strategy.Choice) error {
	switch {
	case g.Watch == nil:
		return nil
	case choice == nil:
		return g.Watch("")
	}
	return g.Watch(strategy.Title(*choice))
}

// Optimizer is what the planner must know of one.
type Optimizer struct {
	Rule op.Kind // the op of its update
	// States are its state of a param, master weights not counted; nil for none.
	States func(spec.Param) []op.State
	// States8Bit are the same in 8 bits, to be tried where nothing fits; nil where there is no such.
	States8Bit func(spec.Param) []op.State
	Clip       bool // gradients are clipped by their global norm
	// Held: gradients are kept for a loop that updates by itself; Averaged: so is an average of the
	// weights. Both are part of States, the first and the last.
	Held, Averaged bool
}

// FullStates are states as large as each param, in f32.
func FullStates(names ...string) func(spec.Param) []op.State {
	return func(p spec.Param) []op.State {
		list := make([]op.State, len(names))
		for i, name := range names {
			list[i] = op.State{Name: name, Type: op.Type{DType: dtype.F32, Shape: p.Type.Shape}}
		}
		return list
	}
}

// Site is where the plan is to run.
type Site struct {
	Device     machine.Device // its name and rates
	DType      dtype.Type     // that matmuls compute in
	Peer       units.Rate     // of copies between devices; 0: as from the host
	Budget     int64          // bytes of the device the plan may use
	Context    int64          // bytes of it that the driver counts beyond those of the plan
	HostBudget int64          // bytes of host memory the plan may use
	Alignment  int64          // of buffers
	Kernels    Kernels
	HostPinned bool // host memory is pinned for the device
	Devices    int  // how many equal devices there are; 0 counts as 1
	// Budgets, by device, are less than Budget; nil or 0 is all of it.
	Budgets []int64
	// CPU has the rates of the host's CPU next to GPUs: updates may run there. The zero
	// value is a CPU that is busy otherwise.
	CPU machine.Device
	// CPUKernels answers what kernels the CPU has next to a GPU, so that it may compute blocks of
	// a model that generates; nil where it does not.
	CPUKernels Kernels
	// LooksUpOnly: the CPU of CPUKernels is the device itself. It looks embeddings up in host memory, so that their table does not
	// stream, and computes no other block there, which would be to ignore the limit of the device.
	LooksUpOnly bool
	Disk        Disk // where bytes may be stored when the host is full
	// Rehearsed is what programs of a plan took on the device; nil where forecasts have the calls.
	Rehearsed *Rehearsal
	// SharedMemory: device and host memory are the same memory, both count against HostBudget. Kernels could read weights of
	// the host where they are; they are copied all the same. Who has enough memory gives such a device no limit, so a limit is
	// there to rehearse a device with memory of its own: what it holds, what streams, and that the bits stay.
	SharedMemory bool
}

// Rehearsal is what was measured of a plan before it runs.
type Rehearsal struct {
	Passes map[string]time.Duration // of programs, by what they call (sim.PassKey)
	Replay time.Duration            // that the device waits for an iteration to be launched as a graph
}

// Disk is a folder in which bytes may be stored; a budget of 0 is none.
type Disk struct {
	Budget      int64
	Read, Write units.Rate
	Copies      int // of all that is stored there that must fit; 0 counts as 1
}

// Space is the free space that storing so many bytes takes.
func (d Disk) Space(bytes int64) int64 { return bytes * int64(max(d.Copies, 1)) }

// Timing is how long calls take on the device.
func (s Site) Timing() *sim.Timing { return sim.NewTiming(s.Device, s.DType) }

// DeviceBudget is that of the d-th of the devices.
func (s Site) DeviceBudget(d int) int64 {
	if d < len(s.Budgets) && s.Budgets[d] > 0 {
		return min(s.Budgets[d], s.Budget)
	}
	return s.Budget
}

// DeviceName is that of the d-th of equal devices: "gpu0" and then "gpu1".
func (s Site) DeviceName(d int) string {
	if d == 0 {
		return s.Device.Name
	}
	return fmt.Sprintf("%s%d", strings.TrimRight(s.Device.Name, "0123456789"), d)
}

// HostTier is the tier of host memory.
func (s Site) HostTier() plan.Tier {
	if s.HostPinned {
		return plan.Pinned
	}
	return plan.OnHost
}

// Kernels answers whether a call can run and what scratch memory it takes.
type Kernels interface {
	Kernel(op.Call) (device.Kernel, error)
}

// FitError says that no plan fits, with what would.
type FitError struct {
	Model  string    `json:"model"`
	Tier   plan.Tier `json:"tier"`         // that is too small
	Needed int64     `json:"needed_bytes"` // what the smallest plan takes of it
	Budget int64     `json:"budget_bytes"`
	// Context is what the driver counts on a GPU beyond Budget.
	Context int64 `json:"context_bytes,omitempty"`
	// Host memory the smallest plan takes, and what there is.
	NeededHost int64       `json:"needed_host_bytes"`
	BudgetHost int64       `json:"budget_host_bytes"`
	Options    []FitOption `json:"options,omitempty"`
}

// FitOption is a change that was planned and does fit.
type FitOption struct {
	Change string              `json:"change"` // in words
	Peak   map[plan.Tier]int64 `json:"peak_bytes"`
	// The request that fits.
	MicroBatchSize int64 `json:"micro_batch_size"`
	Seq            int64 `json:"seq_len"`
	MicroBatches   int   `json:"micro_batches"`
	Device         int64 `json:"device_bytes"`
	Host           int64 `json:"host_bytes"`
	Disk           int64 `json:"disk_bytes,omitempty"`  // the free space it takes
	States8Bit     bool  `json:"states_8bit,omitempty"` // optimizer state is in 8 bits
}

// DeviceNeed is what the smallest plan takes of the device.
func (e *FitError) DeviceNeed() int64 {
	if e.Tier == plan.OnDevice {
		return e.Needed
	}
	return 0
}

// Lack says what the smallest plan needs and what there is.
func (e *FitError) Lack() string {
	needed, budget := units.Bytes(e.Needed).String(), units.Bytes(e.Budget).String()
	if needed == budget {
		needed, budget = fmt.Sprintf("%d bytes", e.Needed), fmt.Sprint(e.Budget)
	}
	s := fmt.Sprintf("the smallest plan needs %s of %s memory, %s are available", needed, e.Tier, budget)
	if e.Tier == plan.OnDevice && e.Context > 0 {
		s += fmt.Sprintf(" next to %v of context and libraries", units.Bytes(e.Context))
	}
	if e.Tier == plan.OnDevice && e.NeededHost > e.BudgetHost {
		s += fmt.Sprintf(", and %v of host memory, %v are available", units.Bytes(e.NeededHost), units.Bytes(e.BudgetHost))
	}
	return s
}

func (e *FitError) Error() string {
	s := fmt.Sprintf("planning %s: %s", e.Model, e.Lack())
	if len(e.Options) == 0 {
		return s + "; use a smaller model, batch or sequence, or a machine with more memory"
	}
	separator := "; to make it fit: "
	for _, o := range e.Options {
		s += separator + o.Change
		separator = ", "
	}
	return s
}
