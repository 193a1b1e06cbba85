package planner

import (
	"fmt"

	"spillway/op"
	"spillway/plan"
)

// glance is what can be said of a choice without writing its plan: the memory that
// its homes take and the time that its products and transfers take alone. The plan
// takes no less of either.
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
	computing, err := b.computing(c)
	if err != nil {
		return glance{}, err
	}
	return glance{e.p, max(computing, b.moving(c, e.state))}, nil
}

// computing is how long the busiest device computes and updates, or the host updates.
func (b *blueprint) computing(c Choice) (most float64, err error) {
	micros := (b.goal.Micros + c.devices() - 1) / c.devices()
	if c.Split != nil {
		micros = b.goal.Micros
	}
	var all float64 // devices
	busy := make([]float64, c.devices())
	for i := range b.model.Blocks {
		t, err := b.blockSeconds(i, c.Level[i])
		if err != nil {
			return 0, err
		}
		d := 0
		if c.Split != nil {
			d = c.Split[i]
		}
		busy[d] += t * float64(micros)
		most, all = max(most, busy[d]), all+t*float64(b.goal.Micros)
	}
	updates, err := b.updates()
	var host float64
	for k, t := range updates {
		if c.hosted(k) {
			host += t.host
		} else {
			all += t.device
		}
	}
	return max(most, host, all/float64(c.devices())), err
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

// blockSeconds is how long a block computes per micro-batch, there and, when
// training, back.
func (b *blueprint) blockSeconds(block int, level Level) (float64, error) {
	last := block == len(b.model.Blocks)-1
	key := costKey{jointKey{b.model.Blocks[block].Kind, block > b.trained}, level, last, block >= b.trained}
	if t, ok := b.costs[key]; ok {
		return t, nil
	}
	phases := []phase{forwardOnly}
	switch {
	case b.training() && last:
		phases = []phase{both}
	case b.training() && key.trained:
		phases = []phase{forward, backward}
	case b.training():
		phases = []phase{forward}
	}
	var sum float64
	for _, ph := range phases {
		fresh := make([]bool, len(b.model.Blocks[block].Params))
		for i := range fresh {
			fresh[i] = b.training() && ph != forward
		}
		if !b.training() {
			fresh = nil
		}
		l, err := b.program(block, ph, level, fresh)
		if err != nil {
			return 0, err
		}
		sum += b.seconds(l.Graph)
	}
	b.costs[key] = sum
	return sum, nil
}

// away are bytes that do not rest on a device.
type away struct{ all, onDisk int64 }

// moving is how long links and disk are busy with weights that stream and optimizer
// state that rests elsewhere. Devices share what is split between them evenly at
// best.
func (b *blueprint) moving(c Choice, state away) float64 {
	in, out := b.weightTraffic(c)
	shares := int64(1)
	if c.Split != nil {
		shares = int64(c.devices())
	}
	each := int64(c.devices()) // data parallel devices update a part each
	toDevice, toHost := in.all/shares+state.all/each, (out.all+state.all)/each
	r := b.site.Rates
	link := max(seconds(toDevice, float64(r.In)), seconds(toHost, float64(r.Out)))
	if r.HalfDuplex {
		link = seconds(toDevice, float64(r.In)) + seconds(toHost, float64(r.Out))
	}
	disk := max(seconds(in.onDisk+state.onDisk, float64(b.site.Disk.Read)), seconds(out.onDisk+state.onDisk, float64(b.site.Disk.Write)))
	return max(link, disk)
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
		if !(c.delayed(k) && b.hasMaster(k)) { // else the update makes them
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
