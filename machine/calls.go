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
