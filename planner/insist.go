package planner

import (
	"fmt"
	"maps"
	"slices"

	"spillway/plan"
	"spillway/spec"
)

// Insist is what a goal leaves no choice about; the search decides the rest. The
// zero value insists on nothing.
type Constraints struct {
	// Places of blocks, by name: all of them, or none.
	Places map[string]Place
	// Way several devices share the work; "" leaves it open.
	Parallelism Parallelism
	// Weights and State are the tier all weights, or all the optimizer keeps, rest in:
	// plan.OnDevice, plan.OnHost or plan.OnDisk, or "" to leave it open.
	Weights, State plan.Tier
	// Updates is who updates; "" leaves it open.
	Updates Updater
	// Activations is what becomes of values a backward reads; "" leaves it open.
	Activations Activations
}

// Activations is what becomes of the values that a backward reads. Either way what
// is kept stays on the device.
type Activations string

// What may be insisted on.
const (
	Saved      Activations = "kept"       // all of them
	Recomputed Activations = "recomputed" // none but the inputs of blocks
)

// Place is where a block's weights rest. It runs on Device, where they also rest if
// the tier is plan.OnDevice; else they stream to it from host memory.
type Place struct {
	Tier   plan.Tier
	Device int
}

// Way is how several devices share the work.
type Parallelism string

// The ways.
const (
	ZeRO1         Parallelism = "zero-1"                // data parallel, optimizer state is sharded
	ZeRO2         Parallelism = "data parallel"         // ZeRO-2: optimizer state and gradients are sharded
	ZeRO3         Parallelism = "sharded data parallel" // ZeRO-3: weights too
	ModelParallel Parallelism = "model parallel"
	Pipeline      Parallelism = "pipeline"
)

// Ways lists them.
var Parallelisms = []Parallelism{ZeRO1, ZeRO2, ZeRO3, ModelParallel, Pipeline}

var parallelismNamed = map[Parallelism]way{ZeRO1: shardedState, ZeRO2: dataParallel, ZeRO3: shardedData, ModelParallel: splitModel, Pipeline: pipelined}

// any says whether something is insisted on.
func (i Constraints) any() bool {
	return len(i.Places) > 0 || i.Parallelism != "" || i.Weights != "" || i.State != "" || i.Activations != "" || i.Updates != ""
}

// check refuses what cannot be, and limits the site to the devices that are named.
func (i Constraints) check(m *spec.Model, g Goal, site *Site) error {
	if len(i.Places) > 0 {
		if err := i.checkPlaces(m, site); err != nil {
			return err
		}
	}
	for _, t := range []plan.Tier{i.Weights, i.State} {
		if t == plan.OnDisk && site.Disk.Budget == 0 {
			return fmt.Errorf("weights or optimizer state are to rest on disk, and the machine has no disk tier; add one, such as disk:2TiB, or use host memory")
		}
	}
	if off := func(t plan.Tier) bool { return t != "" && t != plan.OnDevice }; off(i.Weights) && off(i.State) && i.Weights != i.State {
		return fmt.Errorf("weights are to rest on %s and optimizer state on %s; what of a block is off the device rests together", i.Weights, i.State)
	}
	if !slices.Contains([]Activations{"", Saved, Recomputed}, i.Activations) {
		return fmt.Errorf("activations cannot be %q; they are %q or %q", i.Activations, Saved, Recomputed)
	}
	if err := i.checkUpdates(g); err != nil || i.Parallelism == "" {
		return err
	}
	if len(i.Places) > 0 {
		return fmt.Errorf("blocks have places, which is a way to share the work by itself; leave %s away", i.Parallelism)
	}
	if !slices.Contains(Parallelisms, i.Parallelism) {
		return fmt.Errorf("%q is no way to share the work; there are %q", i.Parallelism, Parallelisms)
	}
	devices := max(site.Devices, 1)
	if devices < 2 {
		return fmt.Errorf("%s needs several devices, there is one", i.Parallelism)
	}
	if (i.Parallelism == ZeRO1 || i.Parallelism == ZeRO2 || i.Parallelism == ZeRO3) && g.MicroBatches < 2 {
		return fmt.Errorf("%s needs micro-batches for %d devices to share, an iteration has %d; accumulate %d", i.Parallelism, devices, g.MicroBatches, devices)
	}
	if i.Parallelism == Pipeline && g.Optimizer == nil {
		return fmt.Errorf("a pipeline is an order of training; without training use %s", ModelParallel)
	}
	return nil
}

func (i Constraints) checkPlaces(m *spec.Model, site *Site) error {
	named, devices := map[string]bool{}, 1
	for _, b := range m.Blocks {
		named[b.Name] = true
		p, ok := i.Places[b.Name]
		switch {
		case !ok:
			return fmt.Errorf("block %s has no place, others have; give every block one", b.Name)
		case p.Tier == plan.OnDisk && site.Disk.Budget == 0:
			return fmt.Errorf("block %s is to rest on disk, and the machine has no disk tier; add one, such as disk:2TiB, or place it in host memory", b.Name)
		case p.Device < 0 || p.Device >= max(site.Devices, 1):
			return fmt.Errorf("block %s is to run on device %d, there are %d, counted from 0", b.Name, p.Device, max(site.Devices, 1))
		}
		devices = max(devices, p.Device+1)
	}
	for _, name := range slices.Sorted(maps.Keys(i.Places)) {
		if !named[name] {
			return fmt.Errorf("the model has no block %q that is to be placed", name)
		}
	}
	site.Devices = devices
	return nil
}

