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

func newTally() *tally { return &tally{routes: map[Route]*Transfers{}} }

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

// amounts are what is counted, at one moment or between two.
type amounts struct {
	Counters
	routes map[*Transfers]Transfers
}

func (t *tally) amounts() amounts {
	a := amounts{t.Counters, map[*Transfers]Transfers{}}
	for _, r := range t.routes {
		a.routes[r] = *r
	}
	return a
}

// since is what was counted since a moment.
func (t *tally) since(before amounts) amounts {
	now := t.amounts()
	now.Moves -= before.Moves
	now.BytesIn -= before.BytesIn
	now.BytesOut -= before.BytesOut
	now.Launches -= before.Launches
	for r, n := range now.routes {
		was := before.routes[r]
		now.routes[r] = Transfers{n.Moves - was.Moves, n.Bytes - was.Bytes}
	}
	return now
}

// add counts the same once more.
func (t *tally) add(a amounts) {
	t.Moves += a.Moves
	t.BytesIn += a.BytesIn
	t.BytesOut += a.BytesOut
	t.Launches += a.Launches
	for r, n := range a.routes {
		r.Moves += n.Moves
		r.Bytes += n.Bytes
	}
}

// reset takes the counters back to a moment.
func (t *tally) reset(a amounts) {
	t.Counters = a.Counters
	for r, n := range a.routes {
		*r = n
	}
}
