//go:build unix

package bench

import "golang.org/x/sys/unix"

// processSeconds is how many seconds of all cores the process has taken so far.
func processSeconds() float64 {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / giga
}
