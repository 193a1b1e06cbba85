package main

import (
	"maps"

	"spillway/plan"
)

// usage is bytes by what they are for and where they are.
type usage map[plan.Class]map[plan.Tier]int64

// gaps is the class of bytes that no buffer has: alignment, and what packing could
// not use.
const gaps plan.Class = "gaps"

func (u usage) add(c plan.Class, t plan.Tier, bytes int64) {
	if bytes == 0 {
		return
	}
	if u[c] == nil {
		u[c] = map[plan.Tier]int64{}
	}
	u[c][t] += bytes
}

// homes is what keeps its place between iterations.
func homes(p *plan.Plan) usage {
	u := usage{}
	for id, b := range p.Buffers {
		if b.Home {
			u.add(b.Class, p.TierOf(id), b.Bytes)
		}
	}
	return u
}

// atPeak is what each arena holds at the moment it holds most, homes included. With
// the gaps, the bytes of a tier add up to what the plan takes of it.
func atPeak(p *plan.Plan) usage {
	u := homes(p)
	for a, held := range fullest(p) {
		for class, bytes := range held {
			u.add(class, p.Arenas[a].Tier, bytes)
		}
	}
	for tier, bytes := range p.Peak() {
		for _, held := range u {
			bytes -= held[tier]
		}
		u.add(gaps, tier, bytes)
	}
	return u
}

// fullest gives, by arena, the bytes of each class that are no homes, at the
// moment they are most.
func fullest(p *plan.Plan) []map[plan.Class]int64 {
	arenas := make([]filling, len(p.Arenas))
	alive, accesses := make([]bool, len(p.Buffers)), p.Accesses()
	for i := range p.Instructions {
		s := &p.Instructions[i]
		for _, a := range accesses[i] {
			if b := p.Buffers[a.Buffer]; !b.Home && !alive[a.Buffer] {
				alive[a.Buffer] = true
				arenas[b.Arena].change(b.Class, b.Bytes)
			}
		}
		if s.Verb == plan.Free {
			alive[s.Dst] = false
			b := p.Buffers[s.Dst]
			arenas[b.Arena].change(b.Class, -b.Bytes)
		}
	}
	most := make([]map[plan.Class]int64, len(arenas))
	for a := range arenas {
		most[a] = arenas[a].atMost
	}
	return most
}

// filling is what an arena holds now, and held when it was fullest.
type filling struct {
	now    map[plan.Class]int64
	total  int64
	most   int64
	atMost map[plan.Class]int64
}

func (f *filling) change(c plan.Class, bytes int64) {
	if f.now == nil {
		f.now = map[plan.Class]int64{}
	}
	f.now[c] += bytes
	f.total += bytes
	if f.total > f.most {
		f.most, f.atMost = f.total, maps.Clone(f.now)
	}
}
