package pass

import (
	"math"
	"sync"

	"spillway/plan"
)

// Memory gives the buffers of a plan their places. Homes lie behind each other; other
// buffers are packed behind them by lifetime, each arena by itself.
//
//	m := pass.NewMemory(p, 256, nil)
//	m.Least()  // what no packing can beat: enough to see that a plan does not fit
//	m.Pack()   // offsets, and the sizes of arenas
//	m.Finish() // frees
type Memory struct {
	plan     *plan.Plan
	align    int64
	accesses [][]plan.Access // by instruction
	spans    []Span          // by buffer
	moving   [][]*Span       // by arena: of its buffers that are no homes, the largest first
	base     []int64         // by arena: where its homes end
	outgoing []outgoing
	held     int      // see DelayReuse
	leaves   []bool   // by arena: something leaves the device
	packed   []packed // by arena: how its buffers have their places now
	PackedBy int      // the order of packing, see PackBy
}

// packed is how the buffers of an arena have their places; the zero value is not at all.
type packed struct {
	done     bool
	by, held int
	bytes    int64
}

// Hold lets a buffer live until another one is first touched, so that filling the other
// does not wait for the memory of this one.
type Hold struct{ Buffer, Until int }

// NewMemory finds from which instruction to which each buffer is alive. The plan has no
// frees yet.
func NewMemory(p *plan.Plan, align int64, holds []Hold) *Memory {
	accesses := p.Accesses()
	m := &Memory{plan: p, align: align, accesses: accesses, spans: lifetimes(p, p.UsesOf(accesses)), leaves: make([]bool, len(p.Arenas)), packed: make([]packed, len(p.Arenas))}
	for _, h := range holds {
		m.spans[h.Buffer].To = max(m.spans[h.Buffer].To, m.spans[h.Until].From)
	}
	m.outgoing = findOutgoing(p, m.spans)
	for _, o := range m.outgoing {
		m.leaves[p.Buffers[o.buffer].Arena] = true
	}
	m.placeHomes()
	return m
}

// Lifetimes finds from which instruction to which each buffer is alive.
func Lifetimes(p *plan.Plan) []Span { return lifetimes(p, p.Uses()) }

func lifetimes(p *plan.Plan, uses []plan.Use) []Span {
	spans := make([]Span, len(p.Buffers))
	for id, use := range uses {
		spans[id] = Span{Bytes: p.Buffers[id].Bytes, From: use.First, To: use.Last}
	}
	return spans
}

// placeHomes gives homes their offsets and lists the other buffers of each arena.
func (m *Memory) placeHomes() {
	m.moving, m.base = make([][]*Span, len(m.plan.Arenas)), make([]int64, len(m.plan.Arenas))
	for id := range m.plan.Buffers {
		b := &m.plan.Buffers[id]
		if !b.Home {
			m.moving[b.Arena] = append(m.moving[b.Arena], &m.spans[id])
			continue
		}
		b.Offset = AlignUp(m.base[b.Arena], m.align)
		m.base[b.Arena] = b.Offset + b.Bytes
	}
	for a := range m.base {
		m.base[a], m.moving[a] = AlignUp(m.base[a], m.align), largestFirst(m.moving[a])
	}
}

// Least makes arenas as large as what is alive in them at once: no packing takes less.
func (m *Memory) Least() {
	for a, moving := range m.moving {
		m.plan.Arenas[a].Bytes = m.base[a] + PeakLive(moving, len(m.plan.Instructions))
	}
}

// Pack gives every buffer a place, all arenas at the same time.
func (m *Memory) Pack() { m.PackWithin(nil) }

// PackWithin is Pack, which gives up an arena as soon as that exceeds its limit: it is said to take more than the limit then,
// and where its buffers lie is not known. Limits are by arena, nil for none. Arenas of which nothing has changed since the last
// time are left as they are.
func (m *Memory) PackWithin(limits []int64) {
	var all sync.WaitGroup
	for a, moving := range m.moving {
		want := packed{done: true, by: m.PackedBy}
		if m.leaves[a] {
			want.held = m.held
		}
		if had := m.packed[a]; had.done && had.by == want.by && had.held == want.held {
			m.plan.Arenas[a].Bytes = had.bytes
			continue
		}
		limit := int64(math.MaxInt64)
		if limits != nil {
			limit = limits[a] - m.base[a]
		}
		all.Go(func() {
			var total int64
			total, want.done = packSorted(moving, m.align, m.PackedBy, limit)
			want.bytes = m.base[a] + total
			m.packed[a], m.plan.Arenas[a].Bytes = want, want.bytes
		})
	}
	all.Wait()
	for id := range m.plan.Buffers {
		if b := &m.plan.Buffers[id]; !b.Home {
			b.Offset = m.base[b.Arena] + m.spans[id].Offset
		}
	}
}

