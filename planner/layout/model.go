// Package layout lays a model out for planning: everything that does not depend on what a
// plan chooses.
//
// Params are grouped into slabs, one flat buffer per block (frozen and trained params apart),
// so that a block's weights move with one copy. The tensors of a micro-batch and constants
// get offsets. Each kind of block has programs (forward, backward, both at once) whose values
// have places: inputs and outputs by role, the rest in a frame, packed by lifetime.
//
//	l, err := layout.New(model, goal, site)
//	l.Slabs.List[3].WeightBytes                             // what streaming block 3 moves
//	l.Program(3, layout.Backward, strategy.SaveNone, fresh) // its backward, with the forward again
//
// Programs are made when first asked for and kept: eighty equal layers share one.
package layout

import (
	"cmp"
	"fmt"
	"slices"

	"spillway/autograd"
	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/plan"
	"spillway/planner/goal"
	"spillway/planner/pass"
	"spillway/planner/strategy"
	"spillway/shape"
	"spillway/spec"
)

// Layout is a model laid out for a goal and a site: what all plans of it share. Programs are
// made when first asked for.
type Layout struct {
	Model *spec.Model
	Goal  goal.Goal
	Site  goal.Site

	Slabs     Slabs
	Batch     packed[plan.BatchTensor] // of a micro-batch
	Consts    packed[plan.Const]
	Optimizer *plan.Optimizer // nil when nothing is trained

	// FirstTrained is the first block with a trainable param: the backward stops there.
	FirstTrained int
	Names        []BlockNames // by block
	MostCarries  int          // how many values a block hands to the next, at most

	levels         []strategy.Level // that blocks may save at, see findLevels
	entangledSlabs bool             // see entangled
	programs       programs
	pieces         pieces
}

// packed is data that lies behind each other in one buffer, found by key.
type packed[T any] struct {
	List  []T
	Bytes int64
	at    map[string]T
}

// programs are those of blocks, each made once.
type programs struct {
	joints  map[jointKey]*autograd.Joint
	laid    map[programKey]*LaidProgram
	layouts []int                             // by block: equal where params lie in their slabs alike
	decoded map[*graph.Program]*graph.Program // see Computed
	seconds map[*graph.Program]float64
	kernels *kernelCache
	// cpuKernels are those of the CPU next to a GPU.
	cpuKernels *kernelCache
}

// pieces are the cuts of slabs, each made once.
type pieces struct {
	cuts      map[pieceSizes][]Piece
	scratches map[string]int64 // of updates, by updateKey
	usual     int64            // elements, see PieceElements
}

type jointKey struct {
	kind      int
	inputGrad bool
}

// LaidProgram is a program with places for all its values, ready for a plan.
type LaidProgram struct {
	plan.Program
	SavedBytes int64          // saved from forward to backward
	Binds      []plan.Binding // region and index of everything it binds
	Bytes      []int64        // by binding: how much of it the program uses
}

// BlockNames are the names of the buffers that a run of a block writes.
type BlockNames struct{ Frame, Output, InputGrad, Saved string }

// MaxRuns is how often micro-batches may pass blocks in an iteration, forward: a plan is as long,
// and has to fit into memory itself.
const MaxRuns = 1 << 18

