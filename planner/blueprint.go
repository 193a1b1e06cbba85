package planner

import (
	"fmt"
	"slices"

	"spillway/autograd"
	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/plan"
	"spillway/planner/pass"
	"spillway/planner/strategy"
	"spillway/shape"
	"spillway/spec"
)

// blueprint is what all plans of one model and goal share: slabs, batch layout,
// and the programs of its blocks, made when first asked for.
type blueprint struct {
	model     *spec.Model
	goal      Goal
	site      Site
	slabs     slabs
	owner     []int   // by slab: the block that owns it
	homeBytes []int64 // by slab: bytes of its weights and of what the optimizer keeps
	// trained is the first block with a trainable param: backward stops there.
	trained int

	parts        []plan.BatchTensor
	batchBytes   int64
	consts       []plan.Const
	constBytes   int64
	normStart    []int64 // by slab: where its sums of squares start among all, in elements
	normElements int64

	optimizer *plan.Optimizer // nil when nothing is trained
	pieces    map[pieceSizes][]piece
	scratches map[string]int64 // of updates, by updateKey

	partAt         map[string]plan.BatchTensor
	constAt        map[string]plan.Const
	joints         map[jointKey]*autograd.Joint
	programs       map[programKey]*laidProgram
	layouts        []int // by block: equal where params lie in their slabs alike
	names          []blockNames
	carries        int      // between blocks, at most
	usualSize      planSize // of plans
	spare          spareMemory
	updateTimes    []updateTime // by slab, see updates
	usualPiece     int64        // see pieceElements
	programSeconds map[*graph.Program]float64
	levels         []strategy.Level // that blocks are treated at, see findLevels
	costs          map[costKey]blockCost
	savedBytes     map[costKey]int64 // see waits
	entangledSlabs bool              // see entangled
	splits         map[int][]int     // by number of devices
	kernels        *kernelCache
}

type jointKey struct {
	kind      int
	inputGrad bool
}

// laid is a program ready for a plan.
type laidProgram struct {
	plan.Program
	savedBytes int64          // bytes handed from forward to backward
	binds      []plan.Binding // region and index of everything it binds
	bytes      []int64        // by bind: how much of it the program uses
}

// blockNames are the names of what a run of a block makes.
type blockNames struct{ frame, output, inputGrad, saved string }

// newBlueprint checks the goal and lays out params, batch and constants.
func newBlueprint(m *spec.Model, g Goal, site Site) (*blueprint, error) {
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
	b := &blueprint{model: m, goal: g, site: site, slabs: makeSlabs(m, site.Alignment, g),
		pieces: map[pieceSizes][]piece{}, scratches: map[string]int64{}, partAt: map[string]plan.BatchTensor{}, constAt: map[string]plan.Const{},
		joints: map[jointKey]*autograd.Joint{}, programs: map[programKey]*laidProgram{}, programSeconds: map[*graph.Program]float64{}, costs: map[costKey]blockCost{}, savedBytes: map[costKey]int64{}, splits: map[int][]int{},
		kernels: &kernelCache{from: site.Kernels, made: map[string]int64{}}}
	if o := g.Optimizer; o != nil {
		b.optimizer = &plan.Optimizer{Rule: o.Rule, GradType: g.Grad, Clip: o.Clip}
		if g.Master {
			b.optimizer.Attr.To = m.Config.DType
		}
	}
	if err := b.checkGoal(); err != nil {
		return nil, fmt.Errorf("planning %s: %w", m.Name, err)
	}
	b.homeBytes = b.slabHomeBytes()
	b.ownSlabs()
	b.trained = b.firstTrained()
	b.entangledSlabs = b.entangled()
	b.carries = b.mostCarries()
	b.levels = b.findLevels()
	b.nameBlocks()
	b.layParts()
	b.layConsts()
	return b, nil
}

