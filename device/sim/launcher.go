package sim

import "time"

// launcher is the thread that gives kernels, copies and events to the queues of all devices,
// one after the other. What it is given later begins later, so small kernels wait for it.
type launcher struct {
	now  time.Duration // when it is free again
	busy time.Duration // in all
}

// begin has the thread launch something that takes it some time, and says when it began.
// launches is false where nobody waits for launches: they are replayed from a captured graph,
// or no time of a kernel without its launch is known, so that kernels include it.
func (l *launcher) begin(v *Virtual, takes time.Duration) (begun time.Duration, launches bool) {
	if !v.OneByOne || v.timing.Kernel == 0 {
		return 0, false
	}
	begun = l.now
	l.now += takes
	l.busy += takes
	return begun, true
}

// Launching is how long the thread that launches was busy so far; 0 where launches take no
// time.
func (v *Virtual) Launching() time.Duration { return v.launcher.busy }
