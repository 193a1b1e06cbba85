package planner

import (
	"fmt"

	"spillway/op"
	"spillway/plan"
)

// glance is what can be said of a choice without writing its plan: the memory that its
// homes take, with what waits for the backward, and the time that its products and
// transfers take alone. The plan takes no less of either.
type glance struct {
	homes   *plan.Plan // devices and arenas; no buffers, no steps
	seconds float64
}

func (b *blueprint) glance(c Choice) (glance, error) {
	c = b.allowed(c)
	e := &emitter{b: b, c: c, counting: true}
	e.start()
	if err := e.homes(); err != nil {
		return glance{}, err
	}
	spilled, err := e.countTurn()
	if err != nil {
		return glance{}, err
	}
	computing, err := b.computing(c)
	if err != nil {
		return glance{}, err
	}
	links, after := b.moving(c, e.state, spilled)
	return glance{e.p, max(computing.device, links, computing.before+max(computing.host, after))}, nil
}

// busy is how long things take at least.
type busy struct {
	device float64 // computes and updates, the busiest
	host   float64 // updates
	// before is when the first gradient is complete: what follows from updates cannot
	// begin earlier.
	before float64
}

// computing is how long devices and host compute.
func (b *blueprint) computing(c Choice) (t busy, err error) {
	micros := (b.goal.Micros + c.devices() - 1) / c.devices()
	if c.Split != nil {
		micros = b.goal.Micros
	}
	var all, forth, back float64 // all: of all devices
	on := make([]float64, c.devices())
	for i := range b.model.Blocks {
		cost, err := b.blockCost(i, c.Level[i])
		if err != nil {
			return t, err
		}
		d := 0
		if c.Split != nil {
			d = c.Split[i]
		}
		on[d] += (cost.forth + cost.back) * float64(micros)
		t.device, all = max(t.device, on[d]), all+(cost.forth+cost.back)*float64(b.goal.Micros)
		forth, back = forth+cost.forth, back+cost.back
	}
	switch {
	case c.Delayed: // updates of the iteration before are made in this one
	case c.Split != nil:
		t.before = forth
	case c.Vertical:
		t.before = forth * float64(micros)
	default:
		t.before = forth*float64(micros) + back*float64(micros-1)
	}
	updates, err := b.updates()
	for k, u := range updates {
		if c.hosted(k) {
			t.host += u.host
		} else {
			all += u.device
		}
	}
	t.device = max(t.device, all/float64(c.devices()))
	return t, err
}

// eachUpdate visits the calls that update a slab as a whole.
func (b *blueprint) eachUpdate(s *plan.Slab, visit func(op.Call)) error {
	for _, stretch := range b.update.Stretches(s, plan.Piece{To: s.Elements}) {
		call, err := b.update.Call(stretch)
		if err != nil {
			return fmt.Errorf("slab %s, params from %s on: %w", s.Name, stretch.Name, err)
		}
		visit(call)
	}
	return nil
}

// costKey is equal for blocks that take the same time.
type costKey struct {
	jointKey
	level         Level
	last, trained bool
}

func (b *blueprint) costKey(block int, level Level) costKey {
	return costKey{jointKey{b.model.Blocks[block].Kind, block > b.trained}, level, block == len(b.model.Blocks)-1, block >= b.trained}
}

// blockCost is how long a block computes per micro-batch.
type blockCost struct {
	forth float64 // before its gradient is begun; for the last block, which does both at once, all of it
	back  float64
}

func (b *blueprint) blockCost(block int, level Level) (cost blockCost, err error) {
	key := b.costKey(block, level)
	if cost, ok := b.costs[key]; ok {
		return cost, nil
	}
	first := forwardOnly
	switch {
	case b.training() && key.last:
		first = both
	case b.training():
		first = forward
	}
	if cost.forth, err = b.phaseSeconds(block, first, level); err != nil {
		return cost, err
	}
	if b.training() && key.trained && !key.last {
		if cost.back, err = b.phaseSeconds(block, backward, level); err != nil {
			return cost, err
		}
	}
	b.costs[key] = cost
	return cost, nil
}