// checkGoal refuses what cannot be, and limits the site to the devices that are named.
func (b *blueprint) checkGoal() error {
	if err := b.goal.Constraints.Check(b.model, b.facts()); err != nil {
		return err
	}
	if n := b.goal.Constraints.Devices(); n > 0 {
		b.site.Devices = n
	}
	return b.goal.Bounds.Check(b.goal.Constraints)
}

// nameBlocks finds which blocks are laid out alike, and names what they make.
func (b *blueprint) nameBlocks() {
	known := map[string]int{}
	for i, block := range b.model.Blocks {
		offsets := b.offsetsOf(i)
		if _, ok := known[offsets]; !ok {
			known[offsets] = len(known)
		}
		b.layouts = append(b.layouts, known[offsets])
		b.names = append(b.names, blockNames{block.Name + " frame", block.Name + " output", block.Name + " input gradient", block.Name + " kept"})
	}
}

func (b *blueprint) training() bool { return b.goal.Optimizer != nil }

// seconds a program takes, at the rates of the site.
func (b *blueprint) seconds(p *graph.Program) float64 {
	if t, ok := b.programSeconds[p]; ok {
		return t
	}
	var t float64
	timing := b.site.timing()
	for _, n := range p.Nodes {
		t += timing.Time(p.Call(n)).Seconds()
	}
	b.programSeconds[p] = t
	return t
}

// shares says whether a block shares a trained slab with another.
func (b *blueprint) shares(block int) bool {
	for _, k := range b.slabs.of[block] {
		if b.slabs.users[k] > 1 && b.slabs.list[k].Elements > 0 {
			return true
		}
	}
	return false
}

// entangled says whether blocks other than the first trained one and one more share
// a trained slab: then only the vertical order sums its gradient block by block.
func (b *blueprint) entangled() bool {
	for k, s := range b.slabs.list {
		if n := b.slabs.users[k]; s.Elements > 0 && (n > 2 || n == 2 && slices.Index(b.slabs.of[b.trained], k) < 0) {
			return true
		}
	}
	return false
}

func (b *blueprint) ownSlabs() {
	b.owner = make([]int, len(b.slabs.list))
	b.normStart = make([]int64, len(b.slabs.list))
	seen := make([]bool, len(b.slabs.list))
	for i, used := range b.slabs.of {
		for _, k := range used {
			if !seen[k] {
				seen[k], b.owner[k] = true, i
			}
		}
	}
	for k, s := range b.slabs.list {
		b.normStart[k] = b.normElements
		for _, p := range s.Params {
			if !p.Frozen() {
				b.normElements++
			}
		}
	}
}

// layParts places the tensors of a micro-batch behind each other. Training adds
// the seed: the gradient of the loss with respect to itself.
func (b *blueprint) layParts() {
	parts := b.model.Batch
	if b.training() {
		parts = append(parts[:len(parts):len(parts)], spec.BatchTensor{Name: autograd.LossScale, Type: op.Type{DType: dtype.F32, Shape: shape.Of(1)}})
	}
	for _, p := range parts {
		part := plan.BatchTensor{Name: p.Name, Type: p.Type, Offset: pass.AlignUp(b.batchBytes, b.site.Alignment)}
		b.batchBytes = part.Offset + p.Type.Bytes()
		b.parts = append(b.parts, part)
		b.partAt[p.Name] = part
	}
}

func (b *blueprint) layConsts() {
	for _, k := range b.model.Kinds {
		for _, port := range graph.Ports(k.Program.Inputs, graph.Const) {
			key := constKey(port)
			if _, ok := b.constAt[key]; ok {
				continue
			}
			c := plan.Const{Name: port.Name, Data: port.Data, Offset: pass.AlignUp(b.constBytes, b.site.Alignment)}
			b.constBytes = c.Offset + int64(len(c.Data))
			b.consts = append(b.consts, c)
			b.constAt[key] = c
		}
	}
}

func (b *blueprint) firstTrained() int {
	for i, block := range b.model.Blocks {
		for _, id := range block.Params {
			if !b.model.Params[id].Frozen {
				return i
			}
		}
	}
	return len(b.model.Blocks)
}
