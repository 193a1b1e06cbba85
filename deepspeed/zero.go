package deepspeed

import (
	"fmt"

	"spillway/plan"
)

// zero reads the stage and what is offloaded.
func (c *Config) zero(r *reader, root *object) {
	z := root.child("zero_optimization")
	stage, _ := z.whole("stage")
	if stage < 0 || stage > 3 {
		r.fail("%s is %d; it is 0, 1, 2 or 3", z.at("stage"), stage)
	}
	c.Stage = int(stage)
	switch {
	case c.Stage > 0 && c.devices == 1:
		r.notice(z.at("stage"), Unused, "there is one device, and nothing to shard")
	case c.Stage == 0 && c.devices > 1:
		r.notice(z.at("stage"), Changed, "plain data parallel devices, each with all optimizer state, are not there: %s gives the same numbers in less memory", parallelism(0))
	}
	weights := c.offload(r, z, "offload_param", "cpu_offload_param", 3)
	state := c.offload(r, z, "offload_optimizer", "cpu_offload", 1)
	c.Weights, c.State = weights, state
	if weights != "" && state != "" && weights != state {
		r.notice(z.at("offload_optimizer.device"), Changed, "what of a block is off the device is stored together here: weights and optimizer state both on disk")
		c.Weights, c.State = plan.OnDisk, plan.OnDisk
	}
}

// DiskPath is the folder in which a configuration has bytes rest, "" where there is
// none: what must be known before the machine is looked at.
func DiskPath(text []byte) (string, error) {
	fields, err := decode(text)
	if err != nil {
		return "", fmt.Errorf("reading the DeepSpeed configuration: %w", err)
	}
	r, c := &reader{}, Config{devices: 1}
	c.zero(r, r.object("", fields))
	return c.DiskPath, nil // what else is wrong Parse tells
}

// tiers of offload devices.
var tiers = map[string]plan.Tier{"none": "", "cpu": plan.OnHost, "nvme": plan.OnDisk}

// offload reads one of the two offload sections, or the flag of old that means cpu.
// DeepSpeed heeds it from a stage on.
func (c *Config) offload(r *reader, z *object, section, flag string, from int) plan.Tier {
	o := z.child(section)
	device, said := o.text("device")
	old, _ := z.flag(flag)
	if old && !said {
		device, said = "cpu", true
		r.notice(z.at(flag), Changed, "an old name; it is read as %s to cpu", section)
	}
	tier, ok := tiers[device]
	if said && !ok {
		r.fail("%s is %q; it is none, cpu or nvme", o.at("device"), device)
	}
	if tier != "" && c.Stage < from {
		r.notice(o.at("device"), Unused, "DeepSpeed heeds it from stage %d on, the stage is %d", from, c.Stage)
		tier = ""
	}
	c.path(r, o, tier)
	if ratio, ok := o.number("ratio"); ok && ratio != 1 {
		r.notice(o.at("ratio"), Changed, "all optimizer state is off the device; without this section the planner splits as is fastest")
	}
	return tier
}

// path sets the folder of what is stored on disk.
func (c *Config) path(r *reader, o *object, tier plan.Tier) {
	path, ok := o.text("nvme_path")
	if tier != plan.OnDisk {
		if ok {
			r.notice(o.at("nvme_path"), Unused, "nothing of it is stored on disk")
		}
		return
	}
	if !ok {
		r.notice(o.at("nvme_path"), Open, "it is absent; the disk tier needs a folder")
	}
	if ok && c.DiskPath != "" && c.DiskPath != path {
		r.notice(o.at("nvme_path"), Changed, "there is one folder for what is stored on disk: %s", c.DiskPath)
		return
	}
	c.DiskPath = path
}
