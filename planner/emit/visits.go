package emit

import (
	"slices"
	"sort"

	"spillway/planner/layout"
	"spillway/planner/strategy"
)

// visit is one walk of some micro-batches through a block on one device.
type visit struct {
	phase  layout.Phase
	block  int
	micros []int
	device int
	turn   int // among the visits of its device
}

// sequencer orders the visits of an iteration: which micro-batch passes which block when,
// and on which device.
type sequencer struct {
	l *layout.Layout
	c strategy.Choice
}

// sequence lists the visits of one iteration in the order they are issued. On a device,
// gradients are summed in one order whatever the choice: by block, and for a block by
// micro-batch, so that all plans give the same bits. Where the first block shares a slab
// with a later one, its backward therefore waits for all micro-batches.
func (q sequencer) sequence() []visit {
	var list []visit
	if q.c.Pipeline && q.l.Training() {
		list = q.pipeline()
	} else {
		for _, groups := range q.rounds() {
			list = append(list, q.pass(groups)...)
		}
	}
	if q.l.Training() && q.l.Slabs.Shares(q.l.FirstTrained) {
		list = q.deferred(list, q.l.FirstTrained)
	}
	turns := make([]int, q.c.DeviceCount()+1) // the CPU may be one more
	for i := range list {
		list[i].turn = turns[list[i].device]
		turns[list[i].device]++
	}
	return list
}

// deferred puts the backward of a block behind everything else, the micro-batches
// of a device together.
func (q sequencer) deferred(list []visit, block int) []visit {
	var rest, last []visit
	for _, u := range list {
		if u.phase != layout.Backward || u.block != block {
			rest = append(rest, u)
			continue
		}
		i := slices.IndexFunc(last, func(o visit) bool { return o.device == u.device })
		if i < 0 {
			last = append(last, u)
			continue
		}
		last[i].micros = append(slices.Clone(last[i].micros), u.micros...)
	}
	groups := make([]group, len(last))
	for i := range last {
		slices.Sort(last[i].micros)
		groups[i] = group{last[i].device, last[i].micros}
	}
	for _, g := range q.byRound(groups) {
		rest = append(rest, visit{phase: layout.Backward, block: block, micros: g.micros, device: g.device})
	}
	return rest
}

// group is some micro-batches that pass a block together on one device.
type group struct {
	device int // -1: the device of the block
	micros []int
}

// rounds says which micro-batches pass the blocks together: breadth first all of them, or those of a round, else
// one per device at a time. Data parallel devices take consecutive micro-batches, so that
// summing over devices keeps their order.
func (q sequencer) rounds() (rounds [][]group) {
	devices, first := q.c.DeviceCount(), 0
	if q.c.Split != nil || devices == 1 { // devices have blocks of their own, or there is one
		devices, first = 1, -1
	}
	n := q.l.Goal.MicroBatches
	all := make([]group, devices)
	for j := range n {
		d := j * devices / n
		if q.l.CanonicalSums() { // a round has the next micro-batches
			d = j % devices
		}
		all[d].device, all[d].micros = first+d, append(all[d].micros, j)
	}
	all = slices.DeleteFunc(all, func(g group) bool { return len(g.micros) == 0 })
	parts := n
	if q.c.BreadthFirst {
		parts = max(q.c.Rounds, 1)
	}
	each := (n + parts - 1) / parts // the last round may have fewer
	for from := 0; from < n; from += each {
		var round []group
		for _, g := range all {
			if from < len(g.micros) {
				round = append(round, group{g.device, g.micros[from:min(from+each, len(g.micros))]})
			}
		}
		if len(round) > 0 {
			rounds = append(rounds, round)
		}
	}
	return rounds
}

// byRound takes the micro-batches of data parallel devices apart, where sums are canonical: one
// of each device, then the next, so that gradients come in the order of the micro-batches.
func (q sequencer) byRound(groups []group) (list []group) {
	if len(groups) < 2 || !q.l.CanonicalSums() {
		return groups
	}
	for r := range groups[0].micros { // the first has most
		for _, g := range groups {
			if r < len(g.micros) {
				list = append(list, group{g.device, g.micros[r : r+1]})
			}
		}
	}
	return list
}

