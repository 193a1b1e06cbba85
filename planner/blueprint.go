package planner

import (
	"fmt"
	"strings"

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
	carries     int          // between blocks, at most
	usual       size         // of plans
	updateTimes []updateTime // by slab, see updates
	usualPiece  int64        // see pieceElements
	took        map[*graph.Program]float64
	costs       map[costKey]float64
	tangled     bool // see entangled
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
		joints: map[jointKey]*autograd.Joint{}, programs: map[programKey]*laid{}, took: map[*graph.Program]float64{}, costs: map[costKey]float64{},
		kernels: &kernelCache{from: site.Kernels, made: map[string]int64{}}}
	if o := g.Optimizer; o != nil {
		b.update = &plan.Update{Rule: o.Rule, Attr: o.Attr, Grad: g.Grad, Clip: o.Clip}
		if g.Master {
			b.update.Attr.To = m.Config.DType
		}
	}
	b.kept = keptBytes(b.slabs.list, g.Master)
	b.ownSlabs()
	b.trained = b.firstTrained()
	b.tangled = b.entangled()
	b.carries = b.mostCarries()
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

// joint is the block's program with its gradient.
func (b *blueprint) joint(block int) (*autograd.Joint, error) {
	key := jointKey{b.model.Blocks[block].Kind, block > b.trained}
	if j, ok := b.joints[key]; ok {
		return j, nil
	}
	j, err := autograd.Differentiate(b.model.Program(block), autograd.Options{InputGrad: key.inputGrad})
	if err != nil {
		return nil, fmt.Errorf("differentiating block %s: %w", b.model.Blocks[block].Name, err)
	}
	b.joints[key] = j
	return j, nil
}

// phase is which of a block's programs runs.
type phase string

const (
	forwardOnly phase = "infer"    // nothing is differentiated
	forward     phase = "forward"  // of a pair
	backward    phase = "backward" // of a pair
	both        phase = "step"     // the last block: forward and backward at once
	squares     phase = "squares"  // sums of squares of a slab's gradients
)

// program of a block. fresh tells, by param port, whose gradient is written for
// the first time this iteration.
func (b *blueprint) program(block int, ph phase, level Level, fresh []bool) (*laid, error) {
	key := b.programKey(block, ph, level, fresh)
	if l, ok := b.programs[key]; ok {
		return l, nil
	}
	l, err := b.makeProgram(block, ph, level, fresh)
	if err != nil {
		return nil, err
	}
	b.programs[key] = l
	return l, nil
}

// programKey is equal for blocks that can share a placed program: the same kind
// with the same offsets in their slabs.
type programKey struct {
	kind      int
	phase     phase
	level     Level
	fresh     string
	inputGrad bool
	layout    int
}

func (b *blueprint) programKey(block int, ph phase, level Level, fresh []bool) programKey {
	return programKey{b.model.Blocks[block].Kind, ph, level, marks(fresh), block > b.trained, b.layouts[block]}
}

// marks are flags as a string; short for the usual, that all are equal.
func marks(flags []bool) string {
	switch n := count(flags); {
	case n == 0:
		return ""
	case n == len(flags):
		return "all"
	}
	list := make([]byte, len(flags))
	for i, f := range flags {
		if f {
			list[i] = 1
		}
	}
	return string(list)
}

// offsetsOf describes where the params of a block lie.
func (b *blueprint) offsetsOf(block int) string {
	var s strings.Builder
	for _, id := range b.model.Blocks[block].Params {
		at := b.slabs.at[id]
		q := b.slabs.list[at.slab].Params[at.index]
		fmt.Fprintf(&s, "%d:%d:%d ", indexOf(b.slabs.of[block], at.slab), q.Offset, q.Element)
	}
	return s.String()
}

func (b *blueprint) makeProgram(block int, ph phase, level Level, fresh []bool) (*laid, error) {
	lay := &layout{slabs: &b.slabs, block: b.model.Blocks[block], index: block, grad: op.Type{DType: b.goal.Grad}, parts: b.partAt, consts: b.constAt}
	var g *graph.Program
	var kept int64
	switch ph {
	case forwardOnly:
		g = b.model.Program(block)
	case squares:
		g = b.squares(block)
	default:
		j, err := b.joint(block)
		if err != nil {
			return nil, err
		}
		keep := keepSet(j, level)
		lay.keep, kept = layKept(j, keep, b.site.Alignment)
		g, err = differentiated(j, ph, keep, func(i int) bool { return !fresh[i] })
		if err != nil {
			return nil, fmt.Errorf("block %s: %w", lay.block.Name, err)
		}
	}
	p, err := lay.lay(g, b.kernels, b.site.Alignment)
	if err != nil {
		return nil, err
	}
	l := &laid{Program: p, kept: kept, binds: bindsOf(p)}
	for _, need := range l.binds {
		l.bytes = append(l.bytes, regionBytes(l, need))
	}
	return l, nil
}

func differentiated(j *autograd.Joint, ph phase, keep []graph.Value, accumulate func(int) bool) (*graph.Program, error) {
	if ph == both {
		return j.Merged(accumulate)
	}
	f, back, err := j.Split(keep, accumulate)
	if ph == forward {
		return f, err
	}
	return back, err
}

func layKept(j *autograd.Joint, keep []graph.Value, align int64) (map[int]int64, int64) {
	at, bytes := map[int]int64{}, int64(0)
	for i, v := range keep {
		at[i] = up(bytes, align)
		bytes = at[i] + j.Program.Type(v).Bytes()
	}
	return at, bytes
}

// squares is the program that sums the squares of the gradients of the slab a
// block owns, a partial sum per param.
func (b *blueprint) squares(block int) *graph.Program {
	p := &graph.Program{Name: "squares", Types: make([]op.Type, 1)}
	for i, id := range b.model.Blocks[block].Params {
		at := b.slabs.at[id]
		if b.owner[at.slab] != block || b.model.Params[id].Frozen {
			continue
		}
		n := graph.Value(len(p.Types))
		p.Types = append(p.Types, op.Type{DType: b.goal.Grad, Shape: b.model.Params[id].Type.Shape}, op.Type{DType: dtype.F64, Shape: shape.Of(1)})
		p.Inputs = append(p.Inputs, graph.Port{Value: n, Role: graph.GradParam, Index: i})
		p.Nodes = append(p.Nodes, graph.Node{Kind: op.SumSquares, In: []graph.Value{n}, Out: []graph.Value{n + 1}})
		p.Outputs = append(p.Outputs, graph.Port{Value: n + 1, Role: graph.Partial, Index: len(p.Outputs)})
	}
	return p
}

// bindsOf lists the regions a program touches.
func bindsOf(p plan.Program) []plan.Bind {
	var binds []plan.Bind
	seen := map[plan.Bind]bool{}
	for _, place := range p.Places[1:] {
		k := plan.Bind{Region: place.Region, Index: place.Index}
		if place.Region == "" || place.Region == plan.InFrame || seen[k] {
			continue
		}
		seen[k] = true
		binds = append(binds, k)
	}
	if p.Frame > 0 {
		binds = append(binds, plan.Bind{Region: plan.InFrame})
	}
	return binds
}

// regionBytes is the end of the last value in a region.
func regionBytes(l *laid, need plan.Bind) (end int64) {
	for v, place := range l.Places {
		if v > 0 && place.Region == need.Region && place.Index == need.Index {
			end = max(end, place.Offset+l.Graph.Types[v].Bytes())
		}
	}
	return end
}
