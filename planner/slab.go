package planner

import (
	"slices"

	"spillway/dtype"
	"spillway/plan"
	"spillway/planner/pass"
	"spillway/spec"
)

// slabs groups the params of a model by the block that uses each first. Tied
// params belong to the first of their blocks. Frozen params are apart from trained
// ones, so that what does not change is never sent back, and trained ones of one type
// from those of another, so that gradients and masters of a slab are alike.
type slabs struct {
	list   []plan.Slab
	at     []paramAt // by param
	of     [][]int   // by block: the slabs its program reads, in order of first use
	users  []int     // by slab: how many blocks use it
	params [][]int   // by slab
}

// paramAt is the place of a param.
type paramAt struct{ slab, index int }

// makeSlabs lays out all params. Offsets of weights are aligned, so that kernels
// read whole vectors; so are elements.
func makeSlabs(m *spec.Model, align int64, g Goal) slabs {
	s := slabs{at: make([]paramAt, len(m.Params)), of: make([][]int, len(m.Blocks))}
	for i := range s.at {
		s.at[i].slab = -1
	}
	for b, block := range m.Blocks {
		own := map[dtype.Type]int{} // by the type of trained params; frozen ones have none
		for _, id := range block.Params {
			if s.at[id].slab >= 0 {
				continue
			}
			trained := dtype.Invalid
			if !m.Params[id].Frozen {
				trained = m.Params[id].Type.DType
			}
			k, ok := own[trained]
			if !ok {
				k = len(s.list)
				own[trained] = k
				s.list = append(s.list, plan.Slab{Name: block.Name, Weight: -1, Gradient: -1})
				s.users, s.params = append(s.users, 0), append(s.params, nil)
			}
			s.at[id] = paramAt{k, len(s.list[k].Params)}
			s.params[k] = append(s.params[k], id)
			addParam(&s.list[k], m.Params[id], align, g)
		}
		s.of[b] = s.usedBy(block)
		for _, k := range s.of[b] {
			s.users[k]++
		}
	}
	return s
}

// addParam appends a param. Elements are aligned as f32 would be, so that they are
// aligned in every wider or equal type, and where states have blocks to those, so that
// pieces can be cut between blocks.
func addParam(s *plan.Slab, p spec.Param, align int64, g Goal) {
	q := plan.SlabParam{Name: p.Name, Type: p.Type, Offset: pass.AlignUp(s.WeightBytes, align), Element: -1}
	s.WeightBytes = q.Offset + p.Type.Bytes()
	if !p.Frozen {
		q.Decay = g.Decay != nil && g.Decay(p.Name)
		if g.Optimizer != nil && g.Optimizer.States != nil {
			q.States = g.Optimizer.States(p)
		}
		q.Element = pass.AlignUp(s.Elements, align/4)
		if q.HasBlockState() {
			q.Element = pass.AlignUp(q.Element, plan.StateBlockElements)
		}
		s.Elements = q.Element + p.Type.Shape.Elements()
	}
	s.Params = append(s.Params, q)
}

func (s *slabs) usedBy(block spec.Block) []int {
	var used []int
	for _, id := range block.Params {
		if k := s.at[id].slab; slices.Index(used, k) < 0 {
			used = append(used, k)
		}
	}
	return used
}

// smallSlab is the share of the largest slab of its block below which one is small:
// adapters beside the weights they adapt.
const smallSlab = 0.05

// small marks slabs that are small beside another one of their block.
func (s *slabs) small() []bool {
	marks := make([]bool, len(s.list))
	for _, used := range s.of {
		var largest int64
		for _, k := range used {
			largest = max(largest, s.list[k].WeightBytes)
		}
		for _, k := range used {
			marks[k] = marks[k] || float64(s.list[k].WeightBytes) < smallSlab*float64(largest)
		}
	}
	return marks
}

// streaming marks n slabs whose weights stream, as evenly as can be. Small ones are the
// last: each would free little memory and take a place of the window.
func (s *slabs) streaming(n int) []bool {
	var large, small []int
	for k, mark := range s.small() {
		if mark {
			small = append(small, k)
		} else {
			large = append(large, k)
		}
	}
	marks := make([]bool, len(s.list))
	for i, mark := range spread(min(n, len(large)), len(large)) {
		marks[large[i]] = mark
	}
	for i, mark := range spread(max(n-len(large), 0), len(small)) {
		marks[small[i]] = mark
	}
	return marks
}
