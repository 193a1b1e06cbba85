package run_test

import (
	"strings"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner/strategy"
)

// Muon is planned for CPUs and GPUs, also where states stream, and never updated by the CPU next to a GPU, which would
// give other bits; asking for that is refused, and so is a policy that would compress nothing.
func TestMuonIsPlanned(t *testing.T) {
	m := open(t, configFile(t, tinyLlama(false, 0)))
	byCPU := func(o *spillway.Options) { o.Constraints.Updates = strategy.ByCPU }
	onHost := func(o *spillway.Options) { o.Constraints.State = plan.OnHost }
	shared := func(o *spillway.Options) { o.Constraints.Parallelism, o.MicroBatches = strategy.ZeRO2, 2 }
	policy := func(o *spillway.Options) { o.StatePolicy.Codecs = "exp_avg:8bit" }
	for _, c := range []struct {
		machine, want string
		change        func(*spillway.Options)
	}{
		{"cpu:1GiB,host:4GiB", "", nil},
		{"gpu:24GiB,host:64GiB", "", nil},
		{"gpu:24GiB,host:64GiB", "", onHost},
		{"2xgpu:24GiB,host:64GiB", "", shared},
		{"gpu:24GiB,host:64GiB", "whole params, which the CPU cannot", byCPU},
		{"cpu:1GiB,host:4GiB", "none that can be compressed", policy},
	} {
		o := spillway.Options{Task: spillway.Train, MicroBatchSize: 1, Seq: 16, Machine: parse(t, c.machine)}
		if strings.HasPrefix(c.machine, "cpu") {
			o.On = []device.Device{openDevice(t)}
		}
		var err error
		if o.Optimizer, err = optim.Parse("muon"); err != nil {
			t.Fatal(err)
		}
		if c.change != nil {
			c.change(&o)
		}
		r, err := m.Plan(o)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.machine, err, c.want)
		}
		if err != nil {
			continue
		}
		for _, step := range r.Plan.Instructions {
			if step.Verb == plan.Update && strings.HasPrefix(c.machine, "cpu") != strings.HasPrefix(r.Plan.Devices[step.Device].Name, "cpu") {
				t.Errorf("%s: %s is updated by %s", c.machine, r.Plan.Slabs[step.Slab].Name, r.Plan.Devices[step.Device].Name)
			}
		}
	}
}
