package metamorphic

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/rig"
	"spillway/spec"
	"spillway/units"
)

var runs = flag.Int("runs", 16, "how many runs have their memory measured")

// Memory of the process besides the arenas of a run: the executor's prepared launches and
// kernels, stacks of the threads, what the collector has not given back yet; with a disk
// also the buffers of its queues.
const (
	program = 10 << 20
	buffers = 24 << 20
)

func processBytes(p *plan.Plan) int64 {
	for _, d := range p.Devices {
		if d.Name == plan.DiskName {
			return program + buffers
		}
	}
	return program
}

// A run takes what its plan says: of every device to the byte, by the device's own count, and
// of the computer within 2% plus the program itself, by the system's count. Devices are
// capped at the prediction; with a byte less nothing starts. Nothing is allocated once it has
// started.
func TestPredictedMemoryIsMeasured(t *testing.T) {
	kernels := cpu.Open(cpu.Options{Threads: 1})
	defer kernels.Close()
	var worst, largest int64
	for n := range *runs {
		seed := *first + uint64(n)
		r := rand.New(rand.NewPCG(seed, 4))
		m, p, err := sample(t, r, kernels)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for d := range p.Devices {
			p.Devices[d].Budget = arena(p, d)
		}
		grown, planned := measure(t, m, p, seed)
		over := max(grown-planned, planned-grown)
		if over > planned/50+processBytes(p) {
			t.Errorf("run again with -seed %d -runs 1: %s: %v planned, the process grew by %v", seed, p.Strategy, units.Bytes(planned), units.Bytes(grown))
		}
		worst, largest = max(worst, over), max(largest, planned)
		p.Devices[0].Budget--
		if r, err := start(m, p, t.TempDir(), seed); err == nil {
			t.Errorf("seed %d: %s started with less memory than planned: %v", seed, p.Strategy, r.close())
		}
	}
	t.Logf("%d runs of up to %v; the process is off by at most %v", *runs, units.Bytes(largest), units.Bytes(worst))
}

// keepWaiting has many goroutines wait at once: the runtime makes an object for each that waits, keeps some hundreds of them, and
// gives them to goroutines that wait later. Which of its lists they are in follows from the cores on which goroutines happen to run.
func keepWaiting() {
	const goroutines = 1024
	begin, waiting, ended := make(chan struct{}), sync.WaitGroup{}, sync.WaitGroup{}
	for range goroutines {
		waiting.Add(1)
		ended.Go(func() {
			waiting.Done()
			<-begin
		})
	}
	waiting.Wait()
	time.Sleep(time.Millisecond)
	close(begin)
	ended.Wait()
}

// measure trains three iterations and gives the growth of the process and the bytes of the
// arenas in its memory.
func measure(t *testing.T, m *spec.Model, p *plan.Plan, seed uint64) (grown, planned int64) {
	t.Helper()
	debug.FreeOSMemory()
	before := resident(t)
	r, err := start(m, p, t.TempDir(), seed)
	if err != nil {
		t.Fatalf("seed %d: %s with exactly its memory: %v", seed, p.Strategy, err)
	}
	defer func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := r.iterate(0); err != nil {
		t.Fatal(err)
	}
	keepWaiting()
	held, objects := allocated(r.devices), mallocs()
	for i := range 2 {
		if err := r.iterate(i + 1); err != nil {
			t.Fatal(err)
		}
	}
	if now := allocated(r.devices); now != held {
		t.Errorf("seed %d: %s: devices held %v after the first iteration and %v later", seed, p.Strategy, held, now)
	}
	if now := mallocs(); now-objects > strayObjects {
		t.Errorf("seed %d: %s: two iterations made %d objects", seed, p.Strategy, now-objects)
	}
	for i, a := range p.Arenas {
		if got := r.e.ArenaBytes(i); got != a.Bytes {
			t.Errorf("seed %d: %s: arena %d has %d bytes, planned were %d", seed, p.Strategy, i, got, a.Bytes)
		}
		if a.Tier != plan.OnDisk {
			planned += a.Bytes
		}
	}
	return resident(t) - before, planned
}

// strayObjects is the number of heap objects that filling two batches, the test itself and
// the runtime may make.
const strayObjects = 200

func mallocs() int64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.Mallocs)
}

// allocated is the most every device has given so far, as text.
func allocated(devices []device.Device) string {
	var list []int64
	for _, d := range devices {
		if meter, ok := d.(device.Meter); ok {
			_, most := meter.Allocated()
			list = append(list, most)
		}
	}
	return fmt.Sprint(list)
}

func resident(t *testing.T) int64 {
	t.Helper()
	n, err := rig.Resident()
	if err != nil {
		t.Skip("the system does not say what the process takes: ", err)
	}
	return n
}

// sample is a random shape with a random batch, and a plan for it: one the planner
// finds for a device with part of the memory a standard plan takes, or any choice.
func sample(t *testing.T, r *rand.Rand, kernels planner.Kernels) (*spec.Model, *plan.Plan, error) {
	pick := func(list ...int) int { return list[r.IntN(len(list))] }
	width, blocks := pick(64, 128, 192, 256), pick(2, 3, 4, 6)
	config := fmt.Sprintf(`{"model_type":"llama","vocab_size":%d,"hidden_size":%d,"num_hidden_layers":%d,"num_attention_heads":4,
"num_key_value_heads":%d,"intermediate_size":%d,"rms_norm_eps":1e-5,"tie_word_embeddings":%t,"max_position_embeddings":512}`,
		pick(260, 1000, 4000), width, blocks, pick(1, 2, 4), pick(2, 3)*width, pick(0, 1) == 0)
	if r.IntN(3) == 0 {
		config = fmt.Sprintf(`{"model_type":"transformer_encoder","d_model":%d,"nhead":4,"num_layers":%d,"dim_feedforward":%d,"activation":"gelu","final_norm":true}`, width, blocks, 4*width)
	}
	m := tiny.Model(t, config, graph.Config{MicroBatchSize: int64(pick(1, 2, 3)), Seq: int64(pick(32, 65, 128, 200)), Task: graph.Train})
	goal := tiny.AdamW(pick(1, 2), r.IntN(2) == 0)
	site := tiny.Site(1 << 30)
	site.Kernels, site.Disk = kernels, planner.Disk{Budget: 1 << 30, Read: 1e9, Write: 1e9}
	if r.IntN(2) == 0 {
		choose, _ := RandomChoice(r, goal.MicroBatches)
		p, err := planner.Build(m, goal, site, func(slabs, blocks int) strategy.Choice {
			c := choose(slabs, blocks)
			c.PieceElements *= 64 // as large compared with these shapes as without it with the smallest
			return c
		})
		return m, p, err
	}
	standard, err := planner.Build(m, goal, site, strategy.Uniform(false, false, strategy.SaveAll, 0))
	if err != nil {
		return m, nil, err
	}
	site.Budget = standard.Peak()[plan.OnDevice] * int64(pick(50, 70, 90, 100)) / 100
	p, err := planner.Make(m, goal, site)
	if fit := new(planner.FitError); errors.As(err, &fit) { // then the smallest
		site.Budget = fit.Needed
		p, err = planner.Make(m, goal, site)
	}
	return m, p, err
}

// arena is what a plan takes of a device; the host's CPU has none of its own.
func arena(p *plan.Plan, d int) int64 {
	if p.Devices[d].Name == plan.HostName {
		return 0
	}
	for _, a := range p.Arenas {
		if (a.Tier == plan.OnDevice || a.Tier == plan.OnDisk) && a.Device == d {
			return a.Bytes
		}
	}
	panic(fmt.Sprint("no arena for device ", d))
}
