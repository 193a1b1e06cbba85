// Package trace is the only way library code says what it does while it runs: it records an
// event per instruction of a plan, with its times, in a sink.
//
// Whoever runs a plan chooses the sink: Discard, a Ring that holds the latest events, or its
// own. WriteChrome writes events to a file that Perfetto and chrome://tracing show as a
// timeline.
package trace

import (
	"cmp"
	"slices"
	"sync"
)

// Verb is the kind of instruction.
type Verb uint8

// The verbs of a plan.
const (
	Move   Verb = iota // bytes between tiers or devices
	Run                // a block's program
	Reduce             // sums across micro-batches or devices
	Update             // the optimizer on a piece of a slab
	Free               // of a buffer
)

var verbs = [...]string{"move", "run", "reduce", "update", "free"}

// String is the verb's name, lower case.
func (v Verb) String() string {
	if int(v) >= len(verbs) {
		return "unknown"
	}
	return verbs[v]
}

// Lane is where an event took place: events on one lane follow one another.
type Lane struct {
	Device string // "gpu0", "host", "disk"
	Queue  string // "compute", "in", "out"
}

// None is the block or micro-batch of an event that belongs to none.
const None = -1

// Event is one finished instruction. Its strings are made once, with the plan, so that
// recording an event allocates nothing.
type Event struct {
	Verb       Verb
	Name       string // what was done, for people: "layer 7 forward"
	Lane       Lane
	Start      int64 // nanoseconds since the run began, real or virtual
	End        int64
	Bytes      int64 // moved, reduced, updated or freed
	Block      int   // index of the block, or None
	MicroBatch int   // index of the micro-batch, or None
}

// Sink takes events. Record may be called from several goroutines at once and
// must not block for long: the caller is the hot path.
type Sink interface {
	Record(Event)
}

// Discard is the sink that forgets everything.
var Discard Sink = discard{}

type discard struct{}

func (discard) Record(Event) {}

// Ring is a sink that holds the latest events in memory allocated once.
type Ring struct {
	mu     sync.Mutex
	events []Event
	total  int // ever recorded; total % len(events) is the next place
}

// NewRing makes a ring of n events, at least one.
func NewRing(n int) *Ring { return &Ring{events: make([]Event, max(n, 1))} }

// Record stores the event in place of the oldest one.
func (r *Ring) Record(e Event) {
	r.mu.Lock()
	r.events[r.total%len(r.events)] = e
	r.total++
	r.mu.Unlock()
}

// Events copies what the ring holds, in the order of recording.
func (r *Ring) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.events)
	if r.total <= n {
		return append([]Event(nil), r.events[:r.total]...)
	}
	at := r.total % n
	return append(append([]Event(nil), r.events[at:]...), r.events[:at]...)
}

// Dropped is how many events were recorded and then overwritten.
func (r *Ring) Dropped() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.total-len(r.events), 0)
}

// Reset forgets all events; the memory stays.
func (r *Ring) Reset() {
	r.mu.Lock()
	r.total = 0
	r.mu.Unlock()
}

// FromZero is the events with times counted from the earliest start among them.
func FromZero(events []Event) []Event {
	if len(events) == 0 {
		return events
	}
	first := slices.MinFunc(events, func(a, b Event) int { return cmp.Compare(a.Start, b.Start) }).Start
	moved := slices.Clone(events)
	for i := range moved {
		moved[i].Start -= first
		moved[i].End -= first
	}
	return moved
}
