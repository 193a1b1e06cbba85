// Package deepspeed reads DeepSpeed's configuration and says what it asks for in
// Spillway's words: sizes of batches, precision, optimizer, schedule, and which
// strategies it leaves.
//
// A configuration is a goal here. What it says explicitly is a constraint, what it
// leaves open the planner decides. Nothing in it is passed over in silence: every
// key that is not known, means nothing here, or is done otherwise gets a Notice.
package deepspeed

import (
	"errors"
	"fmt"
	"math"

	"spillway/dtype"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner/strategy"
)

// Config is what a file asks for. Zero fields are left open by it.
type Config struct {
	MicroBatchSize int64 // samples of a micro-batch, on one device
	MicroBatches   int   // micro-batches of an iteration, on all devices together

	Precision    dtype.Type
	LossScale    optim.LossScale // where Precision is F16
	Clip         float64         // greatest norm of the gradients
	Optimizer    *optim.Config
	Schedule     *optim.Schedule
	LearningRate float64 // learning rate at its highest

	Stage int // of ZeRO
	// Weights and State are the tier all weights, or all the optimizer keeps, rest in.
	Weights, State plan.Tier
	// DiskPath is the folder for what is stored on disk.
	DiskPath string

	devices    int
	bf16States bool // the optimizer keeps bf16
}

// Constraints are what the planner has no choice about.
func (c Config) Constraints() strategy.Constraints {
	demands := strategy.Constraints{Weights: c.Weights, State: c.State}
	if c.devices > 1 {
		demands.Parallelism = parallelism(c.Stage)
	}
	return demands
}

// parallelism of a ZeRO stage. Stage 0 keeps all optimizer state on every device, which
// gives the same numbers as ZeRO-2 in more memory.
func parallelism(stage int) strategy.Parallelism {
	if s := strategy.Stage(stage); s != nil {
		return strategy.Parallelism(s.Name)
	}
	return strategy.ZeRO2
}

// Kind of a notice.
type Kind string

// The kinds.
const (
	Unknown Kind = "unknown"   // no such key is known
	Unused  Kind = "no effect" // known, and without meaning here
	Missing Kind = "not done"  // known, and changes training in a way that is not there
	Changed Kind = "otherwise" // done, but not as there
	Open    Kind = "open"      // the file leaves it to others
)

// Notice is about a key that does not simply do what it says.
type Notice struct {
	Path string `json:"path"` // "zero_optimization.overlap_comm"
	Kind Kind   `json:"kind"`
	Why  string `json:"why"`
}

func (n Notice) String() string { return fmt.Sprintf("%s (%s): %s", n.Path, n.Kind, n.Why) }

// Parse reads a configuration for so many devices. The error has everything that
// is wrong with it.
func Parse(text []byte, devices int) (Config, []Notice, error) {
	fields, err := decode(text)
	if err != nil {
		return Config{}, nil, fmt.Errorf("reading the DeepSpeed configuration: %w", err)
	}
	r := &reader{}
	root := r.object("", fields)
	if old, ok := fields["bfloat16"]; ok && fields["bf16"] == nil { // its old name
		fields["bf16"] = old
		delete(fields, "bfloat16")
	}
	c := Config{devices: max(devices, 1)}
	c.batch(r, root)
	c.precision(r, root)
	c.Clip = root.clip()
	c.optimizer(r, root)
	c.scheduler(r, root)
	c.zero(r, root)
	r.leftovers()
	if err := errors.Join(r.errs...); err != nil {
		return Config{}, r.notices, fmt.Errorf("reading the DeepSpeed configuration: %w", err)
	}
	return c, r.notices, nil
}

func (c *Config) precision(r *reader, root *object) {
	half, brain := root.child("fp16"), root.child("bf16")
	fp16, _ := half.flag("enabled")
	bf16, _ := brain.flag("enabled")
	c.bf16States, _ = brain.flag("bf16_optimizer_states")
	switch {
	case fp16 && bf16:
		r.fail("fp16.enabled and bf16.enabled are both true; enable one")
	case fp16:
		c.Precision, c.LossScale = dtype.F16, lossScale(r, half)
	case bf16:
		c.Precision = dtype.BF16
	case !half.open("enabled") && !brain.open("enabled"):
		c.Precision = dtype.F32
	}
}

// lossScale is dynamic where loss_scale is 0 or absent, as large as it says otherwise.
func lossScale(r *reader, half *object) optim.LossScale {
	s := optim.DefaultLossScale()
	s.Interval = 1000
	if power, ok := half.whole("initial_scale_power"); ok {
		if power < 0 || power > 100 {
			r.fail("%s is %d; the scale begins at 2 to that power, from 0 to 100", half.at("initial_scale_power"), power)
			return s
		}
		s.Scale = math.Ldexp(1, int(power))
	}
	if window, ok := half.count(r, "loss_scale_window"); ok {
		s.Interval = window
	}
	if fixed, _ := half.number("loss_scale"); fixed != 0 {
		s.Scale, s.Growth, s.Backoff = fixed, 1, 1
	}
	if err := s.Check(); err != nil {
		r.fail("%s: %v", half.path, err)
	}
	return s
}

// clip is what the file says; releases differ in what they do where it says nothing.
func (o *object) clip() float64 {
	v, said := o.number("gradient_clipping")
	if !said && !o.open("gradient_clipping") {
		o.r.notice("gradient_clipping", Open, "it is absent, and nothing is clipped; newer releases of DeepSpeed clip to 1.0 then, older ones clip nothing")
	}
	if v < 0 {
		o.r.fail("gradient_clipping is %v; it is a norm above 0, or 0 for no clipping", v)
	}
	return v
}
