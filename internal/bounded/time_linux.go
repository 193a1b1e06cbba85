package bounded

import (
	"syscall"
	"time"
)

// rusageThread asks for the usage of the calling thread.
const rusageThread = 1

// threadTime is the time that this thread has computed so far, for itself and in the
// kernel.
func threadTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(rusageThread, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
