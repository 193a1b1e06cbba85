// Package strategy holds the strategies that the planner knows, as data.
//
// A strategy is one way to make a model fit a machine, or to run it faster: save less for
// the backward, store something away from the device, share the work of several devices.
// Each is one value in one file: its name, what it needs, what asking for it by name
// means, how a plan that makes use of it is described, and which candidates it offers to
// the search. Everybody reads that value: plans and their JSON, comparisons,
// configurations, DeepSpeed files, pages. A new strategy is a new file and a line in All.
//
//	s, err := strategy.Find("cpu-offload")
//	s.Constraints                 // weights and optimizer state are stored in host memory
//	s.Refuse(strategy.Facts{...}) // nil, or why it cannot be used here
//
// Plans mostly mix strategies. A Choice is all that a plan decides, for every slab (the
// flat parameter buffer of a block) and every block. A Mix says the same in a few numbers,
// such as "weights of 8 of 34 slabs stream", which a search can raise and lower. A Line is
// mixes in order, from the one that takes most memory to the one that takes least.
//
//	strategy.Names(c) // [zero-2 cpu-offload]
//	strategy.Title(c) // "ZeRO-2 on 2 devices, CPU offload of 8 of 34 parameter buffers ..."
package strategy

import (
	"errors"
	"fmt"
	"strings"
)

// Strategy is one way to make a model fit, or run faster.
type Strategy struct {
	Name  string // "cpu-offload": in configurations, flags and JSON
	Title string // "CPU offload": in prose
	Doc   string // one line for pages and help, without a full stop
	Needs Needs
	// Constraints are what asking for the strategy by name means. Without any it is used
	// where that is fastest, and cannot be asked for.
	Constraints Constraints
	// In says whether a choice makes use of the strategy, and Describe how much: "CPU
	// offload of 8 of 34 parameter buffers".
	In       func(Choice) bool
	Describe func(Choice) string

	// Lines are the candidates that the strategy offers to the search, most memory first.
	Lines func(Facts) []Line
	// Variant changes a line that another strategy offers, such as by updating on the CPU
	// what it offloads; false where there is nothing to change. It is tried on all lines of
	// the strategies before it in All.
	Variant func(Facts, Line) (Line, bool)

	// Spread puts a choice on several devices; nil where the strategy uses one. Split gives
	// each block one of so many devices.
	Spread func(c *Choice, f Facts, split func(devices int) []int)
	// Sensible says whether a search of several devices should try it; nil is always.
	Sensible func(Facts) bool
	// Replicates: every device has all weights.
	Replicates bool
	// StaysOnDevice: lines in which something leaves the device are offered only where the
	// strategy is asked for, since another one does the same then.
	StaysOnDevice bool
	// OfSteps: it is decided for the steps of a plan to generate, once the search has found what
	// streams.
	OfSteps   bool
	ZeROStage int // the stage that DeepSpeed counts it as; 0 for none
	// Inference is the strategy that takes its place where nothing is trained; nil is
	// itself.
	Inference *Strategy
}

// Needs of a strategy.
type Needs struct {
	Training     bool // it is about gradients or optimizer state
	Devices      bool // several
	MicroBatches bool // several, for the devices to share
	Disk         bool
}

// All lists the strategies in the order in which they are searched, compared and
// described: from those that only change what is computed to those that move most.
var All = []*Strategy{
	Standard, ZeRO1Strategy, ZeRO2Strategy, ZeRO3Strategy, ModelParallelStrategy, PipelineStrategy,
	Checkpointing, ActivationOffload, OptimizerOffload, CPUOffload, CPUUpdate, DelayedUpdate, DiskOffload, CPUCompute,
}

// Find is the strategy with a name, to be asked for.
func Find(name string) (*Strategy, error) {
	for _, s := range All {
		if s.Name == name && s.Constraints.Any() {
			return s, nil
		}
	}
	if name == "ddp" {
		return nil, fmt.Errorf("there is no strategy ddp, which keeps all optimizer state on every device; %s gives the same numbers in less memory", ZeRO1)
	}
	return nil, fmt.Errorf("there is no strategy %q; there are %s", name, strings.Join(Askable(), ", "))
}

