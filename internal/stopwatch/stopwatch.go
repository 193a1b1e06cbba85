// Package stopwatch says how long something took, to the microsecond on every system.
//
// It is time.Now and time.Since but for Windows, where those count in ticks of half a millisecond
// and more: a kernel of 20 µs would take no time at all, and every forecast made of such
// measurements would be wrong.
package stopwatch

import "time"

// Since is the time that has passed since start, which Now gave.
func Since(start time.Time) time.Duration { return Now().Sub(start) }
