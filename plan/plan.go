// Package plan describes a run, of training or inference, as data: where every byte is stored,
// and the instructions of one iteration, written with five verbs.
//
//	move    copies a buffer to another tier or device
//	run     runs a block's program on one micro-batch
//	reduce  adds partial sums or gradients, in a fixed order
//	update  runs the optimizer on a piece of a slab
//	free    ends the life of a buffer
//
// A model of one block whose weights and optimizer state are stored on the host trains
// with instructions like these (Text prints a plan this way):
//
//	0 in      move #0[layer weights] to #5 device@0
//	1 compute run layer forward micro 0 weight=#5 saved=#6 carry_out=#7; free #7
//	2 compute run layer backward micro 0 weight=#5 saved=#6 grad=#8; free #6
//	3 compute update layer weight=#5 grad=#8 master=#9 state=#10; free #8
//	4 out     move #5 to #0[layer weights] after 3, carries over; free #5
//
// Instructions are listed in the order they are issued. Each belongs to a lane of a
// device: compute, in (host to device) or out. A lane runs its instructions in order
// and concurrently with the other lanes; After names the instructions of other lanes
// that must be done first. All memory is in arenas of known size, so the peak is known
// before anything runs.
//
// Iterations overlap at their ends: copies to the host at the end of one may carry
// over, which means that they are still running when it ends. AfterPrevious names those
// of the previous iteration that an instruction must wait for.
//
// Strategies differ only in the plan. Verify says whether a plan is sound, whoever wrote
// it; the executor carries out any plan that is.
package plan

import (
	"encoding/json"

	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	_ "spillway/optim" // registers the updates that plans name
)

// Version of the JSON form. 4: the choices that the planner made are in it.
const Version = 4

// Plan is one iteration and the memory it needs.
type Plan struct {
	Version  int    `json:"version"`
	Model    string `json:"model"`
	Task     string `json:"task"`
	Strategy string `json:"strategy"` // in words, with numbers
	// Strategies are the names of those that the plan makes use of: zero-2, cpu-offload.
	Strategies []string `json:"strategies"`
	Reason     string   `json:"reason"`
	// Choices are what the planner decided, in its own form. Everything else follows from
	// them and from the model, so a plan from a file can be held against both.
	Choices json.RawMessage `json:"choices,omitempty"`

	MicroBatchSize int64 `json:"micro_batch_size"`   // sequences per micro-batch
	Seq            int64 `json:"seq"`                // positions per sequence
	MicroBatches   int   `json:"micro_batches"`      // per iteration
	Document       int64 `json:"document,omitempty"` // tokens of the document a position is in, for the forecast
	// CanonicalSums: the gradient of each micro-batch is computed alone, and they are added one
	// after the other in the order of the micro-batches, whatever devices computed them.
	CanonicalSums bool `json:"canonical_sums,omitempty"`
	// Cache is what generation stores between steps; nil of other tasks. A step has Seq rows,
	// those of phases as many as their names say.
	Cache *graph.KVCache `json:"cache,omitempty"`

	Devices      []Device      `json:"devices"`
	Arenas       []Arena       `json:"arenas"`
	Buffers      []Buffer      `json:"buffers"`
	Slabs        []Slab        `json:"slabs"`
	Batch        []BatchTensor `json:"batch"` // of one micro-batch
	Consts       []Const       `json:"consts"`
	Programs     []Program     `json:"programs"`
	Optimizer    *Optimizer    `json:"optimizer,omitempty"` // nil when nothing is trained
	Instructions []Instruction `json:"instructions"`
	// Captured: the executor captures an iteration as a graph of the device (a CUDA
	// graph) and replays it with one call; see Capture.
	Captured bool `json:"captured,omitempty"`
	// Phases are other instruction lists over the same memory, such as an evaluation
	// between training iterations.
	Phases []Phase `json:"phases,omitempty"`

	Forecast *Forecast     `json:"forecast,omitempty"`
	Rejected []Alternative `json:"rejected,omitempty"`
}

// Device is one the plan was made for.
type Device struct {
	Name string `json:"name"`
	// Rank of the process that drives the device, counted from 0. Plans of one process
	// have only rank 0.
	Rank   int   `json:"rank,omitempty"`
	Budget int64 `json:"budget_bytes"` // the most the plan may use of it
	// Context is what the driver counts beyond the plan's arenas: context, kernels and
	// libraries of a GPU. Limits include it.
	Context int64 `json:"context_bytes,omitempty"`
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
	State      Class = "state" // optimizer state
	Activation Class = "activation"
	Workspace  Class = "workspace" // values that live inside one run
	BatchData  Class = "batch"
	ResultData Class = "result"
	Constant   Class = "constant"
	Cache      Class = "cache" // keys and values of generated sequences
)

