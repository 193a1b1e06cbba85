package executor

import "spillway/plan"

// Route is what moves are counted by: the tiers they go between, and what they carry.
// Pinned memory counts as the host's.
type Route struct {
	From  plan.Tier  `json:"from"`
	To    plan.Tier  `json:"to"`
	Class plan.Class `json:"class"`
}

// Traffic is how often something was moved, and how many bytes in all.
type Transfers struct {
	Moves int64 `json:"moves"`
	Bytes int64 `json:"bytes"`
}

// Traffic of all routes since the executor was made.
func (e *Executor) Transfers() map[Route]Transfers {
	all := map[Route]Transfers{}
	for r, t := range e.transfers {
		if t.Moves > 0 {
			all[r] = *t
		}
	}
	return all
}

// route finds where moves from one buffer to another are counted.
func (e *Executor) route(src, dst int) *Transfers {
	r := Route{e.counted(src), e.counted(dst), e.plan.Buffers[src].Class}
	if e.transfers[r] == nil {
		e.transfers[r] = &Transfers{}
	}
	return e.transfers[r]
}

func (e *Executor) counted(buffer int) plan.Tier {
	if t := e.plan.TierOf(buffer); t != plan.Pinned {
		return t
	}
	return plan.OnHost
}

// Reserved is how many bytes of memory an arena of the plan really has.
func (e *Executor) ArenaBytes(arena int) int64 { return e.arenas[arena].Size() }
