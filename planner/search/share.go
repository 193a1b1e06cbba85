package search

import (
	"encoding/json"
	"fmt"
	"slices"

	"spillway/graph"
	"spillway/plan"
	"spillway/planner/forecast"
	"spillway/planner/goal"
	"spillway/planner/layout"
	"spillway/planner/strategy"
	"spillway/spec"
	"spillway/units"
)

// Rows traces the model of a plan to generate for steps of other numbers of rows.
type Rows struct {
	Sizes []int64 // of the steps, from few rows to many
	Trace func(rows int64) (*spec.Model, error)
}

// sharer divides the blocks of a model that is larger than its device among those that stay there,
// those that stream to it, and those that the CPU computes meanwhile from host memory. A token passes
// the blocks one after the other, so the CPU's come between those that stream: while it computes
// some, the link brings the next.
type sharer struct {
	goal   goal.Goal
	site   goal.Site
	base   strategy.Choice // that the search found without the CPU
	main   *target
	decode *target // of a step that adds a token to every sequence
	rows   int64   // of that
	exact  bool
	layers []int // blocks with keys and values
}

func newSharer(main, decode *spec.Model, g goal.Goal, site goal.Site, c strategy.Choice) (*sharer, error) {
	s := &sharer{goal: g, site: site, base: c, exact: main.Config.Cache.Exact, rows: decode.Config.Seq}
	for _, m := range []struct {
		to *(*target)
		of *spec.Model
	}{{&s.main, main}, {&s.decode, decode}} {
		l, err := layout.New(m.of, g, site)
		if err != nil {
			return nil, err
		}
		*m.to = newTarget(l)
	}
	for i := range main.Blocks {
		if len(graph.Ports(main.Program(i).Inputs, graph.Cache)) > 0 {
			s.layers = append(s.layers, i)
		}
	}
	return s, nil
}

// choice keeps some blocks on the device, the last ones behind the layers first, gives the CPU some of the others in
// steps of up to so many rows, and streams the rest. Those that stream are evenly among the layers, each behind what is
// computed while it comes, so that the link never waits for a buffer; so are the CPU's among the others. What only looks
// embeddings up is always the CPU's.
func (s *sharer) choice(resident, depth, byCPU int, rows int64) strategy.Choice {
	c, blocks := s.base, len(s.main.Model.Blocks)
	c.Prefetch, c.CPURows = depth, make([]int64, blocks)
	c.Streamed = slices.Repeat([]bool{true}, len(s.base.Streamed))
	stays := func(i int) {
		for _, k := range s.main.Slabs.OfBlock[i] {
			c.Streamed[k] = false
		}
	}
	first, end := s.layers[0], s.layers[len(s.layers)-1]+1
	for i := max(end, blocks-resident); i < blocks; i++ {
		stays(i)
	}
	for i := min(first, blocks) - max(resident-(blocks-first), 0); i < first; i++ {
		stays(i)
	}
	here := min(s.layersHere(resident), end-first)
	byCPU = min(byCPU, end-first-here)
	streams := end - first - here - byCPU
	computed, kept, given := 0, 0, 0 // before a layer: others than those that stream, and which
	for i := range end - first {
		if (i+1)*streams/(end-first) > i*streams/(end-first) {
			continue
		}
		computed++
		switch of := (end - first - streams); {
		case given < computed*byCPU/of && slices.Contains(s.layers, first+i):
			c.CPURows[first+i] = rows
			given++
		case kept < here:
			stays(first + i)
			kept++
		}
	}
	for i := range min(blocks-1, first) {
		c.CPURows[i] = strategy.AllRows
	}
	return s.main.Allowed(c)
}

// layersHere is how many layers are among so many blocks that stay on the device.
func (s *sharer) layersHere(resident int) int {
	behind := len(s.main.Model.Blocks) - 1 - s.layers[len(s.layers)-1]
	return max(resident-behind, 0)
}

// fits says whether the largest step has memory for a choice.
func (s *sharer) fits(c strategy.Choice) (bool, error) {
	for _, t := range []*target{s.main, s.decode} {
		p, err := t.writer.Plan(c)
		if err != nil {
			return false, err
		}
		if n := DemandOf(p, s.site.SharedMemory, 1); n.lacks() > 0 || n.Host > s.site.HostBudget {
			return false, nil
		}
	}
	return true, nil
}

// seconds that a step of a target takes.
func (s *sharer) seconds(t *target, c strategy.Choice) (float64, error) {
	p, err := write(t.writer, c)
	if err != nil {
		return 0, err
	}
	f, err := forecast.Of(p, s.site)
	if err != nil {
		return 0, err
	}
	return f.StepSeconds, nil
}

// shared is a division of the blocks.
type shared struct {
	choice                 strategy.Choice
	resident, depth, byCPU int
	seconds                float64 // of a token
}

// worth is what a token must take of the time without the CPU. Embeddings that it looks up have the same bits.
func (d *shared) worth() float64 {
	if d.byCPU == 0 {
		return worthwhile
	}
	return worthLeaving
}

