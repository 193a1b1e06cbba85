//go:build unix

package bench

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"spillway/device/cpu"
	"spillway/dtype"
	"spillway/rig"
)

// BenchmarkIteration runs the training iteration of bench cpu by itself, to be profiled. CPU
// seconds are what other programs on the machine disturb least, above all with GOMAXPROCS=1.
func BenchmarkIteration(b *testing.B) {
	here, err := rig.Describe(nil, rig.Options{})
	if err != nil {
		b.Fatal(err)
	}
	dev := cpu.Open(cpu.Options{})
	defer dev.Close()
	step, end, err := stepRow(dev, here, dtype.F32)
	if err != nil {
		b.Fatal(err)
	}
	defer end()
	best, least := 0.0, time.Duration(1<<62)
	for b.Loop() {
		start := cpuTime(b)
		rate, err := step.measure()
		if err != nil {
			b.Fatal(err)
		}
		best = max(best, rate)
		least = min(least, cpuTime(b)-start)
	}
	b.ReportMetric(best, "GFLOP/s-best")
	b.ReportMetric(least.Seconds()/stepTries, "cpu-s/iteration")
}

// cpuTime is what this process has used of all cores.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
