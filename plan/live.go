package plan

import (
	"iter"
	"maps"
)

// LifeChange says that a buffer begins or ceases to hold something.
type LifeChange struct {
	Instruction int // -1 for homes, which are alive from the beginning
	Buffer      int
	Alive       bool
	read        bool // the instruction that begins its life reads it, which is unsound
}

// Lives walks over the plan and gives every change of what is alive, in order: homes
// first, then each buffer at the first instruction that touches it and at its free. It is
// the one definition of who lives when; peaks, reports and the verifier follow from it.
func (p *Plan) Lives() iter.Seq[LifeChange] {
	return func(yield func(LifeChange) bool) {
		alive := make([]bool, len(p.Buffers))
		for id, b := range p.Buffers {
			if b.Home && !yield(LifeChange{Instruction: -1, Buffer: id, Alive: true}) {
				return
			}
			alive[id] = b.Home
		}
		for i, accesses := range p.Accesses() {
			for _, a := range accesses {
				if alive[a.Buffer] {
					continue
				}
				alive[a.Buffer] = true
				if !yield(LifeChange{Instruction: i, Buffer: a.Buffer, Alive: true, read: a.Read}) {
					return
				}
			}
			if s := &p.Instructions[i]; s.Verb == Free {
				alive[s.Dst] = false
				if !yield(LifeChange{Instruction: i, Buffer: s.Dst}) {
					return
				}
			}
		}
	}
}

// Use is the first and the last instruction that touch a buffer, -1 for none.
type Use struct{ First, Last int }

// Uses of all buffers. Before a plan has frees they say where those belong.
func (p *Plan) Uses() []Use { return p.UsesOf(p.Accesses()) }

// UsesOf is Uses, given the accesses of the plan.
func (p *Plan) UsesOf(accesses [][]Access) []Use {
	uses := make([]Use, len(p.Buffers))
	for id := range uses {
		uses[id] = Use{-1, -1}
	}
	for i, accesses := range accesses {
		for _, a := range accesses {
			if u := &uses[a.Buffer]; u.First < 0 {
				u.First = i
			}
			uses[a.Buffer].Last = i
		}
	}
	return uses
}

// PeakLive is the most bytes of device memory that live buffers take at once.
func (p *Plan) PeakLive() (most int64) {
	var live int64
	for c := range p.Lives() {
		if p.TierOf(c.Buffer) != OnDevice {
			continue
		}
		if c.Alive {
			live += p.Buffers[c.Buffer].Bytes
		} else {
			live -= p.Buffers[c.Buffer].Bytes
		}
		most = max(most, live)
	}
	return most
}

// Usage is bytes by what they are for and where they are.
type Usage map[Class]map[Tier]int64

// Gaps is the class of bytes that no buffer has: alignment, and what packing could not
// use.
const Gaps Class = "gaps"

func (u Usage) add(c Class, t Tier, bytes int64) {
	if bytes == 0 {
		return
	}
	if u[c] == nil {
		u[c] = map[Tier]int64{}
	}
	u[c][t] += bytes
}

// HomeUsage is what is stored between iterations.
func (p *Plan) HomeUsage() Usage {
	u := Usage{}
	for id, b := range p.Buffers {
		if b.Home {
			u.add(b.Class, p.TierOf(id), b.Bytes)
		}
	}
	return u
}

// PeakUsage is what each arena holds at the moment it holds most. With the gaps, the
// bytes of a tier add up to Peak.
func (p *Plan) PeakUsage() Usage {
	arenas := make([]filling, len(p.Arenas))
	for c := range p.Lives() {
		b := &p.Buffers[c.Buffer]
		if bytes := b.Bytes; c.Alive {
			arenas[b.Arena].change(b.Class, bytes)
		} else {
			arenas[b.Arena].change(b.Class, -bytes)
		}
	}
	u, rest := Usage{}, p.Peak()
	for a := range arenas {
		for class, bytes := range arenas[a].atMost {
			u.add(class, p.Arenas[a].Tier, bytes)
			rest[p.Arenas[a].Tier] -= bytes
		}
	}
	for tier, bytes := range rest {
		u.add(Gaps, tier, bytes)
	}
	return u
}

// filling is what an arena holds now, and held when it was fullest.
type filling struct {
	now, atMost map[Class]int64
	total, most int64
}

func (f *filling) change(c Class, bytes int64) {
	if f.now == nil {
		f.now = map[Class]int64{}
	}
	f.now[c] += bytes
	f.total += bytes
	if f.total > f.most {
		f.most, f.atMost = f.total, maps.Clone(f.now)
	}
}

// BlocksOf gives each buffer the block it belongs to, -1 for none, for blocks with these
// names: the block of its slab, or of the first instruction that touches it.
func (p *Plan) BlocksOf(names []string) []int {
	of := make([]int, len(p.Buffers))
	for id, u := range p.Uses() {
		if of[id] = -1; u.First >= 0 {
			of[id] = p.Instructions[u.First].Block
		}
	}
	blocks := make(map[string]int, len(names))
	for i, name := range names {
		blocks[name] = i
	}
	for _, s := range p.Slabs {
		homes := append([]int{s.Weight, s.Gradient}, s.Replicas...)
		for _, piece := range s.Pieces {
			homes = append(homes, piece.Master, piece.State)
		}
		for _, id := range homes {
			if id >= 0 {
				of[id] = blocks[s.Name]
			}
		}
	}
	for _, s := range p.Instructions {
		if grad, ok := s.Bound(InGrad, 0); ok && s.Verb == Update {
			of[grad.Buffer] = blocks[p.Slabs[s.Slab].Name]
		}
	}
	return of
}
