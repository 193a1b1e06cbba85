package planner_test

import (
	"testing"

	"spillway/arch"
	"spillway/device/sim"
	"spillway/dtype"
	"spillway/graph"
	"spillway/machine"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/spec"
	"spillway/units"
)

// deep has many equal layers, so that what a pipeline cannot hide at its two ends
// counts for little.
const deepEnough = `{"model_type":"llama","vocab_size":1000,"hidden_size":1024,"num_hidden_layers":96,
"num_attention_heads":8,"num_key_value_heads":8,"intermediate_size":4096,"rms_norm_eps":1e-5,
"tie_word_embeddings":false,"max_position_embeddings":4096}`

// allStreamed streams everything, from the disk if asked, and has the host update if
// asked.
func allStreamed(disk, host bool) func(slabs, blocks int) strategy.Choice {
	return func(slabs, blocks int) strategy.Choice {
		c := strategy.Uniform(true, true, strategy.SaveNone, 3)(slabs, blocks)
		c.PrefetchStates, c.OnDisk = 2, make([]bool, slabs)
		for i := range c.OnDisk {
			c.OnDisk[i] = disk
			c.UpdatedByCPU = append(c.UpdatedByCPU, host)
		}
		return c
	}
}

// Whatever binds, the other work hides behind it: an iteration takes at most 3%
// longer than the busiest resource alone needs.
func TestTransfersHideBehindWhatBinds(t *testing.T) {
	m, info, err := arch.FromConfig([]byte(deepEnough))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, bound string
		seq         int64
		task        graph.Task
		rates       machine.Device
		disk        planner.Disk
		host        machine.Device
	}{
		{"compute", "compute", 4096, graph.Train, machine.Device{Compute: machine.Compute{BF16: 1e13}, Link: machine.Link{In: 50e9, Out: 50e9}}, planner.Disk{}, machine.Device{}},
		{"link while training", "link to device", 16, graph.Train, machine.Device{Compute: machine.Compute{BF16: 1e15}, Link: machine.Link{In: 5e9, Out: 5e9}}, planner.Disk{}, machine.Device{}},
		{"link while inferring", "link to device", 64, graph.Infer, machine.Device{Compute: machine.Compute{BF16: 1e15}, Link: machine.Link{In: 5e9, Out: 5e9}}, planner.Disk{}, machine.Device{}},
		{"optimizer", "compute", 16, graph.Train, machine.Device{Compute: machine.Compute{BF16: 1e15}, Bandwidth: 20e9, Link: machine.Link{In: 50e9, Out: 50e9}}, planner.Disk{}, machine.Device{}},
		{"disk while inferring", "disk read", 64, graph.Infer, machine.Device{Compute: machine.Compute{BF16: 1e15}, Link: machine.Link{In: 50e9, Out: 50e9}}, planner.Disk{Budget: 1 << 40, Read: 3e9, Write: 2e9}, machine.Device{}},
		{"disk while training", "disk read", 64, graph.Train, machine.Device{Compute: machine.Compute{BF16: 1e15}, Link: machine.Link{In: 50e9, Out: 50e9}}, planner.Disk{Budget: 1 << 40, Read: 2e9, Write: 3e9}, machine.Device{}},
		{"host while training", "CPU", 16, graph.Train, machine.Device{Compute: machine.Compute{BF16: 1e15}, Link: machine.Link{In: 50e9, Out: 50e9}}, planner.Disk{}, machine.Device{Bandwidth: 20e9}},
		{"link to a fast host", "link to device", 16, graph.Train, machine.Device{Compute: machine.Compute{BF16: 1e15}, Link: machine.Link{In: 5e9, Out: 5e9}}, planner.Disk{}, machine.Device{Bandwidth: 1e12}},
	} {
		model, err := spec.Trace("deep", info.Type, m, graph.Config{MicroBatchSize: 1, Seq: c.seq, DType: dtype.BF16, Task: c.task})
		if err != nil {
			t.Fatal(err)
		}
		site := planner.Site{Device: gpu0(c.rates), DType: dtype.BF16, Budget: 1 << 40, HostBudget: 1 << 40, Alignment: planner.Alignment, Kernels: sim.NewVirtual(gpu0(c.rates), dtype.BF16, 0, 256), Disk: c.disk, CPU: c.host}
		goal := planner.Goal{MicroBatches: 1}
		if c.task == graph.Train {
			goal = planner.Goal{MicroBatches: 1, Master: true, Optimizer: &planner.Optimizer{Rule: optim.Adam, States: planner.FullStates("exp_avg", "exp_avg_sq")}}
		}
		p, err := planner.Build(model, goal, site, allStreamed(c.disk.Budget > 0, c.host.Bandwidth > 0))
		if err != nil {
			t.Fatal(err)
		}
		if f := p.Forecast; f.Bound != c.bound || f.RooflineShare < 1/1.03 {
			t.Errorf("%s: bound by %s, which is busy %.1f%% of the time: %v", c.name, f.Bound, 100*f.RooflineShare, f.Busy)
		}
	}
}

