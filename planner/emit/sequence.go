package emit

import (
	"slices"
	"sort"
	"spillway/planner/layout"
)

// use is one visit of a block by some micro-batches on one device.
type use struct {
	phase  layout.Phase
	block  int
	micros []int
	device int
	turn   int // among the uses of its device
}

// sequence lists the visits of one iteration in the order they are issued. On a
// device, gradients are summed in one order whatever the choice: by block, and for
// a block by micro-batch. Where the first block shares a slab with a later one, its
// backward therefore waits for all micro-batches.
func (e *emitter) sequence() []use {
	var list []use
	if e.c.Pipeline && e.l.Training() {
		list = e.pipeline()
	} else {
		for _, groups := range e.rounds() {
			list = append(list, e.pass(groups)...)
		}
	}
	if e.l.Training() && e.l.Shares(e.l.FirstTrained) {
		list = deferred(list, e.l.FirstTrained)
	}
	turns := make([]int, e.c.DeviceCount())
	for i := range list {
		list[i].turn = turns[list[i].device]
		turns[list[i].device]++
	}
	return list
}

// deferred puts the backward of a block behind everything else, the micro-batches
// of a device together.
func deferred(list []use, block int) []use {
	var rest, late []use
	for _, u := range list {
		if u.phase != layout.Backward || u.block != block {
			rest = append(rest, u)
			continue
		}
		i := slices.IndexFunc(late, func(o use) bool { return o.device == u.device })
		if i < 0 {
			late = append(late, u)
			continue
		}
		late[i].micros = append(slices.Clone(late[i].micros), u.micros...)
	}
	for i := range late {
		slices.Sort(late[i].micros)
	}
	return append(rest, late...)
}

// group is some micro-batches that pass a block together on one device.
type group struct {
	device int // -1: the device of the block
	micros []int
}

// rounds says which micro-batches pass the blocks together: all of them in the
// vertical order, else one per device at a time. Data parallel devices take
// consecutive micro-batches, so that summing over devices keeps their order.
func (e *emitter) rounds() [][]group {
	n := e.l.Goal.MicroBatches
	if e.c.Split != nil || e.c.DeviceCount() == 1 {
		return splitRounds(n, e.c.BreadthFirst)
	}
	devices := e.c.DeviceCount()
	of := make([][]int, devices)
	for j := range n {
		d := j * devices / n
		of[d] = append(of[d], j)
	}
	if e.c.BreadthFirst {
		return [][]group{groupsOf(of)}
	}
	var rounds [][]group
	for r := 0; ; r++ {
		now := make([][]int, devices)
		some := false
		for d := range of {
			if r < len(of[d]) {
				now[d], some = of[d][r:r+1], true
			}
		}
		if !some {
			return rounds
		}
		rounds = append(rounds, groupsOf(now))
	}
}

func splitRounds(micros int, vertical bool) (rounds [][]group) {
	all := make([]int, micros)
	for j := range all {
		all[j] = j
	}
	if vertical {
		return [][]group{{{-1, all}}}
	}
	for j := range all {
		rounds = append(rounds, []group{{-1, all[j : j+1]}})
	}
	return rounds
}

func groupsOf(micros [][]int) (list []group) {
	for d, m := range micros {
		if len(m) > 0 {
			list = append(list, group{d, m})
		}
	}
	return list
}

// pass is one walk over the blocks, there and, when training, back.
func (e *emitter) pass(groups []group) (list []use) {
	visit := func(ph layout.Phase, block int) {
		for _, g := range groups {
			list = append(list, use{phase: ph, block: block, micros: g.micros, device: e.deviceOf(block, g)})
		}
	}
	last := len(e.l.Model.Blocks) - 1
	if !e.l.Training() {
		for i := range last + 1 {
			visit(layout.ForwardOnly, i)
		}
		return list
	}
	for i := range last {
		visit(layout.Forward, i)
	}
	visit(layout.ForwardBackward, last)
	for i := last - 1; i >= e.l.FirstTrained; i-- {
		visit(layout.Backward, i)
	}
	return list
}

func (e *emitter) deviceOf(block int, g group) int {
	if e.c.Split != nil {
		return e.c.Split[block]
	}
	return max(g.device, 0)
}

// stage is a run of neighbouring blocks on one device.
type stage struct {
	device      int
	first, last int
}

