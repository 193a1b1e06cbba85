package planner

import (
	"fmt"

	"spillway/autograd"
	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/plan"
	"spillway/shape"
	"spillway/spec"
)

// blueprint is what all plans of one model and goal share: slabs, batch layout,
// and the programs of its blocks, made when first asked for.
type blueprint struct {
	model *spec.Model
	goal  Goal
	site  Site
	slabs slabs
	owner []int   // by slab: the block that owns it
	kept  []int64 // by slab: bytes of its weights and of what the optimizer keeps
	// trained is the first block with a trainable param: backward stops there.
	trained int

	parts      []plan.Part
	batchBytes int64
	consts     []plan.Const
	constBytes int64
	partials   []int64 // by slab: where its sums of squares start among all, in elements
	partialLen int64

	update    *plan.Update // nil when nothing is trained
	pieces    map[pieceSizes][]piece
	scratches map[string]int64 // of updates, by updateKey

	partAt      map[string]plan.Part
	constAt     map[string]plan.Const
	joints      map[jointKey]*autograd.Joint
	programs    map[programKey]*laid
	layouts     []int // by block: equal where params lie in their slabs alike
	names       []blockNames
	carries     int  // between blocks, at most
	usual       size // of plans
	room        room
	updateTimes []updateTime // by slab, see updates
	usualPiece  int64        // see pieceElements
	took        map[*graph.Program]float64
	levels      []Level // that blocks are treated at, see findLevels
	costs       map[costKey]blockCost
	waiting     map[costKey]int64 // see waits
	tangled     bool              // see entangled
	splits      map[int][]int     // by number of devices
	kernels     *kernelCache
}

type jointKey struct {
	kind      int
	inputGrad bool
}

// laid is a program ready for a plan.
type laid struct {
	plan.Program
	kept  int64       // bytes handed from forward to backward
	binds []plan.Bind // region and index of everything it binds
	bytes []int64     // by bind: how much of it the program uses
}

// blockNames are the names of what a run of a block makes.
type blockNames struct{ frame, output, inputGrad, kept string }

// newBlueprint checks the goal and lays out params, batch and constants.
func newBlueprint(m *spec.Model, g Goal, site Site) (*blueprint, error) {
	if err := m.Verify(); err != nil {
		return nil, err
	}
	g.Micros = max(g.Micros, 1)
	if g.Grad == dtype.Invalid {
		g.Grad = m.Config.DType
	}
	if g.Optimizer != nil && m.Config.Task != graph.Train {
		return nil, fmt.Errorf("planning %s: an optimizer needs a model traced for training, not for %s", m.Name, m.Config.Task)
	}
	if err := g.Insist.check(m, g, &site); err != nil {
		return nil, fmt.Errorf("planning %s: %w", m.Name, err)
	}
	if err := g.Bounds.check(g.Insist); err != nil {
		return nil, fmt.Errorf("planning %s: %w", m.Name, err)
	}
	b := &blueprint{model: m, goal: g, site: site, slabs: makeSlabs(m, site.Alignment, g),
		pieces: map[pieceSizes][]piece{}, scratches: map[string]int64{}, partAt: map[string]plan.Part{}, constAt: map[string]plan.Const{},
		joints: map[jointKey]*autograd.Joint{}, programs: map[programKey]*laid{}, took: map[*graph.Program]float64{}, costs: map[costKey]blockCost{}, waiting: map[costKey]int64{}, splits: map[int][]int{},
		kernels: &kernelCache{from: site.Kernels, made: map[string]int64{}}}
	if o := g.Optimizer; o != nil {
		b.update = &plan.Update{Rule: o.Rule, Attr: o.Attr, Grad: g.Grad, Clip: o.Clip}
		if g.Master {
			b.update.Attr.To = m.Config.DType
		}
	}
	b.kept = b.keptBytes()
	b.ownSlabs()
	b.trained = b.firstTrained()
	b.tangled = b.entangled()
	b.carries = b.mostCarries()
	b.levels = b.findLevels()
	b.nameBlocks()
	b.layParts()
	b.layConsts()
	return b, nil
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
	if t, ok := b.took[p]; ok {
		return t
	}
	var t float64
	for _, n := range p.Nodes {
		t += b.site.Rates.Time(p.Call(n)).Seconds()
	}
	b.took[p] = t
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
		if n := b.slabs.users[k]; s.Elements > 0 && (n > 2 || n == 2 && indexOf(b.slabs.of[b.trained], k) < 0) {
			return true
		}
	}
	return false
}

func (b *blueprint) ownSlabs() {
	b.owner = make([]int, len(b.slabs.list))
	b.partials = make([]int64, len(b.slabs.list))
	seen := make([]bool, len(b.slabs.list))
	for i, used := range b.slabs.of {
		for _, k := range used {
			if !seen[k] {
				seen[k], b.owner[k] = true, i
			}
		}
	}
	for k, s := range b.slabs.list {
		b.partials[k] = b.partialLen
		for _, p := range s.Params {
			if !p.Frozen() {
				b.partialLen++
			}
		}
	}
}

// layParts places the tensors of a micro-batch behind each other. Training adds
// the seed: the gradient of the loss with respect to itself.
func (b *blueprint) layParts() {
	parts := b.model.Parts
	if b.training() {
		parts = append(parts[:len(parts):len(parts)], spec.Part{Name: "seed", Type: op.Type{DType: dtype.F32, Shape: shape.Of(1)}})
	}
	for _, p := range parts {
		part := plan.Part{Name: p.Name, Type: p.Type, Offset: up(b.batchBytes, b.site.Alignment)}
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
			c := plan.Const{Name: port.Name, Data: port.Data, Offset: up(b.constBytes, b.site.Alignment)}
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
