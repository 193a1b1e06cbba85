package layout

import (
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

// blueprint is what all plans of one model and goal share: slabs, batch layout,
// and the programs of its blocks, made when first asked for.
type Layout struct {
	Model     *spec.Model
	Goal      goal.Goal
	Site      goal.Site
	Slabs     Slabs
	Owner     []int   // by slab: the block that owns it
	HomeBytes []int64 // by slab: bytes of its weights and of what the optimizer keeps
	// trained is the first block with a trainable param: backward stops there.
	FirstTrained int

	Parts        []plan.BatchTensor
	BatchBytes   int64
	Consts       []plan.Const
	ConstBytes   int64
	NormStart    []int64 // by slab: where its sums of squares start among all, in elements
	NormElements int64

	Optimizer *plan.Optimizer // nil when nothing is trained
	cuts      map[pieceSizes][]Piece
	scratches map[string]int64 // of updates, by updateKey

	partAt         map[string]plan.BatchTensor
	constAt        map[string]plan.Const
	joints         map[jointKey]*autograd.Joint
	programs       map[programKey]*LaidProgram
	layouts        []int // by block: equal where params lie in their slabs alike
	Names          []blockNames
	MostCarries    int   // between blocks, at most
	UsualPiece     int64 // see pieceElements
	programSeconds map[*graph.Program]float64
	levels         []strategy.Level // that blocks are treated at, see findLevels
	entangledSlabs bool             // see entangled
	kernels        *kernelCache
}

type jointKey struct {
	kind      int
	inputGrad bool
}

// laid is a program ready for a plan.
type LaidProgram struct {
	plan.Program
	SavedBytes int64          // bytes handed from forward to backward
	Binds      []plan.Binding // region and index of everything it binds
	Bytes      []int64        // by binding: how much of it the program uses
}

// blockNames are the names of what a run of a block makes.
type blockNames struct{ Frame, Output, InputGrad, Saved string }

// newBlueprint checks the goal and lays out params, batch and constants.
func New(m *spec.Model, g goal.Goal, site goal.Site) (*Layout, error) {
	if err := m.Verify(); err != nil {
		return nil, err
	}
	g.MicroBatches = max(g.MicroBatches, 1)
	if g.Grad == dtype.Invalid {
		g.Grad = m.Config.DType
	}
	if g.Optimizer != nil && m.Config.Task != graph.Train {
		return nil, fmt.Errorf("planning %s: an optimizer needs a model traced for training, not for %s", m.Name, m.Config.Task)
	}
	b := &Layout{Model: m, Goal: g, Site: site, Slabs: makeSlabs(m, site.Alignment, g),
		cuts: map[pieceSizes][]Piece{}, scratches: map[string]int64{}, partAt: map[string]plan.BatchTensor{}, constAt: map[string]plan.Const{},
		joints: map[jointKey]*autograd.Joint{}, programs: map[programKey]*LaidProgram{}, programSeconds: map[*graph.Program]float64{},
		kernels: &kernelCache{from: site.Kernels, made: map[string]int64{}}}
	if o := g.Optimizer; o != nil {
		b.Optimizer = &plan.Optimizer{Rule: o.Rule, GradType: g.Grad, Clip: o.Clip}
		if g.Master {
			b.Optimizer.Attr.To = m.Config.DType
		}
	}
	if err := b.checkGoal(); err != nil {
		return nil, fmt.Errorf("planning %s: %w", m.Name, err)
	}
	b.HomeBytes = b.slabHomeBytes()
	b.ownSlabs()
	b.FirstTrained = b.firstTrained()
	b.entangledSlabs = b.entangled()
	b.MostCarries = b.countCarries()
	b.levels = b.findLevels()
	b.nameBlocks()
	b.layParts()
	b.layConsts()
	return b, nil
}

// nameBlocks finds which blocks are laid out alike, and names what they make.
func (b *Layout) nameBlocks() {
	known := map[string]int{}
	for i, block := range b.Model.Blocks {
		offsets := b.offsetsOf(i)
		if _, ok := known[offsets]; !ok {
			known[offsets] = len(known)
		}
		b.layouts = append(b.layouts, known[offsets])
		b.Names = append(b.Names, blockNames{block.Name + " frame", block.Name + " output", block.Name + " input gradient", block.Name + " saved"})
	}
}

// seconds a program takes, at the rates of the site.
func (b *Layout) Seconds(p *graph.Program) float64 {
	if t, ok := b.programSeconds[p]; ok {
		return t
	}
	var t float64
	timing := b.Site.Timing()
	for _, n := range p.Nodes {
		t += timing.Time(p.Call(n)).Seconds()
	}
	b.programSeconds[p] = t
	return t
}

// shares says whether a block shares a trained slab with another.
func (b *Layout) Shares(block int) bool {
	for _, k := range b.Slabs.OfBlock[block] {
		if b.Slabs.UserCount[k] > 1 && b.Slabs.List[k].Elements > 0 {
			return true
		}
	}
	return false
}

// entangled says whether blocks other than the first trained one and one more share
// a trained slab: then only the vertical order sums its gradient block by block.
func (b *Layout) entangled() bool {
	for k, s := range b.Slabs.List {
		if n := b.Slabs.UserCount[k]; s.Elements > 0 && (n > 2 || n == 2 && slices.Index(b.Slabs.OfBlock[b.FirstTrained], k) < 0) {
			return true
		}
	}
	return false
}

func (b *Layout) ownSlabs() {
	b.Owner = make([]int, len(b.Slabs.List))
	b.NormStart = make([]int64, len(b.Slabs.List))
	seen := make([]bool, len(b.Slabs.List))
	for i, used := range b.Slabs.OfBlock {
		for _, k := range used {
			if !seen[k] {
				seen[k], b.Owner[k] = true, i
			}
		}
	}
	for k, s := range b.Slabs.List {
		b.NormStart[k] = b.NormElements
		for _, p := range s.Params {
			if !p.Frozen() {
				b.NormElements++
			}
		}
	}
}

// layParts places the tensors of a micro-batch behind each other. Training adds
// the seed: the gradient of the loss with respect to itself.
func (b *Layout) layParts() {
	parts := b.Model.Batch
	if b.Training() {
		parts = append(parts[:len(parts):len(parts)], spec.BatchTensor{Name: autograd.LossScale, Type: op.Type{DType: dtype.F32, Shape: shape.Of(1)}})
	}
	for _, p := range parts {
		part := plan.BatchTensor{Name: p.Name, Type: p.Type, Offset: pass.AlignUp(b.BatchBytes, b.Site.Alignment)}
		b.BatchBytes = part.Offset + p.Type.Bytes()
		b.Parts = append(b.Parts, part)
		b.partAt[p.Name] = part
	}
}

func (b *Layout) layConsts() {
	for _, k := range b.Model.Kinds {
		for _, port := range graph.Ports(k.Program.Inputs, graph.Const) {
			key := constKey(port)
			if _, ok := b.constAt[key]; ok {
				continue
			}
			c := plan.Const{Name: port.Name, Data: port.Data, Offset: pass.AlignUp(b.ConstBytes, b.Site.Alignment)}
			b.ConstBytes = c.Offset + int64(len(c.Data))
			b.Consts = append(b.Consts, c)
			b.constAt[key] = c
		}
	}
}

func (b *Layout) firstTrained() int {
	for i, block := range b.Model.Blocks {
		for _, id := range block.Params {
			if !b.Model.Params[id].Frozen {
				return i
			}
		}
	}
	return len(b.Model.Blocks)
}