// pass is one walk over the blocks, there and, when training, back.
func (q sequencer) pass(groups []group) (list []visit) {
	walk := func(ph layout.Phase, block int) {
		groups := groups
		if ph == layout.ForwardBackward || ph == layout.Backward {
			groups = q.byRound(groups)
		}
		for _, g := range groups {
			device := max(g.device, 0)
			if q.c.Split != nil {
				device = q.c.Split[block]
			}
			if q.l.OnCPU(q.c, block) {
				device = q.c.DeviceCount()
			}
			list = append(list, visit{phase: ph, block: block, micros: g.micros, device: device})
		}
	}
	last := len(q.l.Model.Blocks) - 1
	if !q.l.Training() {
		for i := range last + 1 {
			walk(layout.ForwardOnly, i)
		}
		return list
	}
	for i := range last {
		walk(layout.Forward, i)
	}
	walk(layout.ForwardBackward, last)
	for i := last - 1; i >= q.l.FirstTrained; i-- {
		walk(layout.Backward, i)
	}
	return list
}

// stage is a run of neighbouring blocks on one device.
type stage struct {
	device      int
	first, last int
}

// stages are the runs of neighbouring blocks on one device.
func (q sequencer) stages() (list []stage) {
	for i, d := range q.c.Split {
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
func (q sequencer) pipeline() []visit {
	stages, micros := q.stages(), q.l.Goal.MicroBatches
	p := &pipe{stages: stages, micros: micros, forwardEnd: make([][]int, len(stages)), backwardEnd: make([][]int, len(stages)), free: make([]int, q.c.DeviceCount())}
	p.run()
	sort.SliceStable(p.done, func(i, j int) bool { return p.done[i].start < p.done[j].start })
	var list []visit
	for _, t := range p.done {
		list = append(list, q.stageVisits(stages[t.stage], t)...)
	}
	return list
}

// task is a micro-batch's forward or backward on a stage.
type task struct {
	stage, micro int
	back         bool
	start        int
}

// stageVisits are those of a task.
func (q sequencer) stageVisits(s stage, t task) (list []visit) {
	last := len(q.l.Model.Blocks) - 1
	add := func(ph layout.Phase, block int) {
		list = append(list, visit{phase: ph, block: block, micros: []int{t.micro}, device: s.device})
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
	for i := min(s.last, last-1); i >= max(s.first, q.l.FirstTrained); i-- {
		add(layout.Backward, i)
	}
	return list
}

// pipe simulates the schedule in units of time: a forward of a stage takes one.
type pipe struct {
	stages                  []stage
	micros                  int
	forwardEnd, backwardEnd [][]int // by stage and micro-batch, of those that are scheduled
	free                    []int   // by device: when it has time
	done                    []task
}

// run schedules the task that can start first, until all are.
func (p *pipe) run() {
	for len(p.done) < 2*len(p.stages)*p.micros {
		best := task{stage: -1}
		for s := range p.stages {
			for _, t := range p.ready(s) {
				t.start = max(t.start, p.free[p.stages[s].device])
				if best.stage < 0 || t.start < best.start || t.start == best.start && t.back && !best.back {
					best = t
				}
			}
		}
		ends, end := &p.forwardEnd[best.stage], best.start+1
		if best.back {
			ends, end = &p.backwardEnd[best.stage], best.start+2
		}
		*ends = append(*ends, end)
		p.free[p.stages[best.stage].device] = end
		p.done = append(p.done, best)
	}
}

// ready lists the next forward and the next backward of a stage, if they may run, from when
// what they need is there.
func (p *pipe) ready(s int) (list []task) {
	f, b := len(p.forwardEnd[s]), len(p.backwardEnd[s])
	switch {
	case b == f: // no forward that is not followed by its backward yet
	case s == len(p.stages)-1:
		list = append(list, task{s, b, true, p.forwardEnd[s][b]})
	case b < len(p.backwardEnd[s+1]):
		list = append(list, task{s, b, true, p.backwardEnd[s+1][b]})
	}
	switch {
	case f == p.micros || f-b >= len(p.stages)-s:
	case s == 0:
		list = append(list, task{s, f, false, 0})
	case f < len(p.forwardEnd[s-1]):
		list = append(list, task{s, f, false, p.forwardEnd[s-1][f]})
	}
	return list
}
