// Package cores says how many threads compute, and lets others wait next to them.
//
// Go runs as many goroutines at once as there are cores. Kernels take all of them for milliseconds, and a goroutine that
// waits for a disk cannot go on in the meantime, so that the disk has nothing to do. With some more places for
// goroutines the system's scheduler runs such a one at once: it needs little.
package cores

import (
	"runtime"
	"sync"
)

// spare is how many goroutines may run next to those that compute.
const spare = 2

var (
	mu      sync.Mutex
	holders int
	usual   int // runtime.GOMAXPROCS before the first holder
)

// Count is how many threads should compute: the cores, or what a quota leaves of them.
func Count() int {
	mu.Lock()
	defer mu.Unlock()
	if holders > 0 {
		return usual
	}
	return runtime.GOMAXPROCS(0)
}

// Spare lets goroutines that mostly wait run next to those that compute, until release is called, once.
func Spare() (release func()) {
	mu.Lock()
	defer mu.Unlock()
	if holders++; holders == 1 {
		usual = runtime.GOMAXPROCS(0)
		runtime.GOMAXPROCS(usual + spare)
	}
	return func() {
		mu.Lock()
		defer mu.Unlock()
		if holders--; holders == 0 && runtime.GOMAXPROCS(0) == usual+spare { // else somebody else has decided
			runtime.GOMAXPROCS(usual)
		}
	}
}
