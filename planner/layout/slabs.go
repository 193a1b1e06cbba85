package layout

import (
	"fmt"
	"slices"
	"strings"

	"spillway/dtype"
	"spillway/plan"
	"spillway/planner/goal"
	"spillway/planner/pass"
	"spillway/spec"
)

// Slabs are the params of a model, grouped by the block that reads each first, into flat
// buffers. Tied params belong to the first of their blocks. Frozen params are apart from
// trained ones, so that what does not change is never sent back, and trained ones of one
// type from those of another, so that a slab has gradients of one type.
type Slabs struct {
	List      []plan.Slab
	Place     []ParamPlace // by param
	OfBlock   [][]int      // by block: the slabs its program reads, in order of first use
	UserCount []int        // by slab: how many blocks use it
	Params    [][]int      // by slab
	Owner     []int        // by slab: the block that owns it, the first that reads it
	HomeBytes []int64      // by slab: bytes of its weights, master weights and optimizer state
	// NormStart, by slab, is where its sums of squares start among all, in elements; there
	// are NormElements.
	NormStart    []int64
	NormElements int64
}

// ParamPlace is where a param is: its slab, and its index there.
type ParamPlace struct{ Slab, index int }

// makeSlabs lays out all params. Offsets of weights are aligned, so that kernels read whole
// vectors; so are elements.
func makeSlabs(m *spec.Model, align int64, g goal.Goal) Slabs {
	s := Slabs{Place: make([]ParamPlace, len(m.Params)), OfBlock: make([][]int, len(m.Blocks))}
	for i := range s.Place {
		s.Place[i].Slab = -1
	}
	for b, block := range m.Blocks {
		own := map[slabKind]int{}
		for _, id := range block.Params {
			if s.Place[id].Slab >= 0 {
				continue
			}
			var kind slabKind
			if !m.Params[id].Frozen {
				kind.trained = m.Params[id].Type.DType
			}
			if !m.Params[id].Frozen && g.CanonicalSums {
				kind.users = usersOf(m, id)
			}
			k, ok := own[kind]
			if !ok {
				k = len(s.List)
				own[kind] = k
				s.List = append(s.List, plan.Slab{Name: block.Name, Weight: -1, Gradient: -1})
				s.UserCount, s.Params = append(s.UserCount, 0), append(s.Params, nil)
			}
			s.Place[id] = ParamPlace{k, len(s.List[k].Params)}
			s.Params[k] = append(s.Params[k], id)
			addParam(&s.List[k], m.Params[id], align, g)
		}
		for _, id := range block.Params {
			if k := s.Place[id].Slab; !slices.Contains(s.OfBlock[b], k) {
				s.OfBlock[b] = append(s.OfBlock[b], k)
				s.UserCount[k]++
			}
		}
	}
	return s
}

// slabKind is what the params of a slab have in common, in addition to their block.
type slabKind struct {
	trained dtype.Type // frozen ones have none
	// users are the blocks that use them. Where sums are canonical a block writes a whole slab of
	// gradients, so that tied params have a slab of their own.
	users string
}

// usersOf lists the blocks that use a param.
func usersOf(m *spec.Model, id int) (list string) {
	for b, block := range m.Blocks {
		if slices.Contains(block.Params, id) {
			list += fmt.Sprint(b, " ")
		}
	}
	return list
}

// addParam appends a param. Elements are aligned as f32 would be, so that they are
// aligned in every wider or equal type, and where states have blocks to those, so that
// pieces can be cut between blocks.
func addParam(s *plan.Slab, p spec.Param, align int64, g goal.Goal) {
	q := plan.SlabParam{Name: p.Name, Type: p.Type, Offset: pass.AlignUp(s.WeightBytes, align), Element: -1}
	s.WeightBytes = q.Offset + p.Type.Bytes()
	if !p.Frozen {
		q.Decay = g.Decay != nil && g.Decay(p.Name)
		if g.Group != nil {
			q.Group = g.Group(p.Name)
		}
		if g.Optimizer != nil && g.Optimizer.States != nil {
			q.States = g.Optimizer.States(p)
		}
		// Gradients of micro-batches are sums; a statistic moves towards their mean.
		q.Momentum = p.Momentum / float64(max(g.MicroBatches, 1))
		q.Element = pass.AlignUp(s.Elements, align/4)
		if q.HasBlockState() {
			q.Element = pass.AlignUp(q.Element, plan.StateBlockElements)
		}
		s.Elements = q.Element + p.Type.Shape.Elements()
	}
	s.Params = append(s.Params, q)
}

