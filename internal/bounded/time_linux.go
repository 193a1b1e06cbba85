package bounded

import (
	"syscall"
	"time"
	"unsafe"
)

// threadClock is CLOCK_THREAD_CPUTIME_ID of the kernel.
const threadClock = 3

// threadTime is the time that this thread has computed so far.
func threadTime() time.Duration {
	var t syscall.Timespec
	if _, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&t)), 0); failed != 0 {
		panic(failed)
	}
	return time.Duration(t.Nano())
}