// allowed keeps the ways that what is insisted on leaves.
func (s *search) allowed(list []way) []way {
	i := s.b.goal.Constraints
	switch {
	case len(i.Places) > 0 && s.devices() > 1:
		if s.b.training() && s.b.goal.MicroBatches > 1 {
			return []way{splitModel, pipelined}
		}
		return []way{splitModel}
	case i.Parallelism == ZeRO1 && !s.b.training(): // nothing is there to shard
		return []way{dataParallel}
	case i.Parallelism != "":
		return []way{parallelismNamed[i.Parallelism]}
	}
	return s.without(list)
}

// insisted changes a choice to what is insisted on.
func (s *search) constrained(c Choice) Choice {
	i := s.b.goal.Constraints
	if w := s.b.goal.Bounds.Prefetch; w > 0 {
		c.Prefetch = w
	}
	if !i.any() {
		return c
	}
	for b := range c.Level {
		if i.Activations != "" {
			c.Level[b], c.OffloadedActivations[b] = map[Activations]Level{Saved: SaveAll, Recomputed: SaveNone}[i.Activations], false
		}
	}
	for k := range c.Streamed {
		if i.Weights != "" {
			c.Streamed[k] = i.Weights != plan.OnDevice
		}
		if i.State != "" {
			c.OffloadedState[k] = i.State != plan.OnDevice && s.b.training()
		}
		if i.Weights != "" || i.State != "" {
			c.OnDisk[k] = i.Weights == plan.OnDisk || i.State == plan.OnDisk
		}
		if p, ok := i.Places[s.b.model.Blocks[s.b.owner[k]].Name]; ok {
			c.Streamed[k], c.OnDisk[k] = p.Tier != plan.OnDevice, p.Tier == plan.OnDisk
		}
	}
	c = s.constrainUpdates(c)
	if len(i.Places) > 0 && c.Split != nil {
		for b, block := range s.b.model.Blocks {
			c.Split[b] = i.Places[block.Name].Device
		}
	}
	c.BreadthFirst = !c.Pipeline && count(c.Streamed)+count(c.OffloadedState) > 0
	if count(c.Streamed) > 0 {
		c.Prefetch = max(c.Prefetch, 1)
	}
	return c
}

// Happened says whether a plan does what was insisted on, going by the homes and
// steps that are in it. The error names what is elsewhere.
func (i Constraints) SatisfiedBy(m *spec.Model, p *plan.Plan) error {
	if err := i.activationsSatisfied(p); err != nil {
		return err
	}
	if err := i.updatesSatisfied(p); err != nil {
		return err
	}
	for _, s := range p.Slabs {
		if err := i.homesSatisfied(p, s); err != nil {
			return err
		}
	}
	for _, s := range p.Instructions {
		if s.Verb != plan.Run || s.Block < 0 {
			continue
		}
		if place, ok := i.Places[m.Blocks[s.Block].Name]; ok && place.Device != s.Device {
			return fmt.Errorf("block %s was to run on device %d, the plan runs it on %d", m.Blocks[s.Block].Name, place.Device, s.Device)
		}
	}
	return nil
}

// happenedToActivations looks at the buffers that hold them.
func (i Constraints) activationsSatisfied(p *plan.Plan) error {
	if i.Activations == "" {
		return nil
	}
	for id, b := range p.Buffers {
		if b.Class == plan.Activation && p.TierOf(id) != plan.OnDevice {
			return fmt.Errorf("activations were to be %s, the plan sends %s to the %s", i.Activations, b.Name, p.TierOf(id))
		}
	}
	for k := range p.Instructions {
		if bind, ok := p.Instructions[k].Bound(plan.InSaved, 0); ok && i.Activations == Recomputed && p.Buffers[bind.Buffer].Bytes > 0 {
			return fmt.Errorf("activations were to be recomputed, the plan keeps %s", p.Buffers[bind.Buffer].Name)
		}
	}
	return nil
}

// happenedTo looks at the homes of a slab.
func (i Constraints) homesSatisfied(p *plan.Plan, s plan.Slab) error {
	arena := p.Arenas[p.Buffers[s.Weight].Arena]
	if place, ok := i.Places[s.Name]; ok && (!rests(p, s.Weight, place.Tier) || place.Tier == plan.OnDevice && arena.Device != place.Device) {
		return fmt.Errorf("the weights of %s were to rest on %s, the plan has them on %s, %s", s.Name, place, arena.Tier, arena.Name)
	}
	if i.Weights != "" && !rests(p, s.Weight, i.Weights) {
		return fmt.Errorf("the weights of %s were to rest on %s, the plan has them on %s", s.Name, i.Weights, arena.Tier)
	}
	for _, piece := range s.Pieces {
		if i.State != "" && piece.State >= 0 && !rests(p, piece.State, i.State) {
			return fmt.Errorf("the optimizer state of %s was to rest on %s, the plan has it on %s", s.Name, i.State, p.TierOf(piece.State))
		}
	}
	return nil
}

// rests says whether a buffer is in a tier; pinned memory is the host's.
func rests(p *plan.Plan, buffer int, t plan.Tier) bool {
	at := p.TierOf(buffer)
	return at == t || at == plan.Pinned && t == plan.OnHost
}

func (p Place) String() string {
	if p.Tier == plan.OnDevice {
		return fmt.Sprintf("device %d", p.Device)
	}
	return fmt.Sprintf("%s for device %d", p.Tier, p.Device)
}
