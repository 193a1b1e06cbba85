package executor

import "spillway/plan"

// Counters say what an executor really did since it was made.
type Counters struct {
	Iterations int64
	Moves      int64
	BytesIn    int64
	BytesOut   int64
	Launches   int64
	// PeakLive is the most bytes of the device arenas that live buffers take at once:
	// what the plan says, seen from its instructions.
	PeakLive int64
}

// Route is what moves are counted by: the tiers they go between, and what they carry.
// Pinned memory counts as the host's.
type Route struct {
	From  plan.Tier  `json:"from"`
	To    plan.Tier  `json:"to"`
	Class plan.Class `json:"class"`
}

// Transfers is how often something was moved, and how many bytes in all.
type Transfers struct {
	Moves int64 `json:"moves"`
	Bytes int64 `json:"bytes"`
}

// Plus adds transfers up.
func (t Transfers) Plus(u Transfers) Transfers {
	return Transfers{t.Moves + u.Moves, t.Bytes + u.Bytes}
}

// Transfers of all routes since the executor was made.
func (e *Executor) Transfers() map[Route]Transfers {
	all := map[Route]Transfers{}
	for r, t := range e.tally.routes {
		if t.Moves > 0 {
			all[r] = *t
		}
	}
	return all
}

// tally counts while instructions are issued.
type tally struct {
	Counters
	routes map[Route]*Transfers
}

// route finds where moves from one buffer to another are counted.
func (t *tally) route(p *plan.Plan, src, dst int) *Transfers {
	tier := func(buffer int) plan.Tier {
		if t := p.TierOf(buffer); t != plan.Pinned {
			return t
		}
		return plan.OnHost
	}
	r := Route{tier(src), tier(dst), p.Buffers[src].Class}
	if t.routes[r] == nil {
		t.routes[r] = &Transfers{}
	}
	return t.routes[r]
}

// snapshot is what is counted up to now.
func (t *tally) snapshot() tally {
	now := tally{t.Counters, map[Route]*Transfers{}}
	for r, n := range t.routes {
		copied := *n
		now.routes[r] = &copied
	}
	return now
}

// add counts once more what was counted from one snapshot to another, which is less than
// nothing where the other is the earlier one.
func (t *tally) add(from, to tally) {
	t.Moves += to.Moves - from.Moves
	t.BytesIn += to.BytesIn - from.BytesIn
	t.BytesOut += to.BytesOut - from.BytesOut
	t.Launches += to.Launches - from.Launches
	for r, n := range t.routes {
		n.Moves += to.routes[r].Moves - from.routes[r].Moves
		n.Bytes += to.routes[r].Bytes - from.routes[r].Bytes
	}
}
