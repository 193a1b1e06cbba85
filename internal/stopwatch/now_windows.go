package stopwatch

import (
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

var (
	kernel32      = windows.NewLazySystemDLL("kernel32.dll")
	readCounter   = kernel32.NewProc("QueryPerformanceCounter")
	readFrequency = kernel32.NewProc("QueryPerformanceFrequency")

	// ticksPerSecond of the performance counter, which does not change while the system runs:
	// 10 million nearly everywhere.
	ticksPerSecond = read(readFrequency)
	firstTick      = read(readCounter)
	began          = time.Now()
)

// Now is the time by the clock that durations are measured with: when the program began, and what
// the performance counter has counted since.
func Now() time.Time {
	ticks := read(readCounter) - firstTick
	// Whole seconds apart: ticks × 10⁹ would overflow after a quarter of an hour.
	seconds, rest := ticks/ticksPerSecond, ticks%ticksPerSecond
	return began.Add(time.Duration(seconds)*time.Second + time.Duration(rest)*time.Second/time.Duration(ticksPerSecond))
}

// read calls a function that writes one number and, since Windows XP, never fails.
func read(f *windows.LazyProc) (n int64) {
	f.Call(uintptr(unsafe.Pointer(&n)))
	return n
}
