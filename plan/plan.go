// Package plan is a training or inference run as data: where every byte rests,
// and the steps of one iteration, written with five verbs.
//
//	move    bytes between tiers
//	run     a block's program on one micro-batch
//	reduce  partial sums into one, across blocks and devices
//	update  the optimizer on the params of a slab
//	free    ends the life of a buffer
//
// Steps stand in the order they are issued. Each belongs to a lane of a device;
// a lane runs its steps in order, beside the other lanes, and After names the
// steps of other lanes that must be done first. All memory is in arenas whose
// size is known, so the largest amount in use is known too.
//
// Iterations follow each other. Copies to the host at the end of one may trail: they
// are still under way when it ends, and Past names those of the iteration before that
// a step must wait for. Everything else of an iteration is done when it ends.
//
// Strategies differ only in the plan. Verify says whether a plan is sound,
// whoever wrote it; the executor carries out any plan that is.
package plan

import (
	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
)

// Version of the JSON form.
const Version = 2

// Plan is one iteration and the memory it needs.
type Plan struct {
	Version  int    `json:"version"`
	Model    string `json:"model"`
	Task     string `json:"task"`
	Strategy string `json:"strategy"` // in words, with numbers
	// Strategies are the names of those that the plan makes use of: zero-2, cpu-offload.
	Strategies []string `json:"strategies"`
	Reason     string   `json:"reason"`

	MicroBatchSize int64 `json:"rows"`   // samples per micro-batch
	Seq            int64 `json:"seq"`    // positions per sample
	MicroBatches   int   `json:"micros"` // micro-batches per iteration

	Devices      []Device      `json:"devices"`
	Arenas       []Arena       `json:"arenas"`
	Buffers      []Buffer      `json:"buffers"`
	Slabs        []Slab        `json:"slabs"`
	Batch        []BatchTensor `json:"parts"` // of a micro-batch
	Consts       []Const       `json:"consts"`
	Programs     []Program     `json:"programs"`
	Optimizer    *Optimizer    `json:"update,omitempty"` // nil when nothing is trained
	Instructions []Instruction `json:"steps"`

	Forecast *Forecast     `json:"forecast,omitempty"`
	Rejected []Alternative `json:"rejected,omitempty"`
}

// Device is one the plan was made for.
type Device struct {
	Name   string `json:"name"`
	Budget int64  `json:"budget_bytes"` // the most the plan may use of it
}

// Names of devices of a plan that compute or store on the host: the CPU where it runs the
// optimizer, and the disk.
const (
	HostName = "host"
	DiskName = "disk"
)

// Tier is a kind of memory.
type Tier string

// The tiers, fastest first.
const (
	OnDevice Tier = "device"
	Pinned   Tier = "pinned" // host memory a device copies from at full speed
	OnHost   Tier = "host"
	OnDisk   Tier = "disk"
)

// Arena is one allocation.
type Arena struct {
	Name   string `json:"name"`
	Tier   Tier   `json:"tier"`
	Device int    `json:"device"` // whose memory it is, or who copies from it
	Bytes  int64  `json:"bytes"`
}

// Class says what bytes are for.
type Class string

// The classes.
const (
	Weight     Class = "weight"
	Master     Class = "master" // weights at full precision
	Gradient   Class = "gradient"
	State      Class = "moment" // optimizer state
	Activation Class = "activation"
	Workspace  Class = "workspace" // values that live inside one run
	BatchData  Class = "batch"
	ResultData Class = "result"
	Constant   Class = "constant"
)