func (e *emitter) stages() (list []stage) {
	for i, d := range e.c.Split {
		if n := len(list); n > 0 && list[n-1].device == d {
			list[n-1].last = i
			continue
		}
		list = append(list, stage{d, i, i})
	}
	return list
}

// pipeline orders the micro-batches' passes over the stages so that all devices
// work: each device takes the backward that is ready first, else a forward, with no
// more micro-batches under way than there are stages from its own to the end. With
// one stage per device this is the order known as 1F1B; with several it is its
// interleaved form. Forward counts one unit of time, backward two.
func (e *emitter) pipeline() []use {
	stages, micros := e.stages(), e.l.Goal.MicroBatches
	p := &pipe{stages: stages, micros: micros, forwardEnd: grid(len(stages), micros), backwardEnd: grid(len(stages), micros), free: make([]int, e.c.DeviceCount())}
	p.run()
	sort.SliceStable(p.done, func(i, j int) bool { return p.done[i].start < p.done[j].start })
	var list []use
	for _, t := range p.done {
		list = append(list, e.stageUses(stages[t.stage], t)...)
	}
	return list
}

// task is a micro-batch's forward or backward on a stage.
type task struct {
	stage, micro int
	back         bool
	start        int
}

func (e *emitter) stageUses(s stage, t task) (list []use) {
	last := len(e.l.Model.Blocks) - 1
	add := func(ph layout.Phase, block int) {
		list = append(list, use{phase: ph, block: block, micros: []int{t.micro}, device: s.device})
	}
	if !t.back {
		for i := s.first; i <= min(s.last, last-1); i++ {
			add(layout.Forward, i)
		}
		return list
	}
	if s.last == last {
		add(layout.ForwardBackward, last)
	}
	for i := min(s.last, last-1); i >= max(s.first, e.l.FirstTrained); i-- {
		add(layout.Backward, i)
	}
	return list
}

// pipe simulates the schedule with whole units of time.
type pipe struct {
	stages                  []stage
	micros                  int
	forwardEnd, backwardEnd [][]int // by stage and micro; -1 while not scheduled
	free                    []int   // by device: when it has time
	done                    []task
}

func grid(a, b int) [][]int {
	g := make([][]int, a)
	for i := range g {
		g[i] = make([]int, b)
		for j := range g[i] {
			g[i][j] = -1
		}
	}
	return g
}

func (p *pipe) run() {
	for len(p.done) < 2*len(p.stages)*p.micros {
		best, at := task{stage: -1}, 0
		for s := range p.stages {
			for _, t := range p.ready(s) {
				start := max(p.free[p.stages[s].device], p.readyAt(t))
				if best.stage < 0 || start < at || start == at && t.back && !best.back {
					best, at = t, start
				}
			}
		}
		best.start = at
		p.take(best)
	}
}

// ready lists the next forward and the next backward of a stage, if they may run.
func (p *pipe) ready(s int) (list []task) {
	f, b := next(p.forwardEnd[s]), next(p.backwardEnd[s])
	if b < p.micros && p.forwardEnd[s][b] >= 0 && (s == len(p.stages)-1 || p.backwardEnd[s+1][b] >= 0) {
		list = append(list, task{stage: s, micro: b, back: true})
	}
	if f < p.micros && f-b < len(p.stages)-s && (s == 0 || p.forwardEnd[s-1][f] >= 0) {
		list = append(list, task{stage: s, micro: f})
	}
	return list
}

func (p *pipe) readyAt(t task) int {
	switch {
	case !t.back && t.stage == 0:
		return 0
	case !t.back:
		return p.forwardEnd[t.stage-1][t.micro]
	case t.stage == len(p.stages)-1:
		return p.forwardEnd[t.stage][t.micro]
	}
	return p.backwardEnd[t.stage+1][t.micro]
}

func (p *pipe) take(t task) {
	if t.back {
		p.backwardEnd[t.stage][t.micro] = t.start + 2
		p.free[p.stages[t.stage].device] = t.start + 2
	} else {
		p.forwardEnd[t.stage][t.micro] = t.start + 1
		p.free[p.stages[t.stage].device] = t.start + 1
	}
	p.done = append(p.done, t)
}

func next(ends []int) int {
	for j, end := range ends {
		if end < 0 {
			return j
		}
	}
	return len(ends)
}
