package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

// How the peak of the registers is measured: the best of so many tries of so many rounds.
const (
	peakTries  = 40
	peakRounds = 20_000
)

// registerPeak is the rate of multiply-adds that all cores reach in registers, in units
// of 1e9: the best of some short runs.
func registerPeak() (rate float64) {
	pool := kernel.NewPool(runtime.GOMAXPROCS(0))
	defer pool.Close()
	for range peakTries {
		start := time.Now()
		operations := kernel.Saturate(pool, peakRounds)
		rate = max(rate, operations/time.Since(start).Seconds()/giga)
	}
	return rate
}

// benchCall is one call on a device, ready to be timed.
type benchCall struct {
	queue  device.Queue
	memory device.Memory
	kernel device.Kernel
	launch *device.Launch
}

// newBenchCall allocates the operands of a call; they are zeros until fill.
func newBenchCall(dev device.Device, call op.Call) (*benchCall, error) {
	kernel, err := dev.Kernel(call)
	if err != nil {
		return nil, err
	}
	launch, bytes := device.Arrange(call, kernel.Workspace(), dev.Info().Alignment)
	b := &benchCall{kernel: kernel, launch: launch}
	if b.memory, err = dev.Alloc(bytes); err != nil {
		return nil, fmt.Errorf("%d bytes to measure %v with: %w", bytes, call.Kind, err)
	}
	launch.Place(b.memory)
	if b.queue, err = dev.Queue("compute"); err != nil {
		return nil, errors.Join(err, b.memory.Free())
	}
	return b, nil
}

// fill gives the operands random numbers from 0 to 1.
func (b *benchCall) fill() {
	memory := b.memory.Host()
	for i := range len(memory) / 4 {
		binary.LittleEndian.PutUint32(memory[4*i:], math.Float32bits(op.Uniform(1, 0, uint64(i))))
	}
}

// run launches once and waits.
func (b *benchCall) run() (time.Duration, error) {
	start := time.Now()
	if err := b.queue.Launch(b.kernel, b.launch); err != nil {
		return 0, err
	}
	err := b.queue.Sync()
	return time.Since(start), err
}

// best is the shortest of the runs that begin within the given time. The first run does not
// count, and at least one does.
func (b *benchCall) best(patience time.Duration) (time.Duration, error) {
	if _, err := b.run(); err != nil {
		return 0, err
	}
	best := time.Duration(0)
	for start := time.Now(); best == 0 || time.Since(start) < patience; {
		took, err := b.run()
		if err != nil {
			return 0, err
		}
		if best == 0 || took < best {
			best = took
		}
	}
	return best, nil
}

func (b *benchCall) close() error { return errors.Join(b.queue.Close(), b.memory.Free()) }
