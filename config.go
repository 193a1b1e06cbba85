package spillway

import (
	"fmt"
	"path/filepath"
	"reflect"

	"spillway/dtype"
	"spillway/lora"
	"spillway/optim"
	"spillway/rig"
	"spillway/run/batch"
)

// Config says how a wrapped model is run. The zero value runs it on what this computer
// has, as fast as the planner can.
type Config struct {
	// Options of the runs. With a task ("" counts as Train) and the size of the batches to
	// come (BatchSize, and Seq for models with positions), Wrap plans at once. Any other
	// task and size is planned for when its batch comes. With a rank, adapters are trained
	// next to frozen weights; the task is still Train.
	Options
	Schedule optim.Schedule // of the learning rate; the zero value is constant
	Seed     uint64         // of dropout, and of random initial weights where Wrap makes them
	// Devices to run on, by the names their drivers know: "cpu:threads=1", "cuda:0". None
	// takes all GPUs that drivers in the program find, else the CPU. Options.On are devices
	// that are open already and stay the caller's.
	Devices []string
	// Rig says how devices are opened and measured. The zero value is rig.UserOptions: what
	// Machine does not say is measured once, in some seconds, and rates and compiled kernels
	// are kept in the user's cache folder, so that forecasts are those of the command line.
	Rig rig.Options
	// ProfileInterval is after how many passes, of training or not, one is profiled: see
	// Profile. 0 profiles none.
	ProfileInterval int
	// Notice, if not nil, is given notices of what was done otherwise than asked or
	// planned. Explain lists the same.
	Notice func(string)
}

// rigOptions say how devices are opened and measured, for the machine that was described.
func (c *Config) rigOptions() rig.Options {
	o := c.Rig
	if reflect.ValueOf(o).IsZero() {
		o = rig.UserOptions()
	}
	o.Machine, o.System = c.Machine, c.System
	return o
}

// check refuses what cannot work, whatever the model.
func (c *Config) check() error {
	if c.Precision == dtype.Invalid {
		c.Precision = dtype.F32
	}
	if c.Task == "" {
		c.Task = Train
	}
	switch {
	case c.Task == LoRA || c.Task == QLoRA:
		return fmt.Errorf("task %s: give Config.Adapters a rank and train; other params are then frozen", c.Task)
	case c.Adapters.Rank == 0 && c.Adapters.Base != dtype.Invalid && c.Task != Infer:
		return fmt.Errorf("weights held as %v are for a model that is only run: set Task to Infer, or give Adapters a rank", c.Adapters.Base)
	case c.ProfileInterval < 0:
		return fmt.Errorf("a profile interval of %d passes; it cannot be negative", c.ProfileInterval)
	case len(c.Devices) > 0 && len(c.On) > 0:
		return fmt.Errorf("devices are given by name and open already; keep one")
	}
	return c.Options.Check()
}

// sameRun refuses settings that would change what a training run computes, or where.
func (c Config) sameRun(d Config) error {
	for _, f := range []struct {
		name string
		a, b any
	}{
		{"Precision", c.Precision, d.Precision}, {"Pure", c.Pure, d.Pure}, {"Exceptions", c.Exceptions, d.Exceptions},
		{"Optimizer", c.Optimizer, d.Optimizer}, {"StatePolicy", c.StatePolicy, d.StatePolicy}, {"Schedule", c.Schedule, d.Schedule}, {"NoDecay", c.NoDecay, d.NoDecay}, {"Groups", c.Groups, d.Groups}, {"Held", c.Held, d.Held}, {"Average", c.Average, d.Average}, {"Centralize", c.Centralize, d.Centralize}, {"Freeze", c.Freeze, d.Freeze},
		{"Adapters", c.Adapters, d.Adapters}, {"Clip", c.Clip, d.Clip}, {"CanonicalSums", c.CanonicalSums, d.CanonicalSums}, {"Seed", c.Seed, d.Seed}, {"Packed", c.Packed, d.Packed},
		{"Devices", c.Devices, d.Devices}, {"On", c.On, d.On}, {"Machine", c.Machine, d.Machine}, {"Disk", c.Disk, d.Disk},
	} {
		if !reflect.DeepEqual(f.a, f.b) {
			return fmt.Errorf("%s was %v and would be %v; start from what Config gives, or wrap the model anew", f.name, f.a, f.b)
		}
	}
	return nil
}

// options are those of a run for a task and batches of a size. Adapters are part of the
// wrapped network. Each task has a folder of its own, since one run at a time uses one.
func (w *Wrapped) options(task Task, s batch.Size) Options {
	o := w.c.Options
	o.Task, o.BatchSize, o.MicroBatchSize, o.Seq = task, s.Sequences, 0, s.Positions
	o.Adapters, o.CanonicalSums = lora.Options{Base: o.Adapters.Base}, o.CanonicalSums && task.Trains()
	if task != Infer || w.c.Adapters.Rank > 0 {
		o.Adapters.Base = dtype.Invalid
	}
	o.AllLogits = task == Infer
	o.Bounds.SingleBatch = o.Bounds.SingleBatch || !w.sequenced
	if !task.Trains() {
		o.Held, o.Outputs, o.Centralize, o.Average, o.Freeze, o.Groups = false, false, false, 0, nil, nil
	}
	if w.rig != nil {
		o.Machine, o.On = w.rig.Machine, w.rig.Devices
	}
	if o.Disk != "" {
		o.Disk = filepath.Join(o.Disk, string(task))
	}
	if w.layouts[task].WholeBatch && o.MicroBatches == 0 {
		o.MicroBatches = 1
	}
	if w.training != nil {
		o = w.training.Continued(o)
	}
	return o
}