// Order is Order of the plan, whose accesses are known, before Finish.
func (m *Memory) Order() { order(m.plan, m.accesses) }

// Finish puts a free behind the last instruction that touches each buffer that is no home.
func (m *Memory) Finish() { AddFrees(m.plan, m.spans) }

// AddFrees puts a free behind the end of the life of each buffer that is no home.
func AddFrees(p *plan.Plan, lives []Span) {
	ends := make([][]int, len(p.Instructions))
	for id, s := range lives {
		if s.To >= 0 && !p.Buffers[id].Home {
			ends[s.To] = append(ends[s.To], id)
		}
	}
	list := make([]plan.Instruction, 0, len(p.Instructions)+len(p.Buffers))
	for i, s := range p.Instructions {
		list = append(list, s)
		for _, id := range ends[i] {
			list = append(list, plan.Instruction{Verb: plan.Free, Block: s.Block, MicroBatch: s.MicroBatch, Dst: id})
		}
	}
	p.Instructions = list
}

// HasOutgoing says whether something leaves a device.
func (m *Memory) HasOutgoing() bool { return len(m.outgoing) > 0 }

// DelayReuse lets what leaves a device keep its bytes until other work there has begun, what leaves it for a micro-batch until so
// many runs have, or with 0 ends that again. Else that work could be given the bytes, and wait for the copy.
func (m *Memory) DelayReuse(runs int) {
	m.held = runs
	for _, o := range m.outgoing {
		m.spans[o.buffer].To = o.last
	}
	for _, o := range m.outgoing {
		if to := &m.spans[o.buffer].To; runs > 0 {
			*to = max(*to, o.until[min(runs, len(o.until))-1])
		}
	}
}

// outgoing is a buffer of a device that a move carries away: it is in use up to one
// instruction, and the device goes on to other work in later ones.
type outgoing struct {
	buffer, last int
	until        []int
}

// findOutgoing walks back from the last instruction.
func findOutgoing(p *plan.Plan, spans []Span) (list []outgoing) {
	next := make([]nextWork, len(p.Devices))
	for i := len(p.Instructions) - 1; i >= 0; i-- {
		s := &p.Instructions[i]
		if s.Verb == plan.Run || s.Verb == plan.Update {
			next[s.Device].meet(s, i)
		}
		if s.Verb != plan.Move {
			continue
		}
		b := &p.Buffers[s.Src]
		arena := &p.Arenas[b.Arena]
		if b.Home || arena.Tier != plan.OnDevice || b.Class == plan.ResultData {
			continue
		}
		until := next[arena.Device].after(s)
		if len(until) > 0 && until[len(until)-1] > spans[s.Src].To {
			list = append(list, outgoing{s.Src, spans[s.Src].To, until})
		}
	}
	return list
}

// mostHeld is for how many runs at most something is held.
const mostHeld = 8

// nextWork is what a device does behind an instruction: its next runs; the first
// instruction of the work on a block, and of that on another block behind it.
type nextWork struct {
	runs                 []int
	block, first, behind int
}

func (n *nextWork) meet(s *plan.Instruction, at int) {
	if s.Verb == plan.Run {
		n.runs = append([]int{at}, n.runs[:min(len(n.runs), mostHeld-1)]...)
	}
	if s.Block != n.block {
		n.block, n.behind = s.Block, n.first
	}
	n.first = at
}

// after are the instructions in which other work begins: on another block, or where a move is
// about a micro-batch, the next runs.
func (n *nextWork) after(move *plan.Instruction) []int {
	switch {
	case move.MicroBatch >= 0:
		return n.runs
	case move.Block == n.block:
		return []int{n.behind}
	}
	return []int{n.first}
}
