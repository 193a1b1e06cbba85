//go:build !windows

package stopwatch

import "time"

// Now is the time by the clock that durations are measured with.
func Now() time.Time { return time.Now() }
