package emit

import (
	"cmp"
	"fmt"
	"slices"

	"spillway/plan"
	"spillway/planner/layout"
	"spillway/planner/strategy"
)

// homes is a script whose first buffers are there: those that keep their contents between
// iterations. It knows what each device holds.
type homes struct {
	script
	owner    []int // by slab: the device that updates it
	on       []onDevice
	batch    []int   // by micro-batch: on the host
	result   []int   // by micro-batch: on the host
	next     []next  // by device: where the next batch comes to
	caches   [][]int // by block and index: on the device that runs it, or on the host
	partials int     // on device 0: sums of squares of gradients, -1 for none
	cpuClip  int     // the clip factor on the host
}

// next is where the first micro-batch of a device comes to during the iteration before; -1 for nowhere.
type next struct{ home, micro int }

// nextHomes gives devices that begin with the first block a home for their first micro-batch of the next iteration.
func (h *homes) nextHomes() {
	if h.next = nil; !h.c.NextBatch {
		return
	}
	h.next = slices.Repeat([]next{{-1, -1}}, h.c.DeviceCount())
	begun := make([]bool, len(h.on))
	for _, u := range (sequencer{h.l, h.c}).sequence() {
		if !begun[u.device] && u.block == 0 && u.device < len(h.next) {
			j := u.micros[0]
			h.next[u.device] = next{h.home(fmt.Sprintf("next batch %d", j), plan.BatchData, u.device, h.l.Batch.Bytes), j}
		}
		begun[u.device] = true
	}
}

// onDevice is what a device holds; -1 for nothing.
type onDevice struct {
	consts  int
	clip    int
	batch   []int       // by micro-batch
	slabs   []slabState // by slab
	written []bool      // by param: its gradient has been written here
}

// slabState is what of a slab is on a device now; -1 for nothing.
type slabState struct {
	weight, gradient int
	pieces           []pieceState // on its owner
}

// pieceState is what of a piece is on the device of its slab's owner, and the scratch
// memory its update needs there.
type pieceState struct {
	master, state int
	scratch       int64
}

// make makes all homes.
func (h *homes) make() error {
	l := h.l
	h.on = make([]onDevice, h.c.DeviceCount())
	if h.c.CPURows != nil {
		h.on = append(h.on, onDevice{}) // the CPU, whose arena is the host's
	}
	for d := range h.on { // homes that belong to no slab
		here := onDevice{consts: -1, clip: -1, batch: slices.Repeat([]int{-1}, l.Goal.MicroBatches),
			slabs: slices.Repeat([]slabState{{weight: -1, gradient: -1}}, len(h.p.Slabs)), written: make([]bool, len(l.Model.Params))}
		if l.Consts.Bytes > 0 {
			here.consts = h.home("constants", plan.Constant, d, l.Consts.Bytes)
		}
		if l.Training() {
			here.clip = h.home("clip", plan.Workspace, d, 8)
		}
		h.on[d] = here
	}
	h.partials = -1
	if l.Training() && l.Goal.Optimizer.Clip {
		h.partials = h.buffer("partials", plan.Workspace, 0, 8*l.Slabs.NormElements)
	}
	for j := range l.Goal.MicroBatches {
		h.batch = append(h.batch, h.home(h.numbered("batch", j), plan.BatchData, h.host, l.Batch.Bytes))
		h.result = append(h.result, h.home(h.numbered("result", j), plan.ResultData, h.host, l.ResultBytes()))
	}
	h.nextHomes()
	if h.c.CPURows != nil { // batches are where the CPU reads them
		copy(h.on[h.cpu].batch, h.batch)
	}
	if h.cpu >= 0 && l.Training() {
		h.cpuClip = h.home("clip", plan.Workspace, h.host, 8)
	}
	for i, block := range l.Model.Blocks {
		var ids []int
		for _, t := range l.CacheTypes(i) {
			device := 0
			switch {
			case h.c.Split != nil:
				device = h.c.Split[i]
			case h.c.HostCache(i):
				device = h.host
			}
			ids = append(ids, h.home(block.Name+" cache", plan.Cache, device, t.Bytes()))
		}
		h.caches = append(h.caches, ids)
	}
	h.owner = owners(l, h.c)
	for k := range h.p.Slabs {
		if err := h.slabHomes(k); err != nil {
			return err
		}
	}
	return nil
}

