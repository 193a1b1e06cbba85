package search

import (
	"math"
	"sync"

	"spillway/plan"
	"spillway/planner/emit"
	"spillway/planner/layout"
	"spillway/planner/strategy"
)

// scale is what choices are tried on: the model itself, or where that is deep, two miniatures
// with fewer of its equal blocks, the second with twice as many as the first. Another period
// takes what the one before took, so what the model takes is on the straight line through the
// two. Choices are made for the first.
type scale struct {
	on            [2]*target // the second is nil where the first is the model itself
	times         int        // how many periods the first has
	twice         likeness   // of the second to the first
	periodsBeyond float64    // periods that the model has beyond the second, in units of those that the second has beyond the first
}

// likeness is, of each block and slab of a deeper model, the one of a miniature that is treated
// alike. Blocks are treated from the first on, slabs in a rhythm.
type likeness struct{ blocks, slabs []int }

// itself tries choices on the model.
func (b *target) itself() *scale { return &scale{on: [2]*target{b}} }

// whole says whether choices are tried on the model itself.
func (f *scale) whole() bool { return f.on[1] == nil }

// periods of miniatures, from coarse to fine: as many as the strides of a climb tell apart, and
// four times as many.
var periods = []int{strideShare, 4 * strideShare}

// deepEnough is how many times as many periods as a miniature a model must have for the miniature
// to be worth it.
const deepEnough = 6

// miniatures are those of a deep model; none where constraints name blocks.
func (b *target) miniatures(r layout.Repeats) (list []*scale, err error) {
	for _, times := range periods {
		if len(b.Goal.Constraints.Places) > 0 || r.Times < deepEnough*times {
			break
		}
		f := &scale{times: times, periodsBeyond: float64(r.Times-2*times) / float64(times)}
		for i := range f.on {
			short, err := b.Shortened(r, times<<i)
			if err != nil {
				return nil, err
			}
			f.on[i] = newTarget(short)
		}
		f.twice = likenessOf(r, f.on[0], times, f.on[1], 2*times)
		list = append(list, f)
	}
	return list, nil
}

// likenessOf is that of a model with more periods to a small one with few.
func likenessOf(r layout.Repeats, small *target, few int, b *target, more int) (l likeness) {
	for i := range b.Model.Blocks {
		switch in := i - r.First; {
		case in < 0:
		case in < r.Blocks*more:
			i = r.First + in/r.Blocks*few/more*r.Blocks + in%r.Blocks
		default:
			i -= r.Blocks * (more - few)
		}
		l.blocks = append(l.blocks, i)
	}
	first := firstSlab(small, r.First)
	each := (firstSlab(small, r.First+r.Blocks*few) - first) / few
	for k := range b.Slabs.List {
		switch in := k - first; {
		case in < 0:
		case in < each*more:
			k = first + in%(each*few)
		default:
			k -= each * (more - few)
		}
		l.slabs = append(l.slabs, k)
	}
	return l
}

// firstSlab is the first slab that a block or one behind it owns.
func firstSlab(b *target, block int) int {
	for k, owner := range b.Slabs.Owner {
		if owner >= block {
			return k
		}
	}
	return len(b.Slabs.Owner)
}

// choices are the one for the first, and the one like it for the second.
func (f *scale) choices(c strategy.Choice) [2]strategy.Choice {
	if f.whole() {
		return [2]strategy.Choice{c}
	}
	return [2]strategy.Choice{c, f.twice.choice(c, f.on[1])}
}

// choice is the one like c for a deeper model.
func (l likeness) choice(c strategy.Choice, b *target) strategy.Choice {
	c.Streamed, c.OffloadedState, c.OnDisk, c.UpdatedByCPU = gather(c.Streamed, l.slabs), gather(c.OffloadedState, l.slabs), gather(c.OnDisk, l.slabs), gather(c.UpdatedByCPU, l.slabs)
	c.Level, c.OffloadedActivations = gather(c.Level, l.blocks), gather(c.OffloadedActivations, l.blocks)
	if c.Split != nil {
		c.Split = b.split(c.Devices)
	}
	return c
}

func gather[T any](list []T, at []int) []T {
	if list == nil {
		return nil
	}
	picked := make([]T, len(at))
	for i, from := range at {
		picked[i] = list[from]
	}
	return picked
}

// each does something on the model, or on the two miniatures at once.
func (f *scale) each(do func(i int) error) error {
	if f.whole() {
		return do(0)
	}
	var other error
	var done sync.WaitGroup
	done.Go(func() { other = do(1) })
	err := do(0)
	done.Wait()
	if err == nil {
		err = other
	}
	return err
}

