//go:build unix

package rig

import "golang.org/x/sys/unix"

// preempted is how often the threads of this process have lost their core to others so far.
func preempted() int64 {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return int64(used.Nivcsw)
}
