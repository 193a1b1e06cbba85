package executor_test

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/device/devicetest"
	"spillway/device/sim"
	"spillway/executor"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/trace"
	"spillway/weights"
)

// streamed is a plan in which everything moves.
func streamed(t testing.TB) *plan.Plan {
	t.Helper()
	kernels := cpu.Open(cpu.Options{Threads: 1})
	defer kernels.Close()
	return streamedOn(t, kernels)
}

// streamedOn is the plan for a device's own kernels.
func streamedOn(t testing.TB, kernels device.Device) *plan.Plan {
	t.Helper()
	return built(t, kernels, tiny.AdamW(2, true), strategy.Uniform(true, true, strategy.SaveNone, 2))
}

// builtOnCPU is the plan of a choice for training a tiny Llama with the CPU's kernels.
func builtOnCPU(t testing.TB, g planner.Goal, choose func(slabs, blocks int) strategy.Choice) *plan.Plan {
	t.Helper()
	kernels := cpu.Open(cpu.Options{Threads: 1})
	defer kernels.Close()
	return built(t, kernels, g, choose)
}

func built(t testing.TB, kernels device.Device, g planner.Goal, choose func(slabs, blocks int) strategy.Choice) *plan.Plan {
	t.Helper()
	site := tiny.Site(1 << 20)
	site.Kernels, site.Alignment = kernels, max(site.Alignment, kernels.Info().Alignment)
	m := tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train})
	p, err := planner.Build(m, g, site, choose)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// prepared starts a plan on a device with random initial weights.
func prepared(t testing.TB, p *plan.Plan, dev device.Device) *executor.Executor {
	t.Helper()
	e, err := executor.New(p, []device.Device{dev})
	if err != nil {
		t.Fatal(err)
	}
	return filled(t, e)
}

// filled is an executor with random initial weights, closed when the test ends.
func filled(t testing.TB, e *executor.Executor) *executor.Executor {
	t.Helper()
	t.Cleanup(func() { e.Close() })
	m := tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train})
	source, err := weights.Random(m.Params, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.WriteConstants(), weights.Load(e, source)); err != nil {
		t.Fatal(err)
	}
	return e
}

// Steady state takes nothing from the Go heap and nothing from the device.
func TestIterationsAllocateNothing(t *testing.T) {
	p := streamed(t)
	dev := sim.NewCapped(cpu.Open(cpu.Options{Threads: 1}), p.Devices[0].Budget, sim.Faults{})
	e := prepared(t, p, dev)
	iterate := func() {
		if err := e.Iterate(context.Background(), executor.IterationArgs{}); err != nil {
			t.Fatal(err)
		}
	}
	iterate()
	before := dev.Counts()
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	const n = 20
	for range n {
		iterate()
	}
	runtime.ReadMemStats(&m1)
	if after := dev.Counts(); after.Allocs != before.Allocs {
		t.Errorf("%d allocations on the device while iterating", after.Allocs-before.Allocs)
	}
	if per := (m1.Mallocs - m0.Mallocs) / n; per > 8 {
		t.Errorf("%d allocations on the Go heap per iteration", per)
	}
}

// What moved is what the plan says, and the most in use is within the arena.
func TestCountersFollowThePlan(t *testing.T) {
	p := streamed(t)
	e := prepared(t, p, cpu.Open(cpu.Options{Threads: 1}))
	if err := e.Iterate(context.Background(), executor.IterationArgs{}); err != nil {
		t.Fatal(err)
	}
	var in, out int64
	for _, s := range p.Instructions {
		switch {
		case s.Verb != plan.Move:
		case s.Lane == plan.In:
			in += p.Buffers[s.Src].Bytes
		default:
			out += p.Buffers[s.Src].Bytes
		}
	}
	c := e.Counters()
	if c.BytesIn != in || c.BytesOut != out || in == 0 || out == 0 {
		t.Errorf("counted %d in and %d out, the plan says %d and %d", c.BytesIn, c.BytesOut, in, out)
	}
	checkTransfers(t, e, in+out)
	if arena := p.Arenas[0].Bytes; c.PeakLive > arena || c.PeakLive < arena*9/10 {
		t.Errorf("at most %d bytes in use of an arena of %d", c.PeakLive, arena)
	}
}

// checkTransfers compares what was counted by route with the moves of one iteration, in
// which no weight goes back to the host but updated ones.
func checkTransfers(t *testing.T, e *executor.Executor, bytes int64) {
	t.Helper()
	want := map[executor.Route]executor.Transfers{}
	p := e.Plan()
	for _, s := range p.Instructions {
		if s.Verb != plan.Move {
			continue
		}
		r := executor.Route{From: plan.OnHost, To: plan.OnDevice, Class: p.Buffers[s.Src].Class}
		if s.Lane == plan.Out {
			r.From, r.To = r.To, r.From
		}
		want[r] = executor.Transfers{Moves: want[r].Moves + 1, Bytes: want[r].Bytes + p.Buffers[s.Src].Bytes}
	}
	got := e.Transfers()
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, the plan says %v", got, want)
	}
	for _, n := range got {
		bytes -= n.Bytes
	}
	if bytes != 0 {
		t.Errorf("routes lack %d bytes", bytes)
	}
	for i, a := range p.Arenas {
		if e.ArenaBytes(i) != a.Bytes {
			t.Errorf("arena %s has %d bytes, the plan says %d", a.Name, e.ArenaBytes(i), a.Bytes)
		}
	}
}