// Where transfers take as long as matmuls, whatever waits is lost. A plan in which what
// leaves the device keeps its bytes a little loses next to nothing; one without room
// for that has runs wait for copies.
func TestNoRunWaitsForWhatLeaves(t *testing.T) {
	m, info, err := arch.FromConfig([]byte(deepEnough))
	if err != nil {
		t.Fatal(err)
	}
	model, err := spec.Trace("deep", info.Type, m, graph.Config{MicroBatchSize: 1, Seq: 1024, DType: dtype.F32, Task: graph.Train})
	if err != nil {
		t.Fatal(err)
	}
	goal := planner.Goal{MicroBatches: 1, Optimizer: &planner.Optimizer{Rule: optim.Adam, States: planner.FullStates("exp_avg", "exp_avg_sq")}}
	site := planner.Site{DType: dtype.BF16, Budget: 1 << 40, HostBudget: 1 << 40, Alignment: planner.Alignment, Kernels: sim.NewVirtual(gpu0(machine.Device{}), dtype.BF16, 0, 256)}
	forecast := func(r machine.Device, loose bool) *plan.Forecast {
		site.Device = gpu0(r)
		p, err := planner.Build(model, goal, site, func(slabs, blocks int) strategy.Choice {
			c := strategy.Uniform(true, true, strategy.SaveNone, 2)(slabs, blocks)
			c.DelayedReuse = loose
			return c
		})
		if err != nil {
			t.Fatal(err)
		}
		return p.Forecast
	}
	r := machine.Device{Compute: machine.Compute{BF16: 1e13}, Bandwidth: 1e12}
	alone := forecast(r, true)
	r.Link.In = units.Rate(float64(alone.BytesIn) / alone.StepSeconds)
	r.Link.Out = r.Link.In
	loose, tight := 1/forecast(r, true).RooflineShare, 1/forecast(r, false).RooflineShare
	if loose > 1.03 || tight < 1.1 {
		t.Errorf("%.3f of the time that transfers or matmuls alone take, without space %.3f", loose, tight)
	}
}

// With clipping no update can be made before the last gradient is there. Left to the next
// iteration they hide behind its forward, and an iteration takes at most 3% longer than
// what binds it; in a walk of their own after the backward they take time of their own,
// and weights cross the link once more.
func TestClippedUpdatesHideToo(t *testing.T) {
	m, info, err := arch.FromConfig([]byte(deepEnough))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, bound string
		seq         int64
		rates       machine.Device
		walk        float64 // what updates in a walk of their own take more, at least
	}{
		{"compute", "compute", 4096, machine.Device{Compute: machine.Compute{BF16: 1e13}, Link: machine.Link{In: 50e9, Out: 50e9}}, 1.05},
		{"link", "link to device", 16, machine.Device{Compute: machine.Compute{BF16: 1e15}, Link: machine.Link{In: 5e9, Out: 5e9}}, 1.15},
		{"optimizer", "compute", 16, machine.Device{Compute: machine.Compute{BF16: 1e15}, Bandwidth: 20e9, Link: machine.Link{In: 50e9, Out: 50e9}}, 1},
	} {
		model, err := spec.Trace("deep", info.Type, m, graph.Config{MicroBatchSize: 1, Seq: c.seq, DType: dtype.F32, Task: graph.Train})
		if err != nil {
			t.Fatal(err)
		}
		goal := planner.Goal{MicroBatches: 1, Optimizer: &planner.Optimizer{Rule: optim.Adam, States: planner.FullStates("exp_avg", "exp_avg_sq"), Clip: true}}
		site := planner.Site{Device: gpu0(c.rates), DType: dtype.BF16, Budget: 1 << 40, HostBudget: 1 << 40, Alignment: planner.Alignment, Kernels: sim.NewVirtual(gpu0(c.rates), dtype.BF16, 0, 256)}
		forecast := func(delayed bool) *plan.Forecast {
			p, err := planner.Build(model, goal, site, func(slabs, blocks int) strategy.Choice {
				c := strategy.Uniform(true, true, strategy.SaveNone, 2)(slabs, blocks)
				c.DelayedReuse, c.DelayedUpdates = true, delayed
				return c
			})
			if err != nil {
				t.Fatal(err)
			}
			return p.Forecast
		}
		late, walk := forecast(true), forecast(false)
		if late.Bound != c.bound || late.RooflineShare < 1/1.03 {
			t.Errorf("%s: bound by %s, which is busy %.1f%% of the time: %v", c.name, late.Bound, 100*late.RooflineShare, late.Busy)
		}
		if more := walk.StepSeconds / late.StepSeconds; more < c.walk {
			t.Errorf("%s: a walk of their own takes %.3f of the time, at least %.2f was expected", c.name, more, c.walk)
		}
	}
}

// gpu0 is a device of that name.
func gpu0(d machine.Device) machine.Device {
	d.Name = "gpu0"
	return d
}
