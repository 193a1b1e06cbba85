package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// counterTime is the time by the hardware's counter, which no service adjusts.
func counterTime() (time.Duration, bool) {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &t) != nil {
		return 0, false
	}
	return time.Duration(t.Nano()), true
}
