package executor

import "spillway/op"

// IterationArgs are what differs from one iteration to the next besides the batch.
type IterationArgs struct {
	Seed      uint64
	Iteration uint64
	// FirstSequence is the global index of the iteration's first sequence.
	FirstSequence uint64
	// Optimizer holds the scalars of the optimizer's update for params that decay, NoDecay
	// those for params that weight decay leaves alone; optim.Config.Scalars makes both.
	Optimizer, NoDecay op.Scalars
	// Groups are the same for params with hyper-parameters of their own, by group less 1.
	Groups []GroupScalars
	// HeldPasses is of how many passes gradients are held: those of the next are added to them. Of none, they take
	// the place of what is there.
	HeldPasses int
	// AverageKeep is the share of the running average of weights that stays; 0 begins it anew.
	AverageKeep float32
	MaxNorm     float32 // of gradients; 0 for no clipping
	LossScale   float32 // what gradients were multiplied by; 0 counts as 1
	// Meanwhile is called when all instructions are with the queues, while the devices work on them: the host
	// can put the next batch in place and Upload it. nil is nothing.
	Meanwhile func()
}

// GroupScalars are the scalars of a group of params that decay, and of those that do not.
type GroupScalars struct{ Decay, NoDecay op.Scalars }

// args are the numbers that launches of a program read.
type args struct {
	runs    []runArgs
	updates []updateArgs
	clip    *op.Args // nil when no norm is computed
	apply   bool     // held gradients are applied, instead of added to
}

// runArgs are the numbers of one run.
type runArgs struct {
	args     *op.Args
	block    int
	sequence uint64 // of its micro-batch, the first one of the iteration
}

// updateArgs are the numbers of one update launch.
type updateArgs struct {
	args     *op.Args
	launches launchedFor
	decay    bool
	group    int
	momentum float64
	slab     int
	element  int64 // of the slab, the first one updated
	deferred bool  // with the numbers of the previous iteration
}

// set fills in the numbers of an iteration, and for deferred updates those of the one
// they complete.
func (a *args) set(now, pending IterationArgs) {
	for _, r := range a.runs {
		// Each block of each iteration has its random streams, in whatever order and on
		// whatever device it runs.
		r.args.Key = op.Key(now.Seed, now.Iteration, uint64(r.block))
		r.args.Row = now.FirstSequence + r.sequence
	}
	a.setUpdates(false, now)
	a.setUpdates(true, pending)
	if a.clip != nil {
		a.clip.Scalars = op.ClipScalars(now.MaxNorm, now.LossScale)
	}
}

// setUpdates fills in the numbers of the updates that are deferred, or of the others.
func (a *args) setUpdates(deferred bool, n IterationArgs) {
	for _, u := range a.updates {
		if u.deferred != deferred {
			continue
		}
		// Weights of a slab are rounded with a random stream of their own, no block's.
		u.args.Scalars, u.args.Key, u.args.Row = n.scalars(u), op.Key(n.Seed, n.Iteration, uint64(u.slab), 1), uint64(u.element)
	}
}

// launchedFor is what a launch of an update does.
type launchedFor int

const (
	toUpdate  launchedFor = iota // the rule
	toHold                       // a gradient is held
	toAverage                    // weights are averaged
)

// scalars of a launch.
func (n *IterationArgs) scalars(u updateArgs) op.Scalars {
	switch {
	case u.launches == toHold && u.momentum > 0: // a statistic moves towards the mean of those of all passes
		all := float32(n.HeldPasses + 1)
		return op.BlendScalars(float32(n.HeldPasses)/all, 1/all, true)
	case u.launches == toHold:
		return op.BlendScalars(float32(min(n.HeldPasses, 1)), 1, false)
	case u.launches == toUpdate && u.momentum > 0:
		return op.BlendScalars(1, -float32(u.momentum), true)
	case u.launches == toAverage:
		return op.BlendScalars(n.AverageKeep, 1-n.AverageKeep, true)
	}
	of := GroupScalars{n.Optimizer, n.NoDecay}
	if u.group > 0 && u.group <= len(n.Groups) {
		of = n.Groups[u.group-1]
	}
	if u.decay {
		return of.Decay
	}
	return of.NoDecay
}
