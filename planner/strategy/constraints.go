package strategy

import (
	"fmt"
	"maps"
	"slices"

	"spillway/plan"
	"spillway/spec"
)

// Constraints are what a plan must do, whether or not it is fastest; the search decides
// the rest. The zero value demands nothing.
type Constraints struct {
	// Places of blocks, by name: all of them, or none.
	Places map[string]Place
	// Parallelism is how several devices share the work; "" leaves it open.
	Parallelism Parallelism
	// Weights and State are the tier in which all weights, or all optimizer state, are
	// stored: plan.OnDevice, plan.OnHost or plan.OnDisk, or "" to leave it open.
	Weights, State plan.Tier
	// Updates is who runs the optimizer; "" leaves it open.
	Updates Updater
	// Activations is what becomes of values that the backward reads; "" leaves it open.
	Activations Activations
}

// Place is where the weights of a block are stored. The block runs on Device, where they
// are stored too if the tier is plan.OnDevice; else they stream to it.
type Place struct {
	Tier   plan.Tier
	Device int
}

func (p Place) String() string {
	if p.Tier == plan.OnDevice {
		return fmt.Sprintf("device %d", p.Device)
	}
	return fmt.Sprintf("%s for device %d", p.Tier, p.Device)
}

// Activations is what becomes of the values that the backward reads. What is saved stays
// on the device.
type Activations string

// What may be demanded of activations.
const (
	Saved      Activations = "saved"      // all of them
	Recomputed Activations = "recomputed" // all but the inputs of blocks
)

// Updater is who runs the optimizer.
type Updater string

// The updaters.
const (
	ByDevice Updater = "device" // that has the gradients; state that is stored elsewhere comes to it
	ByCPU    Updater = "cpu"    // all that is trained, where its state is stored
	ByBoth   Updater = "split"  // some by the CPU
)

// Updaters lists them.
var Updaters = []Updater{ByDevice, ByCPU, ByBoth}

// Any says whether something is demanded.
func (c Constraints) Any() bool {
	return len(c.Places) > 0 || c.Parallelism != "" || c.Weights != "" || c.State != "" || c.Activations != "" || c.Updates != ""
}

// Inference is what is left of the constraints where nothing is trained: there is no
// optimizer state, nothing is saved for a backward, and a pipeline is an order of training.
func (c Constraints) Inference() Constraints {
	c.State, c.Activations = "", ""
	if s := Of(c.Parallelism).Inference; s != nil {
		c.Parallelism = Parallelism(s.Name)
	}
	return c
}

// Check refuses what cannot be.
func (c Constraints) Check(m *spec.Model, f Facts) error {
	if err := c.checkPlaces(m, f); err != nil {
		return err
	}
	for _, t := range []plan.Tier{c.Weights, c.State} {
		if t == plan.OnDisk && !f.Disk {
			return fmt.Errorf("weights or optimizer state are to be stored on disk, and the machine has no disk tier; add one, such as disk:2TiB, or use host memory")
		}
	}
	if off := func(t plan.Tier) bool { return t != "" && t != plan.OnDevice }; off(c.Weights) && off(c.State) && c.Weights != c.State {
		return fmt.Errorf("weights are to be stored on %s and optimizer state on %s; what of a block is off the device is stored together", c.Weights, c.State)
	}
	if !slices.Contains([]Activations{"", Saved, Recomputed}, c.Activations) {
		return fmt.Errorf("activations cannot be %q; they are %q or %q", c.Activations, Saved, Recomputed)
	}
	if err := c.checkUpdates(f); err != nil {
		return err
	}
	return c.checkParallelism(f)
}