// phaseSeconds is how long one of a block's programs takes.
func (b *blueprint) phaseSeconds(block int, ph phase, level Level) (float64, error) {
	var fresh []bool
	switch {
	case ph == forward:
		fresh = make([]bool, len(b.model.Blocks[block].Params))
	case b.training():
		fresh = b.allFresh(block)
	}
	l, err := b.program(block, ph, level, fresh)
	if err != nil {
		return 0, err
	}
	return b.seconds(l.Graph), nil
}

// away are bytes that do not rest on a device.
type away struct{ all, onDisk int64 }

// moving is how long links and disk are busy with weights that stream, optimizer state
// that rests elsewhere, and values that wait on the host. Devices share what is split between them evenly at
// best.
func (b *blueprint) moving(c Choice, state away, spilled int64) (all, after float64) {
	in, out := b.weightTraffic(c)
	shares := int64(1)
	if c.Split != nil {
		shares = int64(c.devices())
	}
	each := int64(c.devices()) // data parallel devices update a part each
	toDevice, toHost := in.all/shares+(state.all+spilled)/each, (out.all+state.all+spilled)/each
	r, onDisk := b.site.Rates, b.site.Disk
	link := max(seconds(toDevice, float64(r.In)), seconds(toHost, float64(r.Out)))
	if r.HalfDuplex {
		link = seconds(toDevice, float64(r.In)) + seconds(toHost, float64(r.Out))
	}
	written := seconds(out.onDisk+state.onDisk, float64(onDisk.Write))
	after = max(seconds((out.all+state.all)/each, float64(r.Out)), written)
	return max(link, seconds(in.onDisk+state.onDisk, float64(onDisk.Read)), written), after
}

func seconds(bytes int64, rate float64) float64 {
	if rate <= 0 {
		return 0
	}
	return float64(bytes) / rate
}

// weightTraffic is what streamed weights take of the links at least: in, per data
// parallel device or over all devices of a split; out, of all devices together. What
// the window holds when a walk over the blocks turns round need not come again.
func (b *blueprint) weightTraffic(c Choice) (in, out away) {
	rounds := b.roundsOf(c)
	var again away // what every walk after the first takes
	var largest int64
	for k, s := range b.slabs.list {
		if c.hosted(k) {
			b.hostedTraffic(k, c, &in, &out)
		}
		if !c.Streamed[k] {
			continue
		}
		largest = max(largest, s.WeightBytes)
		if !(c.delayed(k) && !c.hosted(k) && b.hasMaster(k)) { // else the update makes them
			in.add(s.WeightBytes, c.OnDisk[k])
		}
		if b.training() && s.Elements > 0 && !c.hosted(k) {
			out.add(s.WeightBytes, c.OnDisk[k])
		}
		if owner := b.owner[k]; owner > b.trained && owner < len(b.model.Blocks)-1 && b.slabs.users[k] == 1 {
			again.add(s.WeightBytes, c.OnDisk[k])
		}
	}
	walks := int64(rounds)
	if b.training() {
		walks *= 2
	}
	held := int64(c.Window+2) * largest * int64(c.devices())
	in.all += (walks - 1) * max(again.all-held, 0)
	in.onDisk += (walks - 1) * max(again.onDisk-held, 0)
	return in, out
}

// hostedTraffic is what an update by the host moves.
func (b *blueprint) hostedTraffic(k int, c Choice, in, out *away) {
	s := &b.slabs.list[k]
	out.add(b.gradBytes(k), false)
	if !c.Streamed[k] {
		in.add(s.WeightBytes, false)
	}
}

func (a *away) add(bytes int64, onDisk bool) {
	a.all += bytes
	if onDisk {
		a.onDisk += bytes
	}
}

// roundsOf is how often the micro-batches of a device walk over its blocks at least.
func (b *blueprint) roundsOf(c Choice) int {
	switch {
	case b.vertical(c):
		return 1
	case c.Split != nil:
		return b.goal.Micros
	}
	return max(b.goal.Micros/c.devices(), 1)
}