// finish finds the owners of slabs, where their sums of squares go, and the size of their
// homes.
func (s *Slabs) finish(o *plan.Optimizer) {
	s.Owner, s.NormStart, s.HomeBytes = make([]int, len(s.List)), make([]int64, len(s.List)), make([]int64, len(s.List))
	for i, used := range slices.Backward(s.OfBlock) {
		for _, k := range used {
			s.Owner[k] = i
		}
	}
	for k := range s.List {
		slab := &s.List[k]
		s.NormStart[k], s.HomeBytes[k] = s.NormElements, slab.WeightBytes
		for _, p := range slab.Params {
			if !p.Frozen() {
				s.NormElements++
			}
			for _, state := range p.States {
				s.HomeBytes[k] += state.Bytes()
			}
		}
		if o != nil && o.HasMaster(slab.TrainedType()) {
			s.HomeBytes[k] += 4 * slab.Elements
		}
	}
}

// Shares says whether a block shares a trained slab with another.
func (s *Slabs) Shares(block int) bool {
	return slices.ContainsFunc(s.OfBlock[block], func(k int) bool { return s.UserCount[k] > 1 && s.List[k].Elements > 0 })
}

// entangled says whether blocks other than the first trained one and one more share a
// trained slab: then only the breadth-first order sums its gradient block by block.
func (s *Slabs) entangled(firstTrained int) bool {
	for k, slab := range s.List {
		if n := s.UserCount[k]; slab.Elements > 0 && (n > 2 || n == 2 && !slices.Contains(s.OfBlock[firstTrained], k)) {
			return true
		}
	}
	return false
}

// offsetsOf describes where the params of a block lie in their slabs.
func (s *Slabs) offsetsOf(i int, block spec.Block) string {
	var text strings.Builder
	for _, id := range block.Params {
		at := s.Place[id]
		q := s.List[at.Slab].Params[at.index]
		fmt.Fprintf(&text, "%d:%d:%d ", slices.Index(s.OfBlock[i], at.Slab), q.Offset, q.Element)
	}
	return text.String()
}

// smallSlab is the share of the largest slab of its block below which a slab is small:
// adapters next to the weights they adapt.
const smallSlab = 0.05

// Streaming marks n slabs whose weights stream, as evenly as can be. Small ones come last:
// each would free little memory and count against the prefetch depth.
func (s *Slabs) Streaming(n int) []bool {
	isSmall := make([]bool, len(s.List))
	for _, used := range s.OfBlock {
		var largest int64
		for _, k := range used {
			largest = max(largest, s.List[k].WeightBytes)
		}
		for _, k := range used {
			isSmall[k] = isSmall[k] || float64(s.List[k].WeightBytes) < smallSlab*float64(largest)
		}
	}
	var large, small []int
	for k, mark := range isSmall {
		if mark {
			small = append(small, k)
		} else {
			large = append(large, k)
		}
	}
	marks := make([]bool, len(s.List))
	for i, mark := range Spread(min(n, len(large)), len(large)) {
		marks[large[i]] = mark
	}
	for i, mark := range Spread(max(n-len(large), 0), len(small)) {
		marks[small[i]] = mark
	}
	return marks
}

// spread marks n of the places, as evenly as can be.
func Spread(n, of int) []bool {
	marks := make([]bool, of)
	for i := range marks {
		marks[i] = (i+1)*n/of > i*n/of
	}
	return marks
}