// best finds the division with which a token takes least. A second buffer for what streams hides the
// arithmetic of prompts, so it is kept where it costs little.
func (s *sharer) best() (found *shared, err error) {
	for _, depth := range []int{2, 1} {
		d, err := s.bestAt(depth)
		if err != nil {
			return nil, err
		}
		if d != nil && (found == nil || d.seconds < worthSecond*found.seconds) {
			found = d
		}
	}
	return found, nil
}

// bestAt finds the division at a prefetch depth; nil where none fits. Blocks of the CPU have their keys
// and values on the host, so that more of the others may fit once it has some.
func (s *sharer) bestAt(depth int) (found *shared, err error) {
	for byCPU := 0; ; byCPU = found.byCPU {
		resident, err := s.mostResident(depth, byCPU)
		if err != nil || resident < 0 || found != nil && resident <= found.resident {
			return found, err
		}
		d, err := s.divide(resident, depth)
		if err != nil {
			return nil, err
		}
		if d == nil || found != nil && d.seconds >= found.seconds {
			return found, nil
		}
		found = d
	}
}

// mostResident is how many blocks may stay on the device where the CPU has so many; -1 for none that
// fits.
func (s *sharer) mostResident(depth, byCPU int) (most int, err error) {
	most = -1
	for low, high := 0, len(s.main.Model.Blocks); low <= high; {
		mid := (low + high) / 2
		fits, err := s.fits(s.choice(mid, depth, byCPU, s.rows))
		if err != nil {
			return -1, err
		}
		if fits {
			most, low = mid, mid+1
		} else {
			high = mid - 1
		}
	}
	return most, nil
}

// worthSecond is what a token must take of the time with two buffers for one to be worth it.
const worthSecond = 0.95

// divide finds how many blocks the CPU should compute; nil where nothing fits.
func (s *sharer) divide(resident, depth int) (*shared, error) {
	most := 0
	if !s.exact && !s.site.LooksUpOnly {
		most = max(len(s.layers)-s.layersHere(resident), 0)
	}
	var found *shared
	for n := range most + 1 {
		c := s.choice(resident, depth, n, s.rows)
		t, err := s.seconds(s.decode, c)
		if err != nil {
			return nil, err
		}
		if found != nil && t >= found.seconds {
			continue
		}
		if fits, err := s.fits(c); err != nil {
			return nil, err
		} else if fits {
			found = &shared{c, resident, depth, n, t}
		}
	}
	return found, nil
}

// mostRows finds up to how many rows the CPU should compute its blocks: more rows take it longer, and
// the link no longer.
func (s *sharer) mostRows(d *shared, more Rows) (int64, error) {
	rows := s.rows
	for _, n := range more.Sizes {
		if n <= rows {
			continue
		}
		m, err := more.Trace(n)
		if err != nil {
			return 0, err
		}
		l, err := layout.New(m, s.goal, s.site)
		if err != nil {
			return 0, err
		}
		t := newTarget(l)
		with, err := s.seconds(t, s.choice(d.resident, d.depth, d.byCPU, n))
		if err != nil {
			return 0, err
		}
		without, err := s.seconds(t, s.choice(d.resident, d.depth, d.byCPU, rows))
		if err != nil || with > without {
			return rows, err
		}
		rows = n
	}
	return rows, nil
}

// shareWithCPU is a plan that streams weights, with the CPU computing some of the blocks where a token
// takes less time then.
func shareWithCPU(p *plan.Plan, main, decode *spec.Model, g goal.Goal, site goal.Site, more Rows) (*plan.Plan, error) {
	var c strategy.Choice
	if err := json.Unmarshal(p.Choices, &c); err != nil {
		return nil, err
	}
	open := g.Constraints.Weights == "" && len(g.Constraints.Places) == 0
	if site.CPUKernels == nil || site.CPU.Bandwidth == 0 || c.DeviceCount() > 1 || strategy.Count(c.OnDisk) > 0 || !open {
		return p, nil
	}
	s, err := newSharer(main, decode, g, site, c)
	if err != nil || len(s.layers) == 0 {
		return p, err
	}
	before, err := s.seconds(s.decode, c)
	if err != nil {
		return nil, err
	}
	found, err := s.best()
	if err != nil || found == nil || found.seconds > found.worth()*before {
		return p, err
	}
	rows, err := s.mostRows(found, more)
	if err != nil {
		return nil, err
	}
	q, err := write(s.main.writer, s.choice(found.resident, found.depth, found.byCPU, rows))
	if err != nil {
		return nil, err
	}
	q, f, err := forecast.CaptureIfFaster(q, site)
	if err != nil {
		return nil, err
	}
	q.Forecast = f
	q.Reason = fmt.Sprintf("%s; with the CPU a token takes %s instead of %s", p.Reason, units.Seconds(found.seconds), units.Seconds(before))
	q.Rejected = p.Rejected
	return q, plan.Verify(q)
}
