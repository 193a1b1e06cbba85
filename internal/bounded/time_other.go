//go:build !linux

package bounded

import "time"

var begin = time.Now()

// threadTime is the time on the wall: the time of one thread is not to be had.
func threadTime() time.Duration { return time.Since(begin) }
