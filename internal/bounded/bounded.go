// Package bounded holds what reads files from anywhere to bounds of time and memory, in
// tests and fuzz targets.
package bounded

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// baseBytes and bytesPerByte bound the memory that an input of n bytes may take:
	// baseBytes + n × bytesPerByte.
	baseBytes    = 64 << 20
	bytesPerByte = 16
	// maxTime is the time that the thread which reads an input may compute. Other
	// programs do not count, however busy the machine is.
	maxTime = slow * time.Second
	// maxWait is the time on the wall after which an input hangs, and the process ends
	// with the stacks of all goroutines.
	maxWait = 2 * time.Minute
)

// Check calls do, which reads an input of size bytes, and reports an error if it takes more
// than a second of CPU time or more than 64 MiB + 16 × size of memory. What is
// allocated in all is at least what is alive at any moment; only if that is too much is do
// called again, with its memory in use watched.
func Check(t testing.TB, size int, do func()) {
	t.Helper()
	used := Measure(do)
	if used.Time > maxTime {
		t.Errorf("an input of %d bytes takes %v; at most %v are allowed", size, used.Time, maxTime)
	}
	most := int64(baseBytes + bytesPerByte*size)
	if used.Allocated <= most {
		return
	}
	live := Live(do)
	if live > most {
		// On a busy machine the collector falls behind. On one thread it cannot, since it takes
		// turns with what it collects for.
		threads := runtime.GOMAXPROCS(1)
		live = min(Live(do), Live(do))
		runtime.GOMAXPROCS(threads)
	}
	if live > most {
		t.Errorf("an input of %d bytes takes %d bytes of memory; at most %d are allowed", size, live, most)
	}
}

// Usage is what a call takes.
type Usage struct {
	Time      time.Duration // of the CPU, for the calling thread
	Allocated int64         // bytes of the heap allocated in all, and growth of the stack
}

// Measure calls do and returns what it takes.
func Measure(do func()) Usage {
	defer watch()()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	allocated, stack, start := read(allAllocated), read(stacks), threadTime()
	do()
	took := threadTime() - start
	return Usage{took, read(allAllocated) - allocated + max(read(stacks)-stack, 0)}
}

// Live calls do and returns by how many bytes the memory in use grows, at most: the objects
// of the heap, of which at most a tenth is garbage, with the stacks.
func Live(do func()) (peak int64) {
	defer watch()()
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	now := func() int64 { return read(objects) + read(stacks) }
	runtime.GC()
	before := now()
	stop, done := make(chan struct{}), make(chan int64)
	looks.Store(0)
	looking.Store(true)
	defer looking.Store(false)
	go func() {
		most := int64(0)
		for {
			most = max(most, now()-before)
			looks.Add(1)
			select {
			case <-stop:
				done <- most
				return
			case <-time.After(100 * time.Microsecond):
			}
		}
	}()
	defer func() {
		close(stop)
		peak = <-done
	}()
	do()
	return 0
}

// looking says that the memory in use is watched, and looks how often it was looked at so far. Tests wait for that.
var (
	looking atomic.Bool
	looks   atomic.Int64
)

// The metrics that are read.
const (
	allAllocated = "/gc/heap/allocs:bytes"
	objects      = "/memory/classes/heap/objects:bytes"
	stacks       = "/memory/classes/heap/stacks:bytes"
)

func read(name string) int64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// watch ends the process if the function it returns is not called in time. Recursions end
// at the bound of memory, too, not at the runtime's gigabyte.
func watch() (stop func()) {
	stack := debug.SetMaxStack(baseBytes)
	timer := time.AfterFunc(maxWait, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("one input takes more than %v", maxWait))
	})
	return func() {
		timer.Stop()
		debug.SetMaxStack(stack)
	}
}
