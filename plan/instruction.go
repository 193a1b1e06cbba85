package plan

import (
	"fmt"
	"maps"
	"slices"
)

// Lane of a device: a queue that runs its instructions in order.
type Lane string

// The lanes.
const (
	Compute Lane = "compute"
	In      Lane = "in"  // host to device
	Out     Lane = "out" // device to host
)

// Lanes lists them.
var Lanes = []Lane{Compute, In, Out}

// Verb of an instruction.
type Verb string

// The five verbs.
const (
	Move   Verb = "move"
	Run    Verb = "run"
	Reduce Verb = "reduce"
	Update Verb = "update"
	Free   Verb = "free"
)

// Instruction is one line of a plan. Which fields count depends on the verb.
type Instruction struct {
	Verb   Verb  `json:"verb"`
	Device int   `json:"device"`
	Lane   Lane  `json:"lane,omitempty"` // none for free
	After  []int `json:"after,omitempty"`

	// CarriesOver: a copy to the host that may still run when its iteration ends.
	CarriesOver bool `json:"carries_over,omitempty"`
	// AfterPrevious names instructions of the previous iteration that must be done
	// first. They carry over, and are listed behind this one: for those before it After
	// is enough.
	AfterPrevious []int `json:"after_previous,omitempty"`

	// Deferred: it completes the previous iteration, whose update had to wait for the
	// norm of all gradients. It is that update, or a move for it.
	Deferred bool `json:"deferred,omitempty"`

	Block      int `json:"block"`       // what it is about, for people; -1 for none
	MicroBatch int `json:"micro_batch"` // -1 for none

	Src int `json:"src,omitempty"` // move
	Dst int `json:"dst,omitempty"` // move, free: the buffer
	// Offset in Dst where a move's bytes go.
	Offset int64 `json:"offset,omitempty"`

	Program  int       `json:"program,omitempty"`  // run
	Slab     int       `json:"slab,omitempty"`     // update, and a reduce of gradients
	Piece    int       `json:"piece,omitempty"`    // update
	Bindings []Binding `json:"bindings,omitempty"` // run, reduce, update
}

// Binding gives a region a buffer, from an offset on.
type Binding struct {
	Region Region `json:"region"`
	Index  int    `json:"index,omitempty"`
	Buffer int    `json:"buffer"`
	Offset int64  `json:"offset,omitempty"`
}

// Region is a kind of memory that an instruction is given when it runs.
type Region string

// The regions. Index tells apart several of one kind.
const (
	InFrame      Region = "frame"
	InWeight     Region = "weight"    // index: slab of the block
	InGrad       Region = "grad"      // index: slab of the block
	InMaster     Region = "master"    // of an update
	InState      Region = "state"     // of an update
	InClip       Region = "clip"      // of an update: clip factor and norm
	InCarry      Region = "carry"     // from the block before
	OutCarry     Region = "carry_out" // to the block after
	InSaved      Region = "saved"     // from forward to backward
	InGradOutput Region = "grad_output"
	OutGradInput Region = "grad_input"
	InBatch      Region = "batch"
	InConst      Region = "const"
	OutResult    Region = "result"
	OutPartial   Region = "partial" // sums of squares, one per slab
	InCache      Region = "cache"   // of a block, read and written
)

// LaneIndex counts the lanes of all devices, from 0 on.
func (s *Instruction) LaneIndex() int {
	for i, l := range Lanes {
		if s.Lane == l {
			return s.Device*len(Lanes) + i
		}
	}
	return 0
}

// Bound finds what is bound to a region.
func (s *Instruction) Bound(r Region, index int) (Binding, bool) {
	for _, b := range s.Bindings {
		if b.Region == r && b.Index == index {
			return b, true
		}
	}
	return Binding{}, false
}

// SumOrder says in which order the gradients of several micro-batches are summed, on which
// their last bits depend; "" where nothing is trained, or a step has one micro-batch. All
// plans with the same micro-batches of which no two devices share a gradient have the same
// order, whatever else they decide.
func (p *Plan) SumOrder() string {
	if p.Optimizer == nil || p.MicroBatches == 1 && !p.CanonicalSums {
		return ""
	}
	if p.CanonicalSums {
		return fmt.Sprintf("canonical: gradients of %d sequences each are computed alone and added in the order of the batch, whatever memory and devices", p.MicroBatchSize)
	}
	shares, rounds := 1, map[int]int{} // devices that each have a part of one gradient; how often a slab's parts are added
	for i := range p.Instructions {
		if s := &p.Instructions[i]; s.Verb == Reduce && s.Bindings[0].Region == InGrad {
			shares = max(shares, len(s.Bindings))
			rounds[s.Slab]++
		}
	}
	text := fmt.Sprintf("gradients of micro-batches of %d are added in their order", p.MicroBatchSize)
	switch {
	case shares > 1 && slices.Max(slices.Collect(maps.Values(rounds))) > 1:
		text += fmt.Sprintf(", one of each of %d devices at a time in the order of the devices", shares)
	case shares > 1:
		text += fmt.Sprintf(" on each of %d devices, then in the order of the devices", shares)
	}
	return text
}
