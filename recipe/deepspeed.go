package recipe

import (
	"fmt"

	"spillway/deepspeed"
	"spillway/dtype"
	"spillway/internal/vfs"
)

// DeepSpeedDisk takes the folder to offload to from DeepSpeed's configuration, if there is
// one and no other folder is set. It comes first, since the folder's disk is part of the
// machine.
func (p *Plan) DeepSpeedDisk() error {
	if p.DeepSpeed == "" || p.Disk != "" {
		return nil
	}
	text, err := vfs.ReadFile(vfs.OS, p.DeepSpeed, maxFile)
	if err != nil {
		return fmt.Errorf("reading DeepSpeed's configuration: %w", err)
	}
	if p.Disk, err = deepspeed.DiskPath(text); err != nil {
		return fmt.Errorf("%s: %w", p.DeepSpeed, err)
	}
	return nil
}

// ApplyDeepSpeed takes settings from DeepSpeed's configuration for so many devices. A
// setting that is given too is an error. The notices name what in the file has no effect, or
// is done differently. The configuration is nil where there is none.
func (p *Plan) ApplyDeepSpeed(devices int, given func(setting string) bool) (*deepspeed.Config, []string, error) {
	if p.DeepSpeed == "" {
		return nil, nil, nil
	}
	text, err := vfs.ReadFile(vfs.OS, p.DeepSpeed, maxFile)
	if err != nil {
		return nil, nil, fmt.Errorf("reading DeepSpeed's configuration: %w", err)
	}
	c, list, err := deepspeed.Parse(text, devices)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", p.DeepSpeed, err)
	}
	var notices []string
	for _, n := range list {
		notices = append(notices, n.String())
	}
	for _, s := range []struct {
		setting string
		said    bool
	}{
		{"batch-size", c.MicroBatchSize*int64(c.MicroBatches) > 0}, {"micro-batch-size", c.MicroBatchSize > 0},
		{"gradient-accumulation-steps", c.MicroBatches > 0}, {"precision", c.Precision != dtype.Invalid},
		{"optimizer", c.Optimizer != nil}, {"max-grad-norm", c.Clip > 0}, {"learning-rate", c.LearningRate > 0},
		{"lr-scheduler", c.Schedule != nil}, {"warmup-steps", c.Schedule != nil}, {"warmup-ratio", c.Schedule != nil},
	} {
		if s.said && given(s.setting) {
			return nil, nil, settingErrorf("--%s is given, and %s sets it too; keep one", s.setting, p.DeepSpeed)
		}
	}
	if c.MicroBatchSize > 0 {
		p.MicroBatchSize = c.MicroBatchSize
	}
	if c.MicroBatches > 0 {
		p.MicroBatches = c.MicroBatches
	}
	if c.Precision != dtype.Invalid {
		p.Precision = c.Precision
	}
	if c.Optimizer != nil {
		p.Optimizer = *c.Optimizer
	}
	if c.Clip > 0 {
		p.Clip = c.Clip
	}
	updates := p.Constraints.Updates
	p.Constraints = c.Constraints()
	p.Constraints.Updates = updates
	return &c, notices, nil
}

// ApplyDeepSpeed takes settings from DeepSpeed's configuration, those of the optimizer's
// schedule included.
func (r *Recipe) ApplyDeepSpeed(devices int) (notices []string, err error) {
	c, notices, err := r.Plan.ApplyDeepSpeed(devices, r.Given)
	if c == nil || err != nil {
		return notices, err
	}
	t := &r.Training
	if t.LossScale = c.LossScale; c.LearningRate > 0 {
		t.LearningRate = c.LearningRate
	}
	if c.Schedule != nil {
		t.Scheduler = *c.Schedule
	}
	return notices, nil
}