// onLine extrapolates something from the miniatures to the model.
func (f *scale) onLine(of [2]float64) float64 {
	if f.whole() {
		return of[0]
	}
	return of[1] + f.periodsBeyond*(of[1]-of[0])
}

// arenas extrapolates those of the miniatures to the model. Data parallel devices, which own one
// slab or another, share what more periods take evenly.
func (f *scale) arenas(of [2]*plan.Plan, c strategy.Choice) *plan.Plan {
	if f.whole() {
		return of[0]
	}
	p := &plan.Plan{Devices: of[1].Devices, Arenas: append([]plan.Arena(nil), of[1].Arenas...)}
	var more, devices int64 // what devices take more in the second
	for i, a := range p.Arenas {
		if a.Tier == plan.OnDevice {
			more, devices = more+a.Bytes-of[0].Arenas[i].Bytes, devices+1
		}
	}
	for i := range p.Arenas {
		a := &p.Arenas[i]
		by := a.Bytes - of[0].Arenas[i].Bytes
		if a.Tier == plan.OnDevice && c.Split == nil {
			by = more / devices
		}
		a.Bytes += int64(f.periodsBeyond * float64(max(by, 0)))
	}
	return p
}

// estimate is what can be said of a choice without writing its plan.
func (f *scale) estimate(c strategy.Choice) (estimate, error) {
	var of [2]estimate
	choices := f.choices(c)
	err := f.each(func(i int) (err error) {
		of[i], err = f.on[i].estimate(choices[i])
		return err
	})
	if err != nil {
		return estimate{}, err
	}
	return estimate{f.arenas([2]*plan.Plan{of[0].homes, of[1].homes}, c), f.onLine([2]float64{of[0].seconds, of[1].seconds})}, nil
}

// draftPair is the draft of a choice, or those of the two miniatures.
type draftPair struct {
	*scale
	drafts [2]*emit.Draft
	steps  int // instructions of all drafts
}

// draft writes the plans of a choice but for the places of buffers.
func (f *scale) draft(c strategy.Choice) (*draftPair, error) {
	t, choices := &draftPair{scale: f}, f.choices(c)
	err := f.each(func(i int) (err error) {
		t.drafts[i], err = f.on[i].writer.Draft(choices[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, d := range t.drafts {
		if d != nil {
			t.steps += len(d.Plan.Instructions)
		}
	}
	return t, nil
}

// all does something to the draft, or to both at once, and returns what the plan takes of each
// arena then.
func (t *draftPair) all(do func(*emit.Draft)) *plan.Plan {
	_ = t.each(func(i int) error { // cannot fail
		do(t.drafts[i])
		return nil
	})
	plans := [2]*plan.Plan{t.drafts[0].Plan}
	if !t.whole() {
		plans[1] = t.drafts[1].Plan
	}
	return t.arenas(plans, t.drafts[0].Choice)
}

// least is what the plan takes at least: what is alive in its arenas at once.
func (t *draftPair) least() *plan.Plan { return t.all(func(d *emit.Draft) { d.Least() }) }

// packed is what it takes with a place for every buffer. Frees are left out, they take no time.
func (t *draftPair) packed() *plan.Plan { return t.all(func(d *emit.Draft) { d.Pack() }) }

// packedWithin is packed, where packing ends as soon as a device has too little memory for it.
func (t *draftPair) packedWithin(share float64) *plan.Plan {
	if !t.whole() { // what the model takes follows from all that both take
		return t.packed()
	}
	return t.all(func(d *emit.Draft) {
		limits := make([]int64, len(d.Plan.Arenas))
		for i, a := range d.Plan.Arenas {
			limits[i] = math.MaxInt64
			if a.Tier == plan.OnDevice {
				limits[i] = shareOf(d.Plan.Devices[a.Device].Budget, share)
			}
		}
		d.PackWithin(limits)
	})
}

// forecast of the packed plan, and whether its iterations are captured; of miniatures only
// the seconds are the model's.
func (t *draftPair) forecast() (f *plan.Forecast, captured bool, err error) {
	var of [2]*plan.Forecast
	var plans [2]*plan.Plan
	err = t.each(func(i int) (err error) {
		t.drafts[i].Order()
		plans[i], of[i], err = t.on[i].forecaster.CaptureIfFaster(t.drafts[i].Plan)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	if t.whole() {
		return of[0], plans[0].Captured, nil
	}
	extrapolated := *of[1]
	extrapolated.StepSeconds = t.onLine([2]float64{of[0].StepSeconds, of[1].StepSeconds})
	return &extrapolated, false, nil
}