// New checks the goal and lays out params, batch and constants.
func New(m *spec.Model, g goal.Goal, site goal.Site) (*Layout, error) {
	if err := m.Verify(); err != nil {
		return nil, err
	}
	g.MicroBatches = max(g.MicroBatches, 1)
	if g.Grad == dtype.Invalid {
		g.Grad = m.Config.DType
	}
	if runs := int64(g.MicroBatches) * int64(len(m.Blocks)); runs > MaxRuns {
		return nil, fmt.Errorf("planning %s: %d micro-batches pass %d blocks, which are %d runs, more than the %d that a plan can have; use larger micro-batches, or a smaller batch", m.Name, g.MicroBatches, len(m.Blocks), runs, MaxRuns)
	}
	if g.Optimizer != nil && m.Config.Task != graph.Train {
		return nil, fmt.Errorf("planning %s: an optimizer needs a model traced for training, not for %s", m.Name, m.Config.Task)
	}
	l := &Layout{Model: m, Goal: g, Site: site, Slabs: makeSlabs(m, site.Alignment, g), MostCarries: 1,
		Batch:  packed[plan.BatchTensor]{at: map[string]plan.BatchTensor{}},
		Consts: packed[plan.Const]{at: map[string]plan.Const{}},
		pieces: pieces{cuts: map[pieceSizes][]Piece{}, scratches: map[string]int64{}},
		programs: programs{joints: map[jointKey]*autograd.Joint{}, laid: map[programKey]*LaidProgram{}, decoded: map[*graph.Program]*graph.Program{}, seconds: map[*graph.Program]float64{},
			kernels: &kernelCache{from: site.Kernels, made: map[string]int64{}}, cpuKernels: &kernelCache{from: site.CPUKernels, made: map[string]int64{}}}}
	if o := g.Optimizer; o != nil {
		l.Optimizer = &plan.Optimizer{Rule: o.Rule, GradType: g.Grad, Clip: o.Clip, Held: o.Held, Averaged: o.Averaged, Outputs: m.Config.Outputs, Centralized: m.Config.Centralize}
		if g.Master {
			l.Optimizer.Attr.To = m.Config.DType
		}
	}
	if err := cmp.Or(g.Constraints.Check(m, l.Facts()), g.Bounds.Check(g.Constraints)); err != nil {
		return nil, fmt.Errorf("planning %s: %w", m.Name, err)
	}
	if n := g.Constraints.Devices(); n > 0 { // only those that are named
		l.Site.Devices = n
	}
	l.Slabs.finish(l.Optimizer)
	l.FirstTrained = len(m.Blocks)
	for i := len(m.Blocks) - 1; i >= 0; i-- {
		if slices.ContainsFunc(m.Blocks[i].Params, func(id int) bool { return !m.Params[id].Frozen }) {
			l.FirstTrained = i
		}
	}
	l.entangledSlabs = l.Slabs.entangled(l.FirstTrained)
	for _, k := range m.Kinds {
		l.MostCarries = max(l.MostCarries, len(k.Program.Outputs))
	}
	l.levels = l.findLevels()
	known := map[string]int{}
	for i, block := range m.Blocks {
		offsets := l.Slabs.offsetsOf(i, block)
		if _, ok := known[offsets]; !ok {
			known[offsets] = len(known)
		}
		l.programs.layouts = append(l.programs.layouts, known[offsets])
		l.Names = append(l.Names, BlockNames{block.Name + " frame", block.Name + " output", block.Name + " input gradient", block.Name + " saved"})
	}
	l.layBatchAndConsts()
	return l, nil
}

// Seconds is how long a program takes at the rates of the site.
func (l *Layout) Seconds(p *graph.Program) float64 {
	if t, ok := l.programs.seconds[p]; ok {
		return t
	}
	var t float64
	timing := l.Site.Timing()
	for _, n := range p.Nodes {
		t += timing.Time(p.Call(n)).Seconds()
	}
	l.programs.seconds[p] = t
	return t
}

// layBatchAndConsts places the tensors of a micro-batch behind each other, then the constants
// of all programs. Training adds the scale that the loss is multiplied by.
func (l *Layout) layBatchAndConsts() {
	tensors := l.Model.Batch
	if l.Training() {
		start := spec.BatchTensor{Name: autograd.LossScale, Type: op.Type{DType: dtype.F32, Shape: shape.Of(1)}}
		if l.Model.Config.Outputs {
			last := l.Model.Program(len(l.Model.Blocks) - 1)
			start = spec.BatchTensor{Name: autograd.OutputGradient, Type: last.Type(last.Outputs[0].Value)}
		}
		tensors = append(tensors[:len(tensors):len(tensors)], start)
	}
	for _, p := range tensors {
		t := plan.BatchTensor{Name: p.Name, Type: p.Type, Offset: pass.AlignUp(l.Batch.Bytes, l.Site.Alignment)}
		l.Batch.Bytes = t.Offset + p.Type.Bytes()
		l.Batch.List = append(l.Batch.List, t)
		l.Batch.at[p.Name] = t
	}
	for _, k := range l.Model.Kinds {
		for _, port := range graph.Ports(k.Program.Inputs, graph.Const) {
			key := constKey(port)
			if _, ok := l.Consts.at[key]; ok {
				continue
			}
			c := plan.Const{Name: port.Name, Data: port.Data, Offset: pass.AlignUp(l.Consts.Bytes, l.Site.Alignment)}
			l.Consts.Bytes = c.Offset + int64(len(c.Data))
			l.Consts.List = append(l.Consts.List, c)
			l.Consts.at[key] = c
		}
	}
}