// owners finds the device that updates each slab: the one that runs its block, or with data
// parallel devices the one that owns least so far, largest slabs first.
func owners(l *layout.Layout, c strategy.Choice) []int {
	owner := make([]int, len(l.Slabs.List))
	if c.Split != nil {
		for k := range owner {
			owner[k] = c.Split[l.Slabs.Owner[k]]
		}
		return owner
	}
	if c.DeviceCount() == 1 {
		return owner
	}
	order := make([]int, len(owner))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(l.Slabs.HomeBytes[b], l.Slabs.HomeBytes[a]) })
	load := make([]int64, c.DeviceCount())
	for _, k := range order {
		owner[k] = slices.Index(load, slices.Min(load))
		load[owner[k]] += l.Slabs.HomeBytes[k]
	}
	return owner
}

// slabHomes makes the homes of a slab: weights, replicas of them on other devices that hold
// all weights, and optimizer state.
func (h *homes) slabHomes(k int) error {
	s, owner := &h.p.Slabs[k], h.owner[k]
	s.Weight = h.home(h.name(s, " weights"), plan.Weight, h.homeArena(owner, k, h.c.Streamed[k]), s.WeightBytes)
	if !h.c.Streamed[k] {
		h.on[owner].slabs[k].weight = s.Weight
		h.replicate(k)
	} else if h.c.CPURows != nil && !h.c.OnDisk[k] {
		h.on[h.cpu].slabs[k].weight = s.Weight
	}
	if !h.l.Training() || s.Elements == 0 {
		return nil
	}
	if err := h.pieceHomes(k); err != nil {
		return err
	}
	if h.c.OffloadedState[k] && (h.l.Goal.Optimizer.Clip || h.c.Rounds > 1) {
		s.Gradient = h.home(h.name(s, " gradients"), plan.Gradient, h.homeArena(owner, k, true), h.l.GradBytes(k))
	}
	return nil
}

// pieceHomes cuts a slab into pieces and gives the optimizer state of each a home. State
// that never moves needs no pieces.
func (h *homes) pieceHomes(k int) error {
	s, owner := &h.p.Slabs[k], h.owner[k]
	arena, state := h.homeArena(owner, k, h.c.OffloadedState[k]), &h.on[owner].slabs[k]
	step := cmp.Or(h.c.PieceElements, h.l.PieceElements())
	if !h.c.OffloadedState[k] || h.c.ByCPU(k) {
		step = s.Elements
	}
	cuts, err := h.l.Pieces(k, step)
	if err != nil {
		return err
	}
	if s.Pieces = nil; h.counter != nil {
		h.counter.updatedByCPU = h.c.ByCPU(k)
	}
	for _, cut := range cuts {
		p := plan.Piece{From: cut.From, To: cut.To, Master: -1, State: -1}
		if h.l.HasMaster(k) {
			p.Master = h.home(h.name(s, " master"), plan.Master, arena, 4*p.Elements())
		}
		if cut.States > 0 {
			p.State = h.home(h.name(s, " optimizer state"), plan.State, arena, cut.States)
		}
		if h.counter != nil {
			continue
		}
		here := pieceState{-1, -1, cut.Scratch}
		if !h.c.OffloadedState[k] || h.c.ByCPU(k) {
			here.master, here.state = p.Master, p.State
		}
		s.Pieces, state.pieces = append(s.Pieces, p), append(state.pieces, here)
	}
	return nil
}

// name of a home of a slab; homes that are only counted have none.
func (h *homes) name(s *plan.Slab, what string) string {
	if h.counter != nil {
		return ""
	}
	return s.Name + what
}

// numbered is the name of what each micro-batch has, likewise.
func (h *homes) numbered(what string, micro int) string {
	if h.counter != nil {
		return ""
	}
	return fmt.Sprintf("%s %d", what, micro)
}

// replicate gives every data parallel device its own copy of weights that are stored on
// devices, unless they are sharded.
func (h *homes) replicate(k int) {
	if h.c.Split != nil || h.c.ShardWeights || h.c.DeviceCount() == 1 {
		return
	}
	s := &h.p.Slabs[k]
	s.Replicas = nil
	for d := range h.on {
		if d == h.owner[k] {
			continue
		}
		id := h.home(h.name(s, " weights"), plan.Weight, d, s.WeightBytes)
		s.Replicas = append(s.Replicas, id)
		h.on[d].slabs[k].weight = id
	}
}

// homeArena is where something of a slab is stored: on its device, or off it on the host or
// the disk.
func (h *homes) homeArena(dev, k int, off bool) int {
	switch {
	case !off:
		return dev
	case h.c.OnDisk[k]:
		return h.host + 1
	}
	return h.host
}