func (c Constraints) checkParallelism(f Facts) error {
	switch {
	case c.Parallelism == "":
		return nil
	case len(c.Places) > 0:
		return fmt.Errorf("blocks have places, which shares the work by itself; leave %s away", c.Parallelism)
	case !slices.Contains(Parallelisms, c.Parallelism):
		return fmt.Errorf("devices cannot share the work by %q; there are %q", c.Parallelism, Parallelisms)
	case c.Parallelism == ZeRO1: // without training it is the same as ZeRO-2
		f.Training = true
	}
	if err := Of(c.Parallelism).Refuse(f); err != nil {
		return fmt.Errorf("%s %w", c.Parallelism, err)
	}
	return nil
}

// checkUpdates refuses updates by the CPU that cannot be.
func (c Constraints) checkUpdates(f Facts) error {
	switch {
	case c.Updates == "":
		return nil
	case !slices.Contains(Updaters, c.Updates):
		return fmt.Errorf("%q cannot run the optimizer; there are %q", c.Updates, Updaters)
	case !f.Training:
		return fmt.Errorf("nothing is trained, so nobody runs the optimizer; leave %q away", c.Updates)
	case c.Updates != ByDevice && f.WholeParams:
		return fmt.Errorf("the optimizer updates whole params, which the CPU cannot; leave %q away", c.Updates)
	case c.Updates != ByDevice && c.State != "" && c.State != plan.OnHost:
		return fmt.Errorf("the CPU updates what is stored in host memory, and optimizer state is to be stored on %s; leave one away", c.State)
	}
	return nil
}

func (c Constraints) checkPlaces(m *spec.Model, f Facts) error {
	if len(c.Places) == 0 {
		return nil
	}
	named := map[string]bool{}
	for _, b := range m.Blocks {
		named[b.Name] = true
		p, ok := c.Places[b.Name]
		switch {
		case !ok:
			return fmt.Errorf("block %s has no place, others have; give every block one", b.Name)
		case p.Tier == plan.OnDisk && !f.Disk:
			return fmt.Errorf("block %s is to be stored on disk, and the machine has no disk tier; add one, such as disk:2TiB, or place it in host memory", b.Name)
		case p.Device < 0 || p.Device >= f.Devices:
			return fmt.Errorf("block %s is to run on device %d, there are %d, counted from 0", b.Name, p.Device, f.Devices)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Places)) {
		if !named[name] {
			return fmt.Errorf("the model has no block %q that is to be placed", name)
		}
	}
	return nil
}

// Devices is how many devices the places of blocks name; 0 where they have none.
func (c Constraints) Devices() (n int) {
	for _, p := range c.Places {
		n = max(n, p.Device+1)
	}
	return n
}

// SatisfiedBy says whether a plan does what was demanded, going by the homes and
// instructions that are in it. The error names what is elsewhere.
func (c Constraints) SatisfiedBy(m *spec.Model, p *plan.Plan) error {
	if err := c.activationsSatisfied(p); err != nil {
		return err
	}
	if err := c.updatesSatisfied(p); err != nil {
		return err
	}
	for _, s := range p.Slabs {
		if err := c.homesSatisfied(p, s); err != nil {
			return err
		}
	}
	for i := range p.Instructions {
		s := &p.Instructions[i]
		if s.Verb != plan.Run || s.Block < 0 {
			continue
		}
		if place, ok := c.Places[m.Blocks[s.Block].Name]; ok && place.Device != s.Device {
			return fmt.Errorf("block %s was to run on device %d, the plan runs it on %d", m.Blocks[s.Block].Name, place.Device, s.Device)
		}
	}
	return nil
}

// activationsSatisfied looks at the buffers that hold them.
func (c Constraints) activationsSatisfied(p *plan.Plan) error {
	if c.Activations == "" {
		return nil
	}
	for id, b := range p.Buffers {
		if b.Class == plan.Activation && p.TierOf(id) != plan.OnDevice {
			return fmt.Errorf("activations were to be %s, the plan sends %s to the %s", c.Activations, b.Name, p.TierOf(id))
		}
	}
	for i := range p.Instructions {
		if bind, ok := p.Instructions[i].Bound(plan.InSaved, 0); ok && c.Activations == Recomputed && p.Buffers[bind.Buffer].Bytes > 0 {
			return fmt.Errorf("activations were to be recomputed, the plan saves %s", p.Buffers[bind.Buffer].Name)
		}
	}
	return nil
}

