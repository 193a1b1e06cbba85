package generate_test

import (
	"errors"
	"strings"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/dtype"
	"spillway/generate"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner"
	"spillway/run"
)

// Keys and values that do not fit on the device are in host memory: within less memory than they take, texts that
// join, fork, are truncated and leave have the bits that they have alone, in exactly the memory that was planned.
func TestCachesInHostMemory(t *testing.T) {
	const context, length, texts = 32, 30, 6
	in := func(o *spillway.Options) { o.Precision = dtype.BF16 }
	want := oneByOne(t, session(t, "llama", run.Generation{Context: context, Streams: 1, Chunk: 1}, in), texts, length)
	m, err := spillway.Open("../testdata/reference/llama")
	must(t, err)
	defer m.Close()
	g := run.Generation{Context: context, Streams: 24, Chunk: 24, Page: 4}
	on, err := machine.Parse("cpu:1GiB,host:4GiB")
	must(t, err)
	dev := cpu.Open(cpu.Options{})
	defer dev.Close()
	o := spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, Generation: g, Machine: on, On: []device.Device{dev}}
	job, err := m.Plan(o)
	must(t, err)
	whole := job.Plan.Peak()[plan.OnDevice]
	var caches int64
	for _, b := range job.Plan.Buffers {
		if b.Class == plan.Cache {
			caches += b.Bytes
		}
	}
	for limit := whole; ; limit -= whole / 50 {
		o.Budget = limit
		job, err := m.TryPlan(o)
		var fit *planner.FitError
		if errors.As(err, &fit) {
			t.Fatalf("nothing fits in %d bytes, and never were caches of %d in host memory", limit, caches)
		}
		must(t, err)
		var host int64
		for id, b := range job.Plan.Buffers {
			if b.Class == plan.Cache && b.Home && job.Plan.TierOf(id) != plan.OnDevice {
				host += b.Bytes
			}
		}
		if host == 0 {
			continue
		}
		if host != caches || job.Plan.Peak()[plan.OnDevice] > limit || !strings.Contains(strings.Join(job.Notices, " "), "keys and values are in host memory") {
			t.Fatalf("%d of %d bytes in host memory, %v within %d; %v", host, caches, job.Plan.Peak(), limit, job.Notices)
		}
		must(t, job.Start())
		defer job.Close()
		s, err := generate.NewSession(job)
		must(t, err)
		mingle(t, s, want, length, 5)
		return
	}
}
