package machine

import (
	"time"

	"spillway/op"
)

// Calls tells how long single calls take on a device that is at hand, where they can be run.
// Forecasts prefer it to tables and rates, which interpolate.
type Calls interface {
	// Time of a call; false where it is not known, as of a call that memory is too small for.
	Time(c op.Call) (CallTime, bool)
	// Within is the same for whoever may take so many bytes of the device.
	Within(bytes int64) Calls
}

// Reader is implemented by Calls whose times depend on how much is read in turn: a cache may hold it.
type Reader interface {
	// Among is the times of calls in a run that reads so many bytes of weights again and again.
	Among(bytes int64) Calls
}

// Rehearser is implemented by Calls that can run what a program calls, one call after the other, as a run does. Kernels
// begin later after others than after themselves, and find in caches what the one before has left there: the sum of
// calls by themselves knows neither.
type Rehearser interface {
	// Rehearse is what the device takes for a pass; false where it is not known.
	Rehearse(p Pass) (time.Duration, bool)
	// Replay is what the host takes to launch a captured graph of so many kernels, of which some are given new numbers
	// before; the device waits meanwhile. False where it is not known.
	Replay(launches, renewed int) (time.Duration, bool)
}

// Pass is what a program of a plan calls, and where its operands lie.
type Pass struct {
	Calls    []PassCall
	Places   []PassPlace
	Scratch  int64 // bytes of the scratch memory of the pass
	Work     int64 // where in it kernels have theirs
	Captured bool  // replayed from a graph, else launched one by one
}

// PassCall is a call with the places of its operands and then of its outputs.
type PassCall struct {
	Call   op.Call
	Places []int
}

// PassPlace is where a value lies.
type PassPlace struct {
	Bytes   int64
	Scratch bool  // in the scratch memory of the pass, at Offset
	Offset  int64 `json:",omitempty"`
	// Shared is memory that every pass uses again; else each block has its own, as of weights and saved activations.
	Shared bool
	Data   []byte `json:",omitempty"` // of a constant
}

// Updater is implemented by Calls of a CPU that tell what updates of an optimizer take on it, with at most so many bytes of
// its memory to measure with.
type Updater interface {
	Updates(bytes int64) Calls
}

// Releaser is implemented by Calls that take memory while they measure: whoever needs it gives it back first.
type Releaser interface {
	Release() error
}

// CallTime is what a call takes of the device and of the host.
type CallTime struct {
	Device time.Duration `json:"device_ns"` // among others that keep the device busy
	Launch time.Duration `json:"launch_ns"` // of the thread that launches it
}