// Buffer is a part of an arena that holds one thing.
type Buffer struct {
	Name   string `json:"name"`
	Class  Class  `json:"class"`
	Arena  int    `json:"arena"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	// Home: it keeps its contents from iteration to iteration, and no other
	// buffer shares its bytes. Others live from their first writing to their free.
	Home bool `json:"home,omitempty"`
}

// Slab is the params of a block, contiguous, so that they cross a link as one
// copy. Buffer numbers are those of its homes, -1 for none.
type Slab struct {
	Name   string      `json:"name"`
	Params []SlabParam `json:"params"`
	// Elements of the trainable params with their padding: gradient and master have so
	// many.
	Elements int64 `json:"elements"`

	WeightBytes int64 `json:"weight_bytes"`
	Weight      int   `json:"weight"`
	Gradient    int   `json:"gradient"`
	// Pieces cover the elements: what the optimizer keeps moves and is updated piece
	// by piece, so that a large slab needs no large room.
	Pieces []Piece `json:"pieces,omitempty"`
	// Replicas are homes of further copies of the weights, on other devices.
	Replicas []int `json:"replicas,omitempty"`
}

// Trained is the element type of the trained params, which all have; Invalid where none
// is trained.
func (s *Slab) TrainedType() dtype.Type {
	for _, p := range s.Params {
		if !p.Frozen() {
			return p.Type.DType
		}
	}
	return dtype.Invalid
}

// Piece is a range of a slab's elements and the homes of what the optimizer keeps of
// them, -1 for none. Update.Stretches says where in Moment each state lies.
type Piece struct {
	From   int64 `json:"from"`
	To     int64 `json:"to"`
	Master int   `json:"master"`
	State  int   `json:"moment"`
}

// Elements of the piece.
func (p Piece) Elements() int64 { return p.To - p.From }

// SlabParam is a param's place in its slab.
type SlabParam struct {
	Name   string  `json:"name"`
	Type   op.Type `json:"type"`
	Offset int64   `json:"offset"` // bytes into the weights
	// Element is where its gradient and master start, counted in elements; -1 when it
	// is frozen.
	Element int64 `json:"element"`
	Decay   bool  `json:"decay,omitempty"` // weight decay applies
	// States are what the optimizer keeps of it besides a master, in the order in which
	// its rule takes them.
	States []op.State `json:"states,omitempty"`
}

// Frozen says that the param is not trained.
func (p SlabParam) Frozen() bool { return p.Element < 0 }

// Part is a tensor of a micro-batch at its place in the batch buffer.
type BatchTensor struct {
	Name   string  `json:"name"`
	Type   op.Type `json:"type"`
	Offset int64   `json:"offset"`
}

// Const is data that programs read, at its place in the constants' buffer.
type Const struct {
	Name   string `json:"name"`
	Data   []byte `json:"data"`
	Offset int64  `json:"offset"`
}

// Program is a graph program with a place for every value.
type Program struct {
	Graph  *graph.Program `json:"graph"`
	Places []Place        `json:"places"` // by value; entry 0 unused
	// Frame is scratch memory of a run: its inner values, then what kernels need.
	Frame     int64 `json:"frame"`
	Workspace int64 `json:"workspace"` // offset in the frame of the kernels' scratch
}

// Region is a kind of memory a program is given when it runs.
type Region string

// The regions. Index tells apart several of one kind.
const (
	InFrame      Region = "frame"
	InWeight     Region = "weight"   // index: slab of the block
	InGrad       Region = "grad"     // index: slab of the block
	InMaster     Region = "master"   // of an update
	InState      Region = "moment"   // of an update
	InClip       Region = "clip"     // of an update: clip factor and norm
	InCarry      Region = "carry"    // from the block before
	OutCarry     Region = "carryout" // to the block after
	InSaved      Region = "kept"     // from forward to backward
	InGradOutput Region = "dout"     // gradient of what the block gives
	OutGradInput Region = "din"      // gradient of what the block takes
	InBatch      Region = "batch"
	InConst      Region = "const"
	OutResult    Region = "result"
	OutPartial   Region = "partial" // sums of squares, one per slab
)

// Place of a value.
type Place struct {
	Region Region `json:"region,omitempty"`
	Index  int    `json:"index,omitempty"`
	Offset int64  `json:"offset,omitempty"`
}

// Update is the optimizer: what it keeps of a param stands with the param, its numbers
// of one iteration come from the training loop.
type Optimizer struct {
	Rule     op.Kind    `json:"rule"` // op.Adam, op.SGD or op.Lion
	Attr     op.Attr    `json:"attr"`
	GradType dtype.Type `json:"grad"` // element type of gradients, see GradOf
	// Clip: a reduce makes the clip factor from the partial sums before updates.
	Clip bool `json:"clip,omitempty"`
}

// Lane of a device.
type Lane string

// The lanes.
const (
	Compute Lane = "compute"
	In      Lane = "in"  // host to device
	Out     Lane = "out" // device to host
)

// Lanes lists them.
var Lanes = []Lane{Compute, In, Out}

// Verb of a step.
type Verb string

// The five verbs.
const (
	Move   Verb = "move"
	Run    Verb = "run"
	Reduce Verb = "reduce"
	Update Verb = "update"
	Free   Verb = "free"
)

// Step is one instruction. Which fields count depends on the verb.
type Instruction struct {
	Verb   Verb  `json:"verb"`
	Device int   `json:"device"`
	Lane   Lane  `json:"lane,omitempty"` // none for free
	After  []int `json:"after,omitempty"`

	// Trails: a copy to the host that the end of its iteration does not wait for.
	CarriesOver bool `json:"trails,omitempty"`
	// Past names steps of the iteration before that must be done first. They trail, and
	// stand behind this one: of those before it After says what there is to say.
	AfterPrevious []int `json:"past,omitempty"`

	// Late: it completes the iteration before, of which an update waited for the norm of
	// all gradients: that update, or a move for it.
	Deferred bool `json:"late,omitempty"`

	Block      int `json:"block"` // what the step is about, for people; -1 for none
	MicroBatch int `json:"micro"` // -1 for none

	Src int `json:"src,omitempty"` // move
	Dst int `json:"dst,omitempty"` // move, free: the buffer
	// Offset in Dst where a move's bytes go.
	Offset int64 `json:"offset,omitempty"`

	Program  int       `json:"program,omitempty"` // run
	Slab     int       `json:"slab,omitempty"`    // update, and a reduce of gradients
	Piece    int       `json:"piece,omitempty"`   // update
	Bindings []Binding `json:"bind,omitempty"`    // run, reduce, update
}

// Bind gives a region a buffer, from an offset on.
type Binding struct {
	Region Region `json:"region"`
	Index  int    `json:"index,omitempty"`
	Buffer int    `json:"buffer"`
	Offset int64  `json:"offset,omitempty"`
}

// Forecast is what the plan, carried out on the simulator, took.
type Forecast struct {
	StepSeconds float64 `json:"step_seconds"` // one iteration
	Bound       string  `json:"bound"`        // the resource that is busiest
	// Busy is each resource's share of the iteration.
	Busy map[string]float64 `json:"busy"`
	// AtBest is the time the busiest resource alone needs, over StepSeconds.
	RooflineShare float64        `json:"at_best"`
	TokensPerSec  float64        `json:"tokens_per_second"`
	PeakBytes     map[Tier]int64 `json:"peak_bytes"`
	BytesIn       int64          `json:"bytes_in"`
	BytesOut      int64          `json:"bytes_out"`
	Flops         float64        `json:"flops"`
}

// Option is an alternative that was looked at.
type Alternative struct {
	Strategy   string   `json:"strategy"`
	Strategies []string `json:"strategies"` // as Plan has them
	Reason     string   `json:"reason"`
	Fits       bool     `json:"fits"`
	// Needs per tier, and the forecast where one was made.
	PeakBytes   map[Tier]int64 `json:"peak_bytes"`
	StepSeconds float64        `json:"step_seconds,omitempty"`
	// AtLeast: no forecast was made, StepSeconds is what its products or transfers
	// take alone.
	LowerBound bool `json:"at_least,omitempty"`
}

// Peak is the memory of each tier the plan uses.
func (p *Plan) Peak() map[Tier]int64 {
	peak := map[Tier]int64{}
	for _, a := range p.Arenas {
		peak[a.Tier] += a.Bytes
	}
	return peak
}

// TierOf a buffer.
func (p *Plan) TierOf(buffer int) Tier { return p.Arenas[p.Buffers[buffer].Arena].Tier }

// LaneNumber counts the lanes of all devices, from 0 on.
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
