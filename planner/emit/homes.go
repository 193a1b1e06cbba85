package emit

import (
	"fmt"
	"sort"

	"spillway/plan"
)

// homes makes the buffers that keep their contents between iterations.
func (e *emitter) homes() error {
	b := e.l
	e.on = make([]onDevice, e.c.DeviceCount())
	for d := range e.on {
		e.deviceHomes(d)
	}
	e.partials = -1
	if b.Training() && b.Goal.Optimizer.Clip {
		e.partials = e.buffer("partials", plan.Workspace, 0, 8*b.NormElements)
	}
	for j := range b.Goal.MicroBatches {
		e.batchHome = append(e.batchHome, e.home(fmt.Sprintf("batch %d", j), plan.BatchData, e.host, b.BatchBytes))
		e.result = append(e.result, e.home(fmt.Sprintf("result %d", j), plan.ResultData, e.host, b.ResultBytes()))
	}
	if e.cpu >= 0 {
		e.cpuClip = e.home("clip", plan.Workspace, e.host, 8)
	}
	e.owner = e.owners()
	for k := range e.p.Slabs {
		if err := e.slabHomes(k); err != nil {
			return err
		}
	}
	return nil
}

func (e *emitter) deviceHomes(d int) {
	here := onDevice{consts: -1, clip: -1, batch: make([]int, e.l.Goal.MicroBatches), slabs: make([]slabState, len(e.p.Slabs)), written: make([]bool, len(e.l.Model.Params))}
	if e.l.ConstBytes > 0 {
		here.consts = e.home("constants", plan.Constant, d, e.l.ConstBytes)
	}
	if e.l.Training() {
		here.clip = e.home("clip", plan.Workspace, d, 8)
	}
	for j := range here.batch {
		here.batch[j] = -1
	}
	for k := range here.slabs {
		here.slabs[k] = slabState{weight: -1, gradient: -1}
	}
	e.on[d] = here
}

// owners finds the device that updates each slab: the one that runs its block, or
// with data parallel devices the one with least so far, largest slabs first.
func (e *emitter) owners() []int {
	owner := make([]int, len(e.p.Slabs))
	if e.c.Split != nil {
		for k := range owner {
			owner[k] = e.c.Split[e.l.Owner[k]]
		}
		return owner
	}
	if e.c.DeviceCount() == 1 {
		return owner
	}
	order := make([]int, len(owner))
	for k := range order {
		order[k] = k
	}
	weight := func(k int) int64 { return e.l.HomeBytes[k] }
	sort.SliceStable(order, func(i, j int) bool { return weight(order[i]) > weight(order[j]) })
	load := make([]int64, e.c.DeviceCount())
	for _, k := range order {
		least := 0
		for d := range load {
			if load[d] < load[least] {
				least = d
			}
		}
		owner[k] = least
		load[least] += weight(k)
	}
	return owner
}

// slabHomes makes the homes of a slab: weights, replicas of them on other devices
// that keep all weights, and what the optimizer keeps.
func (e *emitter) slabHomes(k int) error {
	s, owner := &e.p.Slabs[k], e.owner[k]
	s.Weight = e.home(s.Name+" weights", plan.Weight, e.homeArena(owner, k, e.c.Streamed[k]), s.WeightBytes)
	if !e.c.Streamed[k] {
		e.on[owner].slabs[k].weight = s.Weight
		e.replicate(k)
	}
	if !e.l.Training() || s.Elements == 0 {
		return nil
	}
	if err := e.pieceHomes(k); err != nil {
		return err
	}
	if e.c.OffloadedState[k] && e.l.Goal.Optimizer.Clip {
		s.Gradient = e.home(s.Name+" gradients", plan.Gradient, e.homeArena(owner, k, true), e.gradBytes(k))
	}
	return nil
}

// pieceHomes cuts a slab into pieces and gives each a home for what the optimizer
// keeps. State that never moves needs no pieces.
func (e *emitter) pieceHomes(k int) error {
	s, owner := &e.p.Slabs[k], e.owner[k]
	arena, state := e.homeArena(owner, k, e.c.OffloadedState[k]), &e.on[owner].slabs[k]
	cuts, err := e.l.Pieces(k, e.pieceStep(k))
	if err != nil {
		return err
	}
	s.Pieces, e.cpuUpdating = nil, e.c.ByCPU(k)
	for _, cut := range cuts {
		p := plan.Piece{From: cut.From, To: cut.To, Master: -1, State: -1}
		if e.l.HasMaster(k) {
			p.Master = e.home(s.Name+" master", plan.Master, arena, 4*p.Elements())
		}
		if cut.States > 0 {
			p.State = e.home(s.Name+" moments", plan.State, arena, cut.States)
		}
		here := pieceState{-1, -1, cut.Scratch}
		if !e.c.OffloadedState[k] || e.cpuUpdating {
			here.master, here.state = p.Master, p.State
		}
		s.Pieces, state.pieces = append(s.Pieces, p), append(state.pieces, here)
	}
	return nil
}

// pieceStep is how many elements of a slab are updated at once.
func (e *emitter) pieceStep(k int) int64 {
	switch {
	case !e.c.OffloadedState[k] || e.c.ByCPU(k):
		return e.p.Slabs[k].Elements
	case e.c.PieceElements > 0:
		return e.c.PieceElements
	}
	return e.l.PieceElements()
}

// replicate gives every data parallel device its own copy of resident weights,
// unless they are sharded too.
func (e *emitter) replicate(k int) {
	if e.c.Split != nil || e.c.ShardWeights {
		return
	}
	s := &e.p.Slabs[k]
	s.Replicas = nil
	for d := range e.on {
		if d == e.owner[k] {
			continue
		}
		id := e.home(s.Name+" weights", plan.Weight, d, s.WeightBytes)
		s.Replicas = append(s.Replicas, id)
		e.on[d].slabs[k].weight = id
	}
}

// restsAt is the arena where something of a slab rests: on its device, or away from
// it on the host or the disk.
func (e *emitter) homeArena(dev, k int, away bool) int {
	switch {
	case !away:
		return dev
	case e.c.OnDisk[k]:
		return e.host + 1
	}
	return e.host
}

func (e *emitter) gradBytes(k int) int64 { return e.l.GradBytes(k) }
