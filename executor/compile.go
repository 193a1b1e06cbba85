package executor

import (
	"fmt"

	"spillway/device"
	"spillway/plan"
)

// program is a list of instructions ready to be issued: those of the plan, or of a phase.
type program struct {
	plan         *plan.Plan
	instructions []compiled
	ends         []laneEnd // by lane
	args         args
	norm         deviceBuffer // where the clip factor and the norm are made
	deferred     bool         // it leaves updates to the next iteration
	updates      *updateMoves // of a plan that holds gradients; else nil
	graph        capturedGraph
	copies       batchCopies
}

// compiled is an instruction ready to be issued.
type compiled struct {
	queue device.Queue // nil for a free, which has nothing to do
	issue func(device.Queue) error
	done  device.Event // nil when nobody waits for the instruction
	last  device.Event // done of the previous iteration; nil when nobody waits for that
	apart bool         // it takes a batch or brings the next one, see nextBatch
	// start and end are recorded around the instruction while tracing.
	start, end device.Event
	launches   []launch // of its kernels, one by one; nil where a device has joined them, and of moves
	// marks are recorded before the first launch and behind each, while ops are timed.
	marks []device.Event
}

// compiler prepares launches. Kernels that are the same call are prepared once.
type compiler struct {
	*memory
	tally   *tally
	out     *program                      // that is being compiled
	made    []launch                      // of the instruction that is being compiled
	kernels map[programOn][]device.Kernel // one per node
	updates map[string]device.Kernel      // by what updateKernel writes to key
	key     []byte
	// Kernels that a device has joined, by what they depend on.
	joined        map[programOn]func(device.Queue) error
	joinedUpdates map[updateOn]func(device.Queue) error
	known         *Joined
}

// compile prepares the launches and events of all instructions.
func (c *compiler) compile(p *plan.Plan) (*program, error) {
	c.out = &program{plan: p, instructions: make([]compiled, len(p.Instructions)), ends: laneEnds(p), graph: capturedGraph{wanted: p.Captured}, copies: findBatchCopies(p)}
	for i := range p.Instructions {
		s := &p.Instructions[i]
		if s.Verb == plan.Free {
			continue
		}
		c.made = nil
		issue, err := c.instruction(s)
		if err != nil {
			return nil, fmt.Errorf("instruction %d, %s: %w", i, s.Verb, err)
		}
		c.out.instructions[i] = compiled{queue: c.queue(s.Device, s.Lane), issue: issue, launches: c.made, apart: p.TakesBatch(s) || p.BringsNextBatch(s)}
		c.out.deferred = c.out.deferred || s.Deferred
	}
	if p.Optimizer != nil && p.Optimizer.Held {
		m := forUpdates(p)
		c.out.updates = &m
	}
	return c.out, c.events()
}

// unchanged says whether an instruction takes weights home that an iteration which only holds
// gradients has not changed: what it would copy need not be there.
func (p *program) unchanged(i int) bool { return p.updates != nil && p.updates.weights[i] }

// instruction prepares one launch. A reduce makes the clip factor from partial sums, or
// adds gradients.
func (c *compiler) instruction(s *plan.Instruction) (func(device.Queue) error, error) {
	_, sums := s.Bound(plan.OutPartial, 0)
	switch {
	case s.Verb == plan.Move:
		return c.move(s)
	case s.Verb == plan.Run:
		return c.run(s)
	case s.Verb == plan.Reduce && sums:
		return c.clip(s)
	case s.Verb == plan.Reduce:
		return c.sum(s)
	case s.Verb == plan.Update:
		return c.update(s)
	}
	return nil, fmt.Errorf("unknown verb")
}

// events gives events to the instructions that somebody waits for.
func (c *compiler) events() (err error) {
	list := c.out.plan.Instructions
	done, last := make([]bool, len(list)), make([]bool, len(list))
	for i := range list {
		for _, a := range list[i].After {
			done[a] = true
		}
		for _, a := range list[i].AfterPrevious {
			done[a], last[a] = true, true
		}
	}
	for _, end := range c.out.ends {
		if (end.carriesOver || end.brings) && end.until >= 0 {
			done[end.until] = true
		}
	}
	if of := &c.out.copies; len(of.brings) > 0 || of.prepares {
		for _, i := range of.reads {
			done[i] = true
		}
		for _, i := range of.brings {
			done[i], last[i] = true, true
		}
	}
	for i := range list {
		dev := c.devices[list[i].Device]
		if done[i] && err == nil {
			c.out.instructions[i].done, err = dev.Event()
		}
		if last[i] && err == nil {
			c.out.instructions[i].last, err = dev.Event()
		}
	}
	return err
}

// launch is a kernel with its operands.
type launch struct {
	kernel device.Kernel
	launch device.Launch
}

// launches issues kernels one after the other.
func (c *compiler) launches(list []launch) func(device.Queue) error {
	t := c.tally
	c.made = list
	return func(q device.Queue) error {
		for i := range list {
			if err := q.Launch(list[i].kernel, &list[i].launch); err != nil {
				return err
			}
		}
		t.Launches += int64(len(list))
		return nil
	}
}