// Demands are the constraints of a strategy that is asked for; none for "".
func Demands(name string) Constraints {
	if s, err := Find(name); err == nil {
		return s.Constraints
	}
	return Constraints{}
}

// Askable lists the names of strategies that can be asked for.
func Askable() (names []string) {
	for _, s := range All {
		if s.Constraints.Any() {
			names = append(names, s.Name)
		}
	}
	return names
}

// Of is the strategy of a parallelism; Standard for one device.
func Of(p Parallelism) *Strategy {
	for _, s := range All {
		if s.Spread != nil && s.Name == string(p) {
			return s
		}
	}
	return Standard
}

// Stage is the strategy of a ZeRO stage; nil where there is none.
func Stage(n int) *Strategy {
	for _, s := range All {
		if s.ZeROStage == n && n > 0 {
			return s
		}
	}
	return nil
}

// Refuse says why the strategy cannot be used here, as what follows its name; nil where it
// can.
func (s *Strategy) Refuse(f Facts) error {
	switch n := s.Needs; {
	case n.Devices && f.Devices < 2:
		return errors.New("needs several devices, there is one")
	case n.MicroBatches && f.MicroBatches < 2:
		return fmt.Errorf("needs micro-batches for %d devices to share, a step has %d; give a batch of %d or more", f.Devices, f.MicroBatches, f.Devices)
	case n.Training && !f.Training && s.Inference != nil:
		return fmt.Errorf("is about training; without training use %s", s.Inference.Name)
	case n.Training && !f.Training:
		return errors.New("is about training, and nothing is trained")
	case n.Disk && !f.Disk:
		return errors.New("needs a disk, and the machine has no disk tier; add one, such as disk:2TiB")
	}
	return nil
}

// uses lists the strategies that a choice makes use of; Standard where it does nothing.
func uses(c Choice) (list []*Strategy) {
	for _, s := range All {
		if s != Standard && s.In(c) {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		list = []*Strategy{Standard}
	}
	return list
}

// Names of the strategies that a choice makes use of.
func Names(c Choice) (names []string) {
	for _, s := range uses(c) {
		names = append(names, s.Name)
	}
	return names
}

// Title describes a choice for people, with numbers.
func Title(c Choice) string {
	var parts []string
	for _, s := range uses(c) {
		parts = append(parts, s.Describe(c))
	}
	if c.Rounds > 1 {
		parts = append(parts, fmt.Sprintf("micro-batches in %d rounds", c.Rounds))
	}
	return strings.Join(parts, ", ")
}

// Group names choices that differ in numbers only: by what shares the work, and by the
// strategy that moves most.
func Group(c Choice) string {
	group := string(c.Parallelism())
	for _, s := range All {
		if s.Spread == nil && s.Variant == nil && s != Standard && s.In(c) {
			group = string(c.Parallelism()) + " " + s.Name
		}
	}
	return group
}

// Candidates are the lines of all strategies that change what one device does, in order.
func Candidates(f Facts) (list []Line) {
	for _, s := range All {
		list = s.extend(list, f)
	}
	return list
}

// Alone are the lines of one strategy by itself, for comparison, with their variants. The
// first mix of each is left out: it does nothing of what the line is about.
func (s *Strategy) Alone(f Facts) (list []Line) {
	f.Alone = true
	for _, line := range s.Lines(f) {
		if first := line; line.Size > 0 {
			line = Line{first.Size - 1, func(i int) Mix { return first.Mix(i + 1) }}
		}
		list = append(list, line)
	}
	after := false
	for _, v := range All {
		if after && v.Variant != nil {
			list = v.extend(list, f)
		}
		after = after || v == s
	}
	return list
}

// extend adds what a strategy offers, and its variants of what is there.
func (s *Strategy) extend(list []Line, f Facts) []Line {
	if s.Lines != nil && s.Spread == nil {
		list = append(list, s.Lines(f)...)
	}
	if s.Variant != nil {
		for _, line := range list {
			if v, ok := s.Variant(f, line); ok {
				list = append(list, v)
			}
		}
	}
	return list
}