// A fault at any place is reported once, with the instruction, and nothing is leaked.
func TestFaultsAreReportedAndLeakNothing(t *testing.T) {
	p := streamed(t)
	fault := errors.New("injected")
	for name, f := range map[string]sim.Faults{
		"first copy":   {Copy: 30, Err: fault},
		"later copy":   {Copy: 45, Err: fault},
		"first launch": {Launch: 1, Err: fault},
		"later launch": {Launch: 77, Err: fault},
	} {
		dev := sim.NewCapped(cpu.Open(cpu.Options{Threads: 1}), p.Devices[0].Budget, f)
		e, err := executor.New(p, []device.Device{dev})
		if err != nil {
			t.Fatal(err)
		}
		var met error
		for range 3 {
			if err := e.Iterate(context.Background(), executor.IterationArgs{}); err != nil {
				if met != nil {
					t.Errorf("%s: reported twice: %v, then %v", name, met, err)
				}
				met = err
			}
		}
		if !errors.Is(met, fault) || !strings.Contains(met.Error(), "instruction") {
			t.Errorf("%s: got %v, want the injected fault with its instruction", name, met)
		}
		if err := errors.Join(e.Close(), dev.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Memory that cannot be had is an error before anything runs, and leaves nothing.
func TestNoMemoryIsAnErrorAtTheStart(t *testing.T) {
	p := streamed(t)
	dev := sim.NewCapped(cpu.Open(cpu.Options{Threads: 1}), p.Arenas[0].Bytes-1, sim.Faults{})
	_, err := executor.New(p, []device.Device{dev})
	var oom *device.OutOfMemoryError
	if !errors.As(err, &oom) || oom.Asked != p.Arenas[0].Bytes {
		t.Errorf("got %v, want an OutOfMemoryError for %d bytes", err, p.Arenas[0].Bytes)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}

// Every instruction is traced, in its lane and its time: lanes in order, waits respected, also
// between devices whose clocks began at other times.
func TestTraceHasEveryInstruction(t *testing.T) {
	goal := tiny.AdamW(2, false)
	for name, updates := range map[string]strategy.Updater{"one device": strategy.ByDevice, "with the host": strategy.ByCPU} {
		t.Run(name, func(t *testing.T) {
			goal.Constraints.Updates = updates
			site := tiny.Site(1 << 20)
			site.Kernels = devicetest.NewPlain(0)
			p, err := planner.Make(tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train}), goal, site)
			if err != nil {
				t.Fatal(err)
			}
			tracesEveryInstruction(t, p)
		})
	}
}

func tracesEveryInstruction(t *testing.T, p *plan.Plan) {
	var devices []device.Device
	for range p.Devices {
		devices = append(devices, devicetest.NewPlain(0))
		time.Sleep(20 * time.Millisecond) // their clocks count from when they were made
	}
	e, err := executor.New(p, devices)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ring := trace.NewRing(len(p.Instructions))
	if err := e.Trace(ring); err != nil {
		t.Fatal(err)
	}
	// Clocks of two devices are set one after the other. Where another program takes the core in between
	// they are off by as much, so several iterations are tried.
	const exact, tries = int64(5 * time.Millisecond), 200
	for n := 1; ; n++ {
		ring.Reset()
		if err := e.Iterate(context.Background(), executor.IterationArgs{}); err != nil {
			t.Fatal(err)
		}
		early := tracedInOrder(t, p, ring.Events())
		if early <= exact {
			break
		}
		if n == tries {
			t.Fatalf("instructions start up to %v before those of other devices that they wait for have ended", time.Duration(early))
		}
	}
}

// tracedInOrder checks the events of an iteration, and gives by how much an instruction started at most before one of
// another device that it waits for had ended.
func tracedInOrder(t *testing.T, p *plan.Plan, events []trace.Event) (early int64) {
	t.Helper()
	if len(events) != len(p.Instructions) {
		t.Fatalf("%d events for %d instructions", len(events), len(p.Instructions))
	}
	for i, s := range p.Instructions {
		if events[i].End < events[i].Start {
			t.Errorf("instruction %d ends before it starts", i)
		}
		for _, a := range s.After {
			before := events[a].End - events[i].Start
			if p.Instructions[a].Device != s.Device {
				early = max(early, before)
			} else if before > 0 {
				t.Errorf("instruction %d of device %d started at %d, before instruction %d ended at %d", i, s.Device, events[i].Start, a, events[a].End)
			}
		}
	}
	return early
}