// Buffer is a part of an arena that holds one thing.
type Buffer struct {
	Name   string `json:"name"`
	Class  Class  `json:"class"`
	Arena  int    `json:"arena"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	// Home: the buffer keeps its contents from iteration to iteration, and no other
	// buffer shares its bytes. Others live from their first write to their free.
	Home bool `json:"home,omitempty"`
	// Pages: the contents are pages that a table in device memory puts in order.
	Pages *Pages `json:"pages,omitempty"`
}

// Pages make a buffer indirect: its bytes are a pool of equal pages, and whoever reads
// or writes it finds page i through entry i of a table, an int32 page number. A KV cache
// has a page table, a group of experts a table of the slots they are in. The executor
// does not run plans with indirect buffers yet; the verifier knows them.
type Pages struct {
	Table int   `json:"table"` // buffer, on the same device
	Bytes int64 `json:"bytes"` // of one page
}

// Slab is the params of a block, contiguous, so that they cross a link as one copy. A
// block may have several, which then stream by themselves. Buffer numbers are those of
// its homes, -1 for none.
type Slab struct {
	Name   string      `json:"name"`
	Params []SlabParam `json:"params"`
	// Elements of the trained params with their padding: gradient and master have as
	// many.
	Elements int64 `json:"elements"`

	WeightBytes int64 `json:"weight_bytes"`
	Weight      int   `json:"weight"`
	Gradient    int   `json:"gradient"`
	// Pieces cover the elements: masters and optimizer states move and are updated
	// piece by piece, so that a large slab needs no large buffer on the device.
	Pieces []Piece `json:"pieces,omitempty"`
	// Replicas are homes of further copies of the weights, on other devices.
	Replicas []int `json:"replicas,omitempty"`
}

// TrainedType is the element type that all trained params of the slab have; Invalid
// where none is trained.
func (s *Slab) TrainedType() dtype.Type {
	for _, p := range s.Params {
		if !p.Frozen() {
			return p.Type.DType
		}
	}
	return dtype.Invalid
}

// Piece is a range of a slab's elements with the homes of their master weights and
// optimizer states, -1 for none. Optimizer.Spans says where in State each state is.
type Piece struct {
	From   int64 `json:"from"`
	To     int64 `json:"to"`
	Master int   `json:"master"`
	State  int   `json:"state"`
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
	// Group is the params that have hyper-parameters of their own; 0 has the optimizer's.
	Group int `json:"group,omitempty"`
	// Momentum of a running statistic: its update takes away this share of its gradient, whatever the
	// optimizer; 0 for weights.
	Momentum float64 `json:"momentum,omitempty"`
	// States are its optimizer states besides a master, in the order in which the
	// update rule takes them.
	States []op.State `json:"states,omitempty"`
}

// Frozen says that the param is not trained.
func (p SlabParam) Frozen() bool { return p.Element < 0 }

// BatchTensor is a tensor of a micro-batch, such as the tokens, at its place in the
// batch buffer.
type BatchTensor struct {
	Name   string  `json:"name"`
	Type   op.Type `json:"type"`
	Offset int64   `json:"offset"`
}

// Const is data that programs read, at its place in the buffer of constants.
type Const struct {
	Name   string `json:"name"`
	Data   []byte `json:"data"`
	Offset int64  `json:"offset"`
}

// Optimizer is the update rule. The states it has of a param are listed with the param;
// its numbers of one iteration, such as the learning rate, come from the training loop.
type Optimizer struct {
	Rule     op.Kind    `json:"rule"` // the op of its update: optim.Adam, ...
	Attr     op.Attr    `json:"attr"`
	GradType dtype.Type `json:"grad_dtype"` // element type of gradients, see GradTypeOf
	// Clip: a reduce makes the clip factor from the partial sums before updates.
	Clip bool `json:"clip,omitempty"`
	// Held: an iteration only adds to gradients that are held as the first state of each param,
	// and the rule is applied to them when the loop says so.
	Held bool `json:"held,omitempty"`
	// Averaged: the last state of each param is a running average of its weights.
	Averaged bool `json:"averaged,omitempty"`
	// Outputs: results are the model's outputs, whose gradient comes with the batch.
	Outputs bool `json:"outputs,omitempty"`
	// Centralized: gradients of matrices have the means of their rows taken off.
	Centralized bool `json:"centralized,omitempty"`
}

// Names of states that no rule has.
const (
	HeldGradient = "held_gradient"
	Average      = "ema"
)

// Program is a graph program with a place for every value.
type Program struct {
	Graph  *graph.Program `json:"graph"`
	Places []Place        `json:"places"` // by value; entry 0 unused
	// Frame is the scratch memory of a run in bytes: its inner values, then what kernels
	// need, from Workspace on.
	Frame     int64 `json:"frame"`
	Workspace int64 `json:"workspace"`
}

// Place of a value: a region that is bound when the program runs, and bytes into it.
type Place struct {
	Region Region `json:"region,omitempty"`
	Index  int    `json:"index,omitempty"`
	Offset int64  `json:"offset,omitempty"`
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