// updatesSatisfied looks at the devices that run them.
func (c Constraints) updatesSatisfied(p *plan.Plan) error {
	cpu, device := 0, 0
	for i := range p.Instructions {
		switch s := &p.Instructions[i]; {
		case s.Verb != plan.Update:
		case p.Devices[s.Device].Name == plan.HostName:
			cpu++
		default:
			device++
		}
	}
	if c.Updates == ByDevice && cpu > 0 || c.Updates == ByCPU && device > 0 || c.Updates == ByBoth && (cpu == 0 || device == 0) {
		return fmt.Errorf("updates were to run on %s, the plan has %d on the CPU and %d on devices", c.Updates, cpu, device)
	}
	return nil
}

// homesSatisfied looks at the homes of a slab.
func (c Constraints) homesSatisfied(p *plan.Plan, s plan.Slab) error {
	arena := p.Arenas[p.Buffers[s.Weight].Arena]
	if place, ok := c.Places[s.Name]; ok && (!isStored(p, s.Weight, place.Tier) || place.Tier == plan.OnDevice && arena.Device != place.Device) {
		return fmt.Errorf("the weights of %s were to be stored on %s, the plan has them on %s, %s", s.Name, place, arena.Tier, arena.Name)
	}
	if c.Weights != "" && !isStored(p, s.Weight, c.Weights) {
		return fmt.Errorf("the weights of %s were to be stored on %s, the plan has them on %s", s.Name, c.Weights, arena.Tier)
	}
	for _, piece := range s.Pieces {
		if c.State != "" && piece.State >= 0 && !isStored(p, piece.State, c.State) {
			return fmt.Errorf("the optimizer state of %s was to be stored on %s, the plan has it on %s", s.Name, c.State, p.TierOf(piece.State))
		}
	}
	return nil
}

// isStored says whether a buffer is in a tier; pinned memory is the host's.
func isStored(p *plan.Plan, buffer int, t plan.Tier) bool {
	at := p.TierOf(buffer)
	return at == t || at == plan.Pinned && t == plan.OnHost
}

// Bounds narrow the search without demanding a strategy. The zero value bounds nothing.
type Bounds struct {
	// SaveBelow is the share of a device that may be filled before values that the backward
	// reads are recomputed: plans that fill more recompute all of them. StayBelow is the
	// share that may be filled before weights and optimizer state leave the device: plans
	// that fill more keep none of them there. 0 is all of it. With either set, nothing
	// leaves the device as long as recomputing suffices.
	SaveBelow, StayBelow float64
	// Prefetch is the prefetch depth, see Choice; 0 leaves it open.
	Prefetch int
	// SingleBatch: the batch of the next iteration does not come to the device while one runs, which takes memory
	// there for a second one.
	SingleBatch bool
	// Rounds is in how many rounds micro-batches pass the blocks, see Choice; 0 is one.
	Rounds int
	// Without are parallelisms that are not taken.
	Without []Parallelism
	// Below is how many seconds an iteration must take less than: others are no use, and are not looked into. 0 is any.
	Below float64
}

// Check refuses bounds that cannot be.
func (b Bounds) Check(c Constraints) error {
	for _, share := range []float64{b.SaveBelow, b.StayBelow} {
		if !(share >= 0 && share <= 1) {
			return fmt.Errorf("%v is no share of a device; give a number above 0 and up to 1, or 0 for no bound", share)
		}
	}
	if b.Prefetch < 0 {
		return fmt.Errorf("a prefetch depth of %d; at least 1 parameter buffer must be on the device, and 0 leaves the number open", b.Prefetch)
	}
	if slices.Contains(b.Without, c.Parallelism) {
		return fmt.Errorf("%s is asked for and ruled out at once", c.Parallelism)
	}
	return nil
}
